"""Check what a consumer group committed: at least once means that no committed record is skipped.

A member commits the position after records that it received. So when a position is committed, each
record below it was received by some member before. And a commit that was acknowledged is there at
the end: positions only rise. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidemark_chaos.history_checker import MAX_SAMPLES, Anomaly
from tidemark_chaos.workload_log import ACKNOWLEDGED, Event, GroupCommitted, GroupRead

SKIPPED = "group-skipped"
COMMIT_LOST = "group-commit-lost"


@dataclass(slots=True)
class _Partition:
    received: set[int] = field(default_factory=set)
    checked_to: int = 0
    acknowledged: int = 0  # the highest position of an acknowledged commit


def check_group(
    events: Iterable[Event],
    found: Mapping[int, Mapping[int, int]],
    committed: Mapping[int, int],
) -> tuple[Anomaly, ...]:
    """Return the anomalies of a group.

    `events` in the order in which they became known; `found`: partition -> offset -> sequence, of
    the whole log; `committed`: partition -> the group's position at the end.
    """
    partitions: dict[int, _Partition] = {}
    skipped: list[str] = []
    for event in events:
        if isinstance(event, GroupRead):
            partition = partitions.setdefault(event.partition, _Partition())
            partition.received.update(event.offsets)
        elif isinstance(event, GroupCommitted):
            partition = partitions.setdefault(event.partition, _Partition())
            log = found.get(event.partition, {})
            skipped += _skipped_below(event, partition, log)
    lost = [
        f"{number}: position {partition.acknowledged} was committed, {at_end} is left"
        for number, partition in sorted(partitions.items())
        if (at_end := committed.get(number, 0)) < partition.acknowledged
    ]
    return tuple(
        Anomaly(name, len(texts), tuple(texts[:MAX_SAMPLES]))
        for name, texts in ((SKIPPED, skipped), (COMMIT_LOST, lost))
        if texts
    )


def _skipped_below(
    event: GroupCommitted, partition: _Partition, log: Mapping[int, int]
) -> list[str]:
    """Return the records below a commit that no member received; each is told once."""
    missing = [
        offset
        for offset in range(partition.checked_to, event.position)
        if offset in log and offset not in partition.received
    ]
    partition.checked_to = max(partition.checked_to, event.position)
    if event.outcome == ACKNOWLEDGED:
        partition.acknowledged = max(partition.acknowledged, event.position)
    return [
        f"{event.partition}: member {event.member} committed position {event.position}, but no"
        f" member received record {log[offset]} at offset {offset}"
        for offset in missing
    ]
