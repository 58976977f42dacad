"""Runs the manager without Kubernetes."""
