"""Build Kubernetes objects, one file for each kind."""
