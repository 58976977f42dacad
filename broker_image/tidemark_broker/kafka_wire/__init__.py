"""Kafka's binary formats."""
