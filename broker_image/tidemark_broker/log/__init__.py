"""Partition logs on one volume: segments, indexes, recovery, checkpoints, compaction."""
