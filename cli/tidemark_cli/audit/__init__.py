"""Arguments and output of `tidemark audit`."""
