"""Decides what a request or a change asks of one pool."""
