"""Define the metrics that an audit reads, and Kafka's names for them."""
