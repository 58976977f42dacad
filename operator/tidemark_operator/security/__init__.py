"""Ask Kubernetes, or in local mode a file, who clients are and what they may do (0170)."""
