"""The operator: reconciles pools and topics, and is the controller of their partitions."""
