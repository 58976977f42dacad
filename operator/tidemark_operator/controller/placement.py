"""Where the replicas of new partitions go.

Replica j of partition i is on broker index (i + j) mod n: leaders and replicas spread evenly and
distinct replicas are on distinct brokers (I18). Racks and existing load are not looked at yet.
"""

from collections.abc import Sequence

from tidemark_protocol.ids import BrokerId


class TooFewBrokers(Exception):
    """More replicas asked for than there are brokers; the text says which number to change."""


def place(
    partition_count: int,
    replication_factor: int,
    broker_ids: Sequence[BrokerId],
    *,
    first_partition: int = 0,
) -> tuple[tuple[BrokerId, ...], ...]:
    """Assignments of `partition_count` partitions, the first one numbered `first_partition`.

    Raises TooFewBrokers, and ValueError for counts below one.
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
    return tuple(
        tuple(
            brokers[(partition + replica) % len(brokers)] for replica in range(replication_factor)
        )
        for partition in range(first_partition, first_partition + partition_count)
    )
