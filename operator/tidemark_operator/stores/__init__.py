"""Where objects live: the Kubernetes API, or one SQLite file in local mode."""
