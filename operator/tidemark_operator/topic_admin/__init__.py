"""Topic objects changed for clients of brokers (Kafka's admin APIs): see docs/kafka.md."""
