"""Reads, plans (pure) and writes; dispatches by kind."""
