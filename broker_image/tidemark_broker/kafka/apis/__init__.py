"""Handles Kafka's requests: one file for each file of `kafka_wire/messages/`."""
