"""The command line: `tidemark`, also installed as `kubectl-tidemark`."""
