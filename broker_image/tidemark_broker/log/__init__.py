"""Store partition logs on one volume: segments, indexes, recovery, checkpoints, compaction."""
