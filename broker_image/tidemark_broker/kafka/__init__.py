"""Serve the Kafka protocol."""
