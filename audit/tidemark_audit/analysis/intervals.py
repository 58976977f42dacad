"""Segments of a view into intervals with a cause, planned told from unplanned, and into sums."""

from dataclasses import dataclass, replace

import numpy as np

from tidemark_audit.aggregation.samples import Flags
from tidemark_audit.analysis.partition_timeline import PartitionTimeline, Series, State
from tidemark_audit.results import Interval, IntervalKind, SliRow, TopicPartition

KINDS = {
    State.DEGRADED: IntervalKind.UNDER_REPLICATED,
    State.UNDER_MIN_ISR: IntervalKind.UNDER_MIN_ISR,
    State.OFFLINE: IntervalKind.OFFLINE,
    State.UNOBSERVED: IntervalKind.UNOBSERVED,
}


def planned_segments(series: Series, timeline: PartitionTimeline) -> Flags:
    """Return the segments in which every missing replica is missing by request.

    A broker's absence is planned only from its beginning: the operator's announcement must be there
    when it falls out of sync, give or take two scrapes. A restart requested later does not make a
    crash planned.
    """
    bad = np.isin(timeline.state, (State.DEGRADED, State.UNDER_MIN_ISR, State.OFFLINE))
    planned = np.zeros(len(timeline.state), dtype=np.bool_)
    excused_until: dict[str, int] = {}
    in_sync_from = _in_sync_from(series)
    for segment in range(len(timeline.state)):
        start = int(timeline.starts_ms[segment])
        missing = timeline.missing[segment]
        excused_until = {
            name: excused_until[name]
            if name in excused_until
            else series.context.excused_until_ms(series.place_of(name), start)
            for name in missing
        }
        if not bad[segment]:
            continue
        absent = missing
        if timeline.reassigning[segment]:
            # Who is being added is out of sync too, and is nobody's loss.
            joining = {name for name in missing if in_sync_from.get(name, start + 1) > start}
            lacking = timeline.replicas[segment] - timeline.in_sync[segment]
            absent = missing - joining if lacking <= len(missing - joining) else missing
        planned[segment] = bool(timeline.reassigning[segment] and not missing) or (
            bool(absent) and all(start < excused_until[name] for name in absent)
        )
    return planned


def _in_sync_from(series: Series) -> dict[str, int]:
    """Return when each broker was first seen in sync, or leading."""
    found: dict[str, int] = {}
    for key, merged_series in series.merged_series_list.items():
        if key.family not in ("follower_in_sync", "replica_is_leader"):
            continue
        times = merged_series.first_ms[merged_series.first_value == 1.0]
        name = key.follower or key.broker
        if len(times):
            found[name] = min(int(times[0]), found.get(name, int(times[0])))
    return found


@dataclass(frozen=True, slots=True)
class _WindowPart:
    first: int  # segments [first, end)
    end: int


def intervals_of(series: Series, timeline: PartitionTimeline, planned: Flags) -> list[Interval]:
    """Return all intervals but healthy ones, cut to the window, by kind and time."""
    partition = TopicPartition(series.topic, series.partition, series.topic_id)
    window_start_ms = series.context.window_start_ms
    found = []
    for state, kind in KINDS.items():
        for flag in (False, True):
            for window_part in _window_parts((timeline.state == state) & (planned == flag)):
                found.append(_interval(partition, timeline, window_part, kind, planned=flag))
    known = timeline.state != State.UNOBSERVED
    alone = known & (timeline.in_sync == 1) & (timeline.replicas > 1)
    at_minimum = (
        known
        & (timeline.in_sync == timeline.min_in_sync)
        & (timeline.replicas > timeline.min_in_sync)
    )
    for kind, where in (
        (IntervalKind.ONE_FAILURE_FROM_LOSS, alone),
        (IntervalKind.ONE_FAILURE_FROM_STALL, at_minimum),
    ):
        for flag in (False, True):
            for window_part in _window_parts(where & (planned == flag)):
                found.append(_interval(partition, timeline, window_part, kind, planned=flag))
    return [_cut(each, window_start_ms) for each in found if each.end_ms > window_start_ms]


def _cut(interval: Interval, window_start_ms: int) -> Interval:
    earlier_ms = max(0, window_start_ms - interval.start_ms)
    return replace(interval, start_ms=interval.start_ms + earlier_ms, earlier_ms=earlier_ms)


def _window_parts(where: Flags) -> list[_WindowPart]:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], where.astype(np.int8), [0]))))
    return [_WindowPart(int(first), int(end)) for first, end in edges.reshape(-1, 2)]


def _interval(
    partition: TopicPartition,
    timeline: PartitionTimeline,
    window_part: _WindowPart,
    kind: IntervalKind,
    *,
    planned: bool,
) -> Interval:
    part = slice(window_part.first, window_part.end)
    brokers = tuple(sorted(frozenset().union(*timeline.missing[part])))
    moving = bool(timeline.reassigning[part].any())
    return Interval(
        partition,
        kind,
        int(timeline.borders_ms[window_part.first]),
        int(timeline.borders_ms[window_part.end]),
        planned=planned,
        cause=_cause(kind, brokers, planned=planned, moving=moving),
        brokers=brokers,
        in_sync_replicas=_least(timeline.in_sync[part]),
        replicas=_least(timeline.replicas[part]),
        min_in_sync_replicas=_least(timeline.min_in_sync[part]),
    )


def _cause(kind: IntervalKind, brokers: tuple[str, ...], *, planned: bool, moving: bool) -> str:
    if kind is IntervalKind.UNOBSERVED:
        return "no sample of its leader"
    names = f"broker{'s' if len(brokers) > 1 else ''} {', '.join(brokers)}"
    if planned:
        return f"planned restart of {names}" if brokers else "planned move"
    if brokers:
        return f"{names} out of sync" + (" during a move" if moving else "")
    return "a move" if moving else "no sample shows which broker is missing"


def _least(values: np.ndarray) -> int:
    known = values[~np.isnan(values)]
    return int(known.min()) if len(known) else -1


def sli_of(series: Series, timeline: PartitionTimeline, planned: Flags) -> SliRow:
    lengths = timeline.lengths_ms

    def spent(where: Flags) -> int:
        return int(lengths[where].sum())

    degraded = timeline.state == State.DEGRADED
    known = timeline.state != State.UNOBSERVED
    row = SliRow(
        topic=series.topic,
        partition=series.partition,
        topic_id=series.topic_id,
        partitions=1,
        healthy_ms=spent(timeline.state == State.HEALTHY),
        degraded_planned_ms=spent(degraded & planned),
        degraded_unplanned_ms=spent(degraded & ~planned),
        under_min_isr_ms=spent(timeline.state == State.UNDER_MIN_ISR),
        offline_ms=spent(timeline.state == State.OFFLINE),
        unobserved_ms=spent(~known),
        one_failure_from_loss_ms=spent(known & (timeline.in_sync == 1) & (timeline.replicas > 1)),
        one_failure_from_stall_ms=spent(
            known
            & (timeline.in_sync == timeline.min_in_sync)
            & (timeline.replicas > timeline.min_in_sync)
        ),
    )
    window = series.context.window_end_ms - series.context.window_start_ms
    assert row.total_ms == window, (row, window)  # every moment is in one bucket
    return row
