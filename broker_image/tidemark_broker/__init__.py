"""Run one broker: logs, replication, the Kafka server and the HTTP API."""
