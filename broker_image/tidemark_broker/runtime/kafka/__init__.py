"""The Kafka protocol's requests, one handler module per API, over `Partitions`."""
