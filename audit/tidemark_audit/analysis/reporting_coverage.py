"""Measure whether those who would report a loss were seen: each replica, and the operator.

Latched counters cover the time between two samples of one process. A sample is also valid for its
usual time: after the last one, and before the first one of a process that followed another, as its
counters began at 0. Other time between two processes has no witness.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tidemark_audit.aggregation.samples import Flags
from tidemark_audit.analysis.partition_timeline import PartitionTimeline, Series, State
from tidemark_audit.metrics.families import Exporter

COUNTER = "replica_committed_truncated_records_total"
OPERATORS = "partition_leader_id"
OPERATOR = "the operator"


@dataclass(frozen=True, slots=True)
class Reporter:
    exporter: str
    due_ms: int  # a replica: while its leader called it in sync, or it led
    heard_ms: int


def reporters_of(series: Series, timeline: PartitionTimeline) -> Iterator[Reporter]:
    context = series.context
    heard = series.steps(OPERATORS)
    intervals = list(zip(heard.start_ms.tolist(), heard.end_ms.tolist(), strict=True))
    everywhere = np.ones(len(timeline.state), dtype=np.bool_)
    window = context.window_end_ms - context.window_start_ms
    yield Reporter(OPERATOR, window, _overlap(timeline, everywhere, intervals))
    for broker in sorted(_named(series)):
        due = _due(series, timeline, broker)
        yield Reporter(
            f"broker {broker}",
            int(timeline.lengths_ms[due].sum()),
            _overlap(timeline, due, _heard(series, broker)),
        )


def _named(series: Series) -> set[str]:
    followers = {merged_series.key.follower for merged_series in series.all_of("follower_in_sync")}
    leaders = {
        merged_series.key.broker for merged_series in series.all_of("partition_in_sync_replicas")
    }
    return followers | leaders


def _due(series: Series, timeline: PartitionTimeline, broker: str) -> Flags:
    times = timeline.starts_ms
    due = np.zeros(len(times), dtype=np.bool_)
    for number, leader in enumerate(timeline.brokers):
        leads = timeline.leader == number
        if leader == broker:
            due |= leads
        else:
            says = series.steps("follower_in_sync", broker=leader, follower=broker)
            due |= leads & (says.at(times) == 1.0)
    return np.asarray(due & (timeline.state != State.UNOBSERVED))


def _heard(series: Series, broker: str) -> list[tuple[int, int]]:
    merged_series = series.find(COUNTER, broker=broker)
    if merged_series is None:
        return []
    cap_ms = series.context.intervals.cap_ms(Exporter.BROKER)
    known = ~np.isnan(merged_series.first_value)
    first_ms, last_ms = merged_series.first_ms[known], merged_series.last_ms[known]
    lives = series.context.broker_lives_ms.get(series.place_of(broker), ())
    found = []
    for number, (begin, end) in enumerate(
        lives or tuple(zip(first_ms.tolist(), last_ms.tolist(), strict=True))
    ):
        inside = (last_ms >= begin) & (first_ms <= end)
        if inside.any():
            first = max(begin, int(first_ms[inside][0]))
            if lives and number:
                first -= cap_ms  # its counters began at 0 with the process
            found.append((first, min(end, int(last_ms[inside][-1])) + cap_ms))
    return found


def _overlap(timeline: PartitionTimeline, where: Flags, intervals: list[tuple[int, int]]) -> int:
    """Return how much of these segments lies in any of the intervals, which are sorted."""
    starts, ends = timeline.borders_ms[:-1][where], timeline.borders_ms[1:][where]
    total, reached = 0, int(timeline.borders_ms[0])
    for begin, end in intervals:
        from_ms = max(begin, reached)
        total += int(np.maximum(0, np.minimum(ends, end) - np.maximum(starts, from_ms)).sum())
        reached = max(reached, end)
    return total
