"""Run the periodic work: cleaner, checkpoints, group commit, disk space, digests."""
