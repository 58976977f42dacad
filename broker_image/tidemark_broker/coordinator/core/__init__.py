"""Decide what happens to the groups of one `__consumer_offsets` partition, without I/O."""
