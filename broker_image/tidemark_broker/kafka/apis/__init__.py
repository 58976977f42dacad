"""Handle Kafka's requests, with one file for each file of `kafka_wire/messages/`."""
