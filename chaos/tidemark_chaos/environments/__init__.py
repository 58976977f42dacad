"""Provide the clusters that an experiment runs on: local processes, or Kubernetes."""
