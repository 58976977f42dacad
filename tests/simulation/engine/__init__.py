"""The whole system in one thread: production processes, one seed, virtual time."""
