"""A Kafka consumer inside this broker, for clients that have only HTTP."""
