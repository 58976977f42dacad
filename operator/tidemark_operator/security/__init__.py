"""Identify who sends a request, reject what its sender may not do, and issue certificates."""
