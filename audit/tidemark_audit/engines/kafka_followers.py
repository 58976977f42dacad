"""Kafka's followers export 0 where its leaders export how many replicas a partition has."""

import numpy as np

from tidemark_audit.kafka_names import SAID_BY_KAFKA
from tidemark_audit.kernel.samples import STALE, Floats, SampleBatch

SAYS_WHO_LEADS = "partition_replicas"
LEADS = "replica_is_leader"


def without_followers(batch: SampleBatch) -> SampleBatch:
    """What a follower says of a partition's replicas ends there, as if it had stopped speaking. Its
    0 says that it does not lead: a leader never says it, it is one of them."""
    of_kafka = np.array([key.detail == SAID_BY_KAFKA for key in batch.series], dtype=np.bool_)
    if not of_kafka.any():
        return batch
    plain = tuple(
        key._replace(detail="") if is_its else key
        for key, is_its in zip(batch.series, of_kafka, strict=True)
    )
    follows = of_kafka[batch.series_of] & (batch.values == 0)
    # One more series for each that says who leads.
    says = [number for number, key in enumerate(plain) if key.family == SAYS_WHO_LEADS]
    says = [number for number in says if of_kafka[number]]
    place = np.full(len(plain), -1, dtype=np.int32)
    place[says] = np.arange(len(plain), len(plain) + len(says))
    said = np.flatnonzero(place[batch.series_of] >= 0)
    return SampleBatch(
        (*plain, *(plain[number]._replace(family=LEADS) for number in says)),
        np.concatenate((batch.series_of, place[batch.series_of[said]])),
        np.concatenate((batch.at_ms, batch.at_ms[said])),
        np.concatenate((np.where(follows, STALE, batch.values), _leads(batch.values[said]))),
    )


def _leads(replicas: Floats) -> Floats:
    """What is no number says nothing of who leads."""
    return np.where(np.isfinite(replicas), replicas > 0, replicas)
