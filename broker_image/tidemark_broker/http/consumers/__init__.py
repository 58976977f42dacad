"""The Kafka consumer that runs here for HTTP clients."""
