"""Render `/metrics` from snapshots."""
