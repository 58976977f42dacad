"""Kafka's records: record batches and compression."""
