"""One broker: storage, replication, the Kafka listener and the HTTP door."""
