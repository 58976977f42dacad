"""Find elections and changes of the in-sync set, with the exporter that counted them."""

import itertools
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from tidemark_audit.analysis.counter_increases import counted_steps
from tidemark_audit.analysis.partition_timeline import NOBODY, PartitionTimeline, Series, State
from tidemark_audit.analysis.step_function import Increment, increments
from tidemark_audit.metrics.families import Exporter
from tidemark_audit.results import Election, IsrChange, TopicPartition


class Change(StrEnum):
    SHRINK = "shrink"
    EXPAND = "expand"
    ELECTION = "election"


@dataclass(frozen=True, slots=True)
class CounterChange:
    """Record changes that brokers and operator counted between two scrapes.

    Planned changes are told apart.
    """

    change: Change
    after_ms: int
    at_ms: int
    by: int
    planned: bool = False


UNKNOWN = "unknown"
KIND_ORDER = ("unclean", "planned", "clean")  # the worst that was counted at that time


def partition_of(series: Series) -> TopicPartition:
    return TopicPartition(series.topic, series.partition, series.topic_id)


def elections_of(series: Series, timeline: PartitionTimeline) -> list[Election]:
    """Return new epochs as the leaders' own samples show them."""
    counted = {
        kind: counted_steps(series, series.find("partition_leader_elections_total", detail=kind))
        for kind in KIND_ORDER
    }
    slack = series.context.intervals.cap_ms(Exporter.OPERATOR)
    found: list[Election] = []
    epoch, broker, last_seen = -1.0, "", 0
    for segment in range(len(timeline.leader)):
        number = int(timeline.leader[segment])
        if number == NOBODY:
            continue
        start = int(timeline.starts_ms[segment])
        if timeline.leader_epoch[segment] > epoch >= 0:
            kind = _counted_between(counted, last_seen - slack, start + slack)
            found.append(
                Election(
                    partition_of(series), last_seen, start, kind, broker, timeline.brokers[number],
                    int(timeline.leader_epoch[segment]),
                )
            )  # fmt: skip
        epoch = max(epoch, float(timeline.leader_epoch[segment]))
        broker = timeline.brokers[number]
        last_seen = int(min(timeline.last_seen_ms[segment], timeline.borders_ms[segment + 1]))
    return found


def _counted_between(counted: dict[str, list[Increment]], after_ms: int, until_ms: int) -> str:
    for kind in KIND_ORDER:
        if any(step.after_ms <= until_ms and step.at_ms >= after_ms for step in counted[kind]):
            return kind
    return UNKNOWN


def isr_changes_of(series: Series, timeline: PartitionTimeline) -> list[IsrChange]:
    """Between two things that leaders said, one after the other."""
    shrinks = {
        merged_series.key.detail: counted_steps(series, merged_series)
        for merged_series in series.all_of("partition_isr_shrinks_total")
    }
    said = np.flatnonzero((timeline.state != State.UNOBSERVED) & (timeline.leader != NOBODY))
    found: list[IsrChange] = []
    for before, after in itertools.pairwise(said.tolist()):
        old, new = int(timeline.in_sync[before]), int(timeline.in_sync[after])
        if old == new:
            continue
        at_ms = int(timeline.starts_ms[after])
        after_ms = int(min(timeline.last_seen_ms[before], at_ms))
        reason = "expand" if new > old else _reason(shrinks, after_ms, at_ms)
        if not reason and (timeline.reassigning[before] or timeline.reassigning[after]):
            reason = "move"  # a replica that was removed; nothing counts it as shrinking
        found.append(IsrChange(partition_of(series), after_ms, at_ms, old, new, reason))
    return found


def _reason(shrinks: dict[str, list[Increment]], after_ms: int, at_ms: int) -> str:
    for reason, steps in sorted(shrinks.items()):
        if any(step.after_ms <= at_ms and step.at_ms >= after_ms for step in steps):
            return reason
    return ""


_COUNTERS = {
    "partition_isr_shrinks_total": Change.SHRINK,
    "partition_isr_expands_total": Change.EXPAND,
    "partition_leader_elections_total": Change.ELECTION,
}


def counted_of(series: Series) -> list[CounterChange]:
    """Return counted changes in order of time.

    Only increases between two samples of one counter count: its first value may be of long ago, or
    of the election that created the partition.
    """
    found = [
        CounterChange(
            change, step.after_ms, step.at_ms, int(step.by), merged_series.key.detail == "planned"
        )
        for family, change in _COUNTERS.items()
        for merged_series in series.all_of(family)
        for step in increments(merged_series, from_zero=False, cap_ms=series.cap_ms(family))
        if step.at_ms >= series.context.window_start_ms
    ]
    return sorted(found, key=lambda counted: (counted.at_ms, counted.change, counted.planned))
