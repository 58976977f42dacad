"""Decide what a request or a change means for one pool."""
