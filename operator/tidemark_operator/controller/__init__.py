"""Decide which broker leads what: `core` and `commands` decide, one loop for each pool performs."""
