"""Run Kafka consumers in this broker for HTTP clients."""
