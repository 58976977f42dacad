"""Keeps objects in the Kubernetes API or SQLite, and the Lease."""
