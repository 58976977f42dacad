"""Builds one broker from its parts, starts and stops it, registers it and keeps its heartbeat."""
