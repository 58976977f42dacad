"""Bytes on one broker's volume: batches, segments, epochs, recovery. Knows no network and no roles."""
