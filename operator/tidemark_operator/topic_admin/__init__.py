"""Change Topic objects for clients of brokers (Kafka's admin APIs): docs/user/kafka.md."""
