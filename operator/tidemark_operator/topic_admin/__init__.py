"""Topic objects changed for clients of brokers (Kafka's admin APIs): see docs/user/kafka.md."""
