"""Consumer groups: loads the partitions of `__consumer_offsets`, appends and runs their timers."""
