"""Serve the live page of in-sync replicas and what feeds it."""
