"""Encode and decode Kafka's binary formats, without I/O."""
