"""Bytes on one broker's volume: batches, segments, epochs, recovery. No network, no roles."""
