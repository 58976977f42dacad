"""Kafka frames to typed requests and back. Pure bytes work, every length checked."""
