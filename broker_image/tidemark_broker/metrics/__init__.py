"""Renders `/metrics` from snapshots."""
