"""Store objects in the Kubernetes API or SQLite, and hold the Lease."""
