"""The metrics that an audit reads, and what Kafka calls them."""
