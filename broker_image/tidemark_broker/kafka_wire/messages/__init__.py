"""Kafka's messages: frames and schemas."""
