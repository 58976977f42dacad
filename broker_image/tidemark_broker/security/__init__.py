"""Decide who clients are and what they may do, by what the controller says of them (0170)."""
