"""Run the manager without Kubernetes."""
