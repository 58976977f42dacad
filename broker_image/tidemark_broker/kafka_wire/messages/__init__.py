"""Encode and decode Kafka's requests and responses: frames and schemas."""
