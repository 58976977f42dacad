"""Provide the command line: `tidemark`, also installed as `kubectl-tidemark`."""
