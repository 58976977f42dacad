"""Place the replicas of new partitions on brokers (I18).

Without racks replica j of partition i is on broker index (i + j) mod n: leaders and replicas are
spread evenly and on distinct brokers. With racks the brokers are first ordered so that racks
alternate, and a replica skips brokers whose rack the partition has already, as long as there are
racks that it lacks (as Kafka's rack-aware assignment). Existing load is ignored.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest

from tidemark_protocol.ids import BrokerId


class TooFewBrokers(Exception):
    """An error: more replicas than brokers; the text says which number to change."""


def place(
    partition_count: int,
    replication_factor: int,
    broker_ids: Sequence[BrokerId],
    *,
    first_partition: int = 0,
    racks: Mapping[BrokerId, str] | None = None,
) -> tuple[tuple[BrokerId, ...], ...]:
    """Return the assignments of `partition_count` partitions from `first_partition` on.

    `racks` has a name for each broker in a rack. Raises TooFewBrokers, and ValueError for counts
    below one.
    """
    if partition_count < 1 or replication_factor < 1:
        raise ValueError(
            "placement: expected at least 1 partition and 1 replica,"
            f" found partitions={partition_count} replicationFactor={replication_factor}"
        )
    brokers = sorted(set(broker_ids))
    if replication_factor > len(brokers):
        raise TooFewBrokers(
            f"replicationFactor is {replication_factor} but the pool has {len(brokers)} brokers:"
            f" lower replicationFactor to {max(len(brokers), 1)} or raise the pool's replicas to"
            f" {replication_factor}"
        )
    rack_of = {broker_id: (racks or {}).get(broker_id, "") for broker_id in brokers}
    order = _alternating(brokers, rack_of)
    return tuple(
        _replicas(order, rack_of, partition, replication_factor)
        for partition in range(first_partition, first_partition + partition_count)
    )


def _alternating(brokers: list[BrokerId], rack_of: Mapping[BrokerId, str]) -> list[BrokerId]:
    by_rack: dict[str, list[BrokerId]] = {}
    for broker_id in brokers:
        by_rack.setdefault(rack_of[broker_id], []).append(broker_id)
    if len(by_rack) == 1:
        return brokers
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker_id for broker_id in chain.from_iterable(rounds) if broker_id is not None]


# guard: replicas-spread-over-racks (I18)
def _replicas(
    order: list[BrokerId],
    rack_of: Mapping[BrokerId, str],
    partition: int,
    replication_factor: int,
) -> tuple[BrokerId, ...]:
    """Return brokers around the ring from the partition's position on, missing racks first."""
    ring = [order[(partition + step) % len(order)] for step in range(len(order))]
    taken: list[BrokerId] = []
    racks: set[str] = set()
    while len(taken) < replication_factor:
        left = [broker_id for broker_id in ring if broker_id not in taken]
        elsewhere = [broker_id for broker_id in left if rack_of[broker_id] not in racks]
        taken.append((elsewhere or left)[0])
        racks.add(rack_of[taken[-1]])
        if not elsewhere:
            racks = {rack_of[taken[-1]]}  # each rack has one: begin a second round of racks
    return tuple(taken)
