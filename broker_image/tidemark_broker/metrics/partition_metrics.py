"""Render the metrics of partitions and replicas.

Families and labels are those that the replication audit reads (docs/operations/metrics.md).
Rendering uses values only (`PartitionSnapshot`), so it may run in a worker.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from tidemark_protocol.ids import BrokerId

from tidemark_broker.metrics.broker_metrics import PREFIX, Family, MetricsProfile, escape
from tidemark_broker.replication.partition_snapshot import FollowerSnapshot, PartitionSnapshot

_MINIMAL, _AUDIT, _FULL = MetricsProfile

Value = TypeVar("Value")

SAMPLES_AT_A_TIME = 1000  # a piece of text: well under a millisecond

# One value of a replica or a follower.
_OfReplica = Callable[[PartitionSnapshot], float]
_OfFollower = Callable[[FollowerSnapshot], float]


def _replicas(cut: PartitionSnapshot) -> int:
    return len(cut.state.replicas) - len(cut.state.adding_replicas) if cut.state else 0


def _in_sync(cut: PartitionSnapshot) -> int:
    return len(cut.state.in_sync_replicas) if cut.state else 0


def _min_insync(cut: PartitionSnapshot) -> int:
    return cut.state.min_insync_replicas if cut.state else 0


def _is_reassigning(cut: PartitionSnapshot) -> int:
    state = cut.state
    return int(state is not None and bool(state.adding_replicas or state.removing_replicas))


LEADER_FAMILIES: tuple[tuple[Family, _OfReplica], ...] = (
    (
        Family("partition_replicas", "gauge", "Assigned replicas, adding replicas excluded.",
               _MINIMAL),
        _replicas,
    ),
    (
        Family("partition_in_sync_replicas", "gauge", "In-sync replicas, reported by the leader.",
               _MINIMAL),
        _in_sync,
    ),
    (
        Family("partition_min_in_sync_replicas", "gauge", "Effective min.insync.replicas.",
               _MINIMAL),
        _min_insync,
    ),
    (
        Family("partition_election_committed_gap_records", "gauge",
               "High watermark known to this leader minus its log end offset when it was "
               "elected; above 0, committed records are lost.", _MINIMAL),
        lambda cut: cut.election_gap_records,
    ),
    (
        Family("partition_reassigning", "gauge",
               "1 while a reassignment adds or removes replicas."),
        _is_reassigning,
    ),
    (
        Family("partition_replica_lag_max_seconds", "gauge", "replica.lag.time.max.ms."),
        lambda cut: cut.replica_lag_max_ms / 1000,
    ),
    (
        Family("partition_isr_expands_total", "counter", "Times the ISR grew."),
        lambda cut: cut.isr_expands,
    ),
    (
        Family("partition_largest_append_records", "gauge",
               "Records of the largest append since this broker became the leader."),
        lambda cut: cut.largest_append_records,
    ),
)  # fmt: skip
ISR_SHRINKS = Family("partition_isr_shrinks_total", "counter", "Times the ISR shrank.")
FOLLOWER_FAMILIES: tuple[tuple[Family, _OfFollower], ...] = (
    (
        Family("follower_lag_records", "gauge",
               "Log end offset of the leader minus that of the follower.", _MINIMAL),
        lambda follower: follower.lag_records,
    ),
    (
        Family("follower_caught_up_age_seconds", "gauge",
               "Time since the follower was last caught up; -1: never in this epoch.", _MINIMAL),
        lambda follower: -1 if follower.caught_up_age_ms < 0 else follower.caught_up_age_ms / 1000,
    ),
    (
        Family("follower_in_sync", "gauge", "1 if the follower is in the ISR."),
        lambda follower: int(follower.in_sync),
    ),
)  # fmt: skip
REPLICA_FAMILIES: tuple[tuple[Family, _OfReplica], ...] = (
    (
        Family("replica_is_leader", "gauge", "1 on the leader.", _MINIMAL),
        lambda cut: int(cut.is_leader),
    ),
    (
        Family("replica_leader_epoch", "gauge", "Leader epoch of this replica; -1: none.",
               _MINIMAL),
        lambda cut: cut.leader_epoch,
    ),
    (
        Family("replica_high_watermark_offset", "gauge",
               "High watermark known to this replica, exclusive.", _MINIMAL),
        lambda cut: cut.high_watermark,
    ),
    (
        Family("replica_log_end_offset", "gauge", "Log end offset of this replica.",
               _MINIMAL),
        lambda cut: cut.log_end_offset,
    ),
    (
        Family("replica_committed_truncated_records_total", "counter",
               "Truncated records below the high watermark known to this replica; above 0, "
               "committed records are lost.",
               _MINIMAL),
        lambda cut: cut.committed_truncated_records,
    ),
    (
        Family("replica_leader_epoch_start_offset", "gauge",
               "First offset of this leader epoch in this replica's log; -1: none."),
        lambda cut: cut.epoch_start_offset,
    ),
    (
        Family("replica_log_start_offset", "gauge", "Log start offset of this replica."),
        lambda cut: cut.log_start_offset,
    ),
    (
        Family("replica_size_bytes", "gauge", "Size of this replica's log in bytes."),
        lambda cut: cut.size_bytes,
    ),
    (
        Family("replica_truncated_records_total", "counter", "Records removed by truncation."),
        lambda cut: cut.truncated_records,
    ),
    (
        Family("replica_producer_ids", "gauge", "Producer IDs with stored sequences."),
        lambda cut: cut.producer_ids,
    ),
    (
        Family("replica_duplicate_batches_total", "counter",
               "Duplicate batches: acknowledged with their stored offsets."),
        lambda cut: cut.duplicate_batches,
    ),
    (
        Family("replica_digest_offset", "gauge",
               "End of the offset range of replica_digest; -1: none.", _FULL),
        lambda cut: -1 if cut.digest is None else cut.digest.boundary,
    ),
    (
        Family("replica_digest", "gauge",
               "Digest of the batches up to replica_digest_offset (48 bits);"
               " equal on every replica.", _FULL),
        lambda cut: 0 if cut.digest is None else cut.digest.digest,
    ),
)  # fmt: skip

_SIZE = "replica_size_bytes"
# In place of all others, of what no client and no leader knows any more: a replica without a leader
# would read as an outage.
RETAINED_FAMILY: tuple[Family, _OfReplica] = (
    Family("replica_is_retained", "gauge",
           "1: the topic is deleted and its data is kept (deletionPolicy Retain).", _MINIMAL),
    lambda cut: 1,
)  # fmt: skip


@dataclass(slots=True)
class _Lines:
    """The samples of one family, in order."""

    family: Family
    name: str = ""
    texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = PREFIX + self.family.name


class PartitionExposition:
    """A renderer that takes snapshots and returns the text, a family a piece.

    All samples have topic, topic_id, partition and broker.
    """

    def __init__(self, broker_id: BrokerId, profile: MetricsProfile) -> None:
        self._broker_id = broker_id
        self._leader = _chosen(LEADER_FAMILIES, profile)
        self._shrinks = _chosen(((ISR_SHRINKS, None),), profile)
        self._follower = _chosen(FOLLOWER_FAMILIES, profile)
        self._replica = _chosen(REPLICA_FAMILIES, profile)
        self._retained = _chosen((RETAINED_FAMILY,), profile)

    def add(self, cut: PartitionSnapshot) -> None:
        labels = (
            f'{{topic="{escape(cut.topic)}",topic_id="{escape(cut.topic_id)}",'
            f'partition="{cut.partition}",broker="{self._broker_id}"'
        )
        families = self._replica
        if cut.is_retained:
            sizes = (each for each in families if each[0].family.name == _SIZE)
            families = [*self._retained, *sizes]
        for lines, value in families:
            lines.texts.append(f"{lines.name}{labels}}} {value(cut)}\n")
        if cut.is_retained or not cut.is_leader:
            return
        for lines, value in self._leader:
            lines.texts.append(f"{lines.name}{labels}}} {value(cut)}\n")
        for lines, _ in self._shrinks:
            for reason, count in cut.isr_shrinks:
                lines.texts.append(f'{lines.name}{labels},reason="{reason.value}"}} {count}\n')
        for follower in cut.followers:
            of_follower = f'{labels},follower="{follower.broker_id}"}}'
            for lines, follower_value in self._follower:
                lines.texts.append(f"{lines.name}{of_follower} {follower_value(follower)}\n")

    def pieces(self) -> Iterator[str]:
        """Yield the pieces once; each is released when it was returned.

        The last partition comes first.
        """
        for group in (self._leader, self._shrinks, self._follower, self._replica, self._retained):
            for lines, _ in group:
                yield lines.family.head
                while lines.texts:
                    yield "".join(lines.texts[-SAMPLES_AT_A_TIME:])
                    del lines.texts[-SAMPLES_AT_A_TIME:]


def _chosen(
    families: Iterable[tuple[Family, Value]], profile: MetricsProfile
) -> list[tuple[_Lines, Value]]:
    return [
        (_Lines(family), value) for family, value in families if profile.includes(family.profile)
    ]
