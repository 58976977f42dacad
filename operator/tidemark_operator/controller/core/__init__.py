"""Decide about partitions and brokers without I/O."""
