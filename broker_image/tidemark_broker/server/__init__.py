"""Build one broker from its parts, start and stop it, register it and keep its heartbeat."""
