"""Certificate authorities of pools, and the certificates that they issue."""
