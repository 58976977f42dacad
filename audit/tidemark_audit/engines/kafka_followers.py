"""Kafka's followers export 0 where its leaders export how many replicas a partition has."""

import numpy as np

from tidemark_audit.kernel.samples import STALE, SampleBatch

LEADERS_ONLY = frozenset({"partition_replicas", "partition_in_sync_replicas"})


def without_followers(batch: SampleBatch) -> SampleBatch:
    """What a follower says of a partition's replicas ends there, as if it had stopped speaking. No
    leader ever says 0: it is one of them."""
    of_leaders = np.array([key.family in LEADERS_ONLY for key in batch.series], dtype=np.bool_)
    if not of_leaders.any():
        return batch
    follows = of_leaders[batch.series_of] & (batch.values == 0)
    if not follows.any():
        return batch
    values = np.where(follows, STALE, batch.values)
    return SampleBatch(batch.series, batch.series_of, batch.at_ms, values)
