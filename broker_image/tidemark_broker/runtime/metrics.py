"""Prometheus text of the partitions on this broker, and of its process.

Rendered from one `Partitions.snapshot()`, in which the values of one partition are one consistent
cut (so a high watermark that goes back without a new epoch is a finding, not an artefact).
Families and labels are those that the replication audit reads. An own renderer: 1000 partitions
are some 30 000 lines, which prometheus-client's registry would build from objects. It yields one
piece per family so that the caller can give the loop back in between. Follower-side numbers come
from the leader only.
"""

import resource
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidemark_protocol.ids import BrokerId

from tidemark_broker.runtime.results import FollowerSnapshot, PartitionSnapshot

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
PREFIX = "tidemark_"
_STARTED_SECONDS = time.time()


@dataclass(frozen=True, slots=True)
class Family:
    name: str  # without the prefix
    kind: str
    help: str

    @property
    def head(self) -> str:
        return f"# HELP {PREFIX}{self.name} {self.help}\n# TYPE {PREFIX}{self.name} {self.kind}\n"


_LEADER_FAMILIES: tuple[tuple[Family, Callable[[PartitionSnapshot], int]], ...] = (
    (
        Family("partition_replicas", "gauge", "Replicas assigned; from the leader."),
        lambda cut: len(cut.replicas),
    ),
    (
        Family("partition_in_sync_replicas", "gauge", "Replicas in sync; from the leader."),
        lambda cut: len(cut.in_sync),
    ),
    (
        Family("partition_min_in_sync_replicas", "gauge", "Effective min.insync.replicas."),
        lambda cut: cut.min_insync,
    ),
    (
        Family("partition_isr_shrinks_total", "counter", "Times this leader shrank the ISR."),
        lambda cut: cut.isr_shrinks,
    ),
    (
        Family("partition_isr_expands_total", "counter", "Times this leader expanded the ISR."),
        lambda cut: cut.isr_expands,
    ),
)
_REPLICA_FAMILIES: tuple[tuple[Family, Callable[[PartitionSnapshot], int]], ...] = (
    (
        Family("replica_log_start_offset", "gauge", "First offset of this replica's log."),
        lambda cut: cut.log_start_offset,
    ),
    (
        Family("replica_log_end_offset", "gauge", "Next offset to write in this replica's log."),
        lambda cut: cut.log_end_offset,
    ),
    (
        Family(
            "replica_high_watermark_offset", "gauge", "High watermark as this replica knows it."
        ),
        lambda cut: cut.high_watermark,
    ),
    (
        Family("replica_leader_epoch", "gauge", "Leader epoch that this replica is in."),
        lambda cut: cut.leader_epoch,
    ),
    (
        Family(
            "replica_leader_epoch_start_offset", "gauge", "First offset of that epoch; -1: none."
        ),
        lambda cut: cut.epoch_start_offset,
    ),
    (
        Family("replica_is_leader", "gauge", "1 on the broker that leads."),
        lambda cut: int(cut.is_leader),
    ),
    (
        Family("replica_size_bytes", "gauge", "Bytes of this replica's log."),
        lambda cut: cut.size_bytes,
    ),
    (
        Family("replica_truncated_records_total", "counter", "Records that truncation removed."),
        lambda cut: cut.truncated_records,
    ),
    (
        Family(
            "replica_committed_truncated_records_total",
            "counter",
            "Of these, records below the replica's own high watermark: proof of loss.",
        ),
        lambda cut: cut.committed_truncated_records,
    ),
    (
        Family("replica_producer_ids", "gauge", "Producer ids whose sequences are remembered."),
        lambda cut: cut.producer_ids,
    ),
    (
        Family(
            "replica_duplicate_batches_total",
            "counter",
            "Batches that were in the log already: answered with their offsets, not appended.",
        ),
        lambda cut: cut.duplicate_batches,
    ),
)
_FOLLOWER_FAMILIES: tuple[tuple[Family, Callable[[FollowerSnapshot], float]], ...] = (
    (
        Family("follower_lag_records", "gauge", "Leader's log end minus the follower's."),
        lambda follower: follower.lag_records,
    ),
    (
        Family(
            "follower_caught_up_age_seconds",
            "gauge",
            "Since the follower was last caught up; -1: never in this epoch.",
        ),
        lambda follower: -1 if follower.caught_up_age_ms < 0 else follower.caught_up_age_ms / 1000,
    ),
    (
        Family("follower_in_sync", "gauge", "1 if the follower is in the ISR."),
        lambda follower: int(follower.in_sync),
    ),
)


def render_partitions(cuts: Sequence[PartitionSnapshot], broker_id: BrokerId) -> Iterator[str]:
    """One exposition, a family a piece. All samples carry topic, topic_id, partition, broker."""
    labelled = [(_labels(cut, broker_id), cut) for cut in cuts]
    led = [(labels, cut) for labels, cut in labelled if cut.is_leader]
    followed = [
        (f'{labels},follower="{follower.broker_id}"', follower)
        for labels, cut in led
        for follower in cut.followers
    ]
    for family, value in _LEADER_FAMILIES:
        name = PREFIX + family.name
        yield family.head + "".join(f"{name}{{{labels}}} {value(cut)}\n" for labels, cut in led)
    for family, follower_value in _FOLLOWER_FAMILIES:
        name = PREFIX + family.name
        yield family.head + "".join(
            f"{name}{{{labels}}} {follower_value(follower)}\n" for labels, follower in followed
        )
    for family, value in _REPLICA_FAMILIES:
        name = PREFIX + family.name
        yield family.head + "".join(
            f"{name}{{{labels}}} {value(cut)}\n" for labels, cut in labelled
        )


def _labels(cut: PartitionSnapshot, broker_id: BrokerId) -> str:
    return (
        f'topic="{escape(cut.topic)}",topic_id="{escape(cut.topic_id)}",'
        f'partition="{cut.partition}",broker="{broker_id}"'
    )


def escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class CrcFailures:
    """Batches that failed their CRC, by where that was noticed."""

    PLACES = ("produce", "fetch", "replica", "recovery", "compaction")

    def __init__(self) -> None:
        self._counts = dict.fromkeys(self.PLACES, 0)

    def note(self, where: str) -> None:
        self._counts[where] += 1

    def render(self) -> Iterator[str]:
        family = Family("crc_failures_total", "counter", "Record batches that failed their CRC.")
        yield family.head + "".join(
            f'{PREFIX}{family.name}{{where="{where}"}} {count}\n'
            for where, count in self._counts.items()
        )


def render_process() -> Iterator[str]:
    """Under the names that Prometheus clients share, so that known dashboards work."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    try:
        resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
        open_files = len(tuple(Path("/proc/self/fd").iterdir()))
    except OSError:
        resident_pages = open_files = 0
    values = (
        ("process_cpu_seconds_total", "counter", usage.ru_utime + usage.ru_stime),
        ("process_resident_memory_bytes", "gauge", resident_pages * resource.getpagesize()),
        ("process_open_fds", "gauge", open_files),
        ("process_start_time_seconds", "gauge", round(_STARTED_SECONDS, 3)),
    )
    for name, kind, value in values:
        yield f"# HELP {name} Of this process.\n# TYPE {name} {kind}\n{name} {value}\n"
