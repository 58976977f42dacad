"""Define partitions' states as the report shows them: names, colours, in-sync replicas."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from tidemark_audit.results import Interval, IntervalKind, SliRow


class State(Enum):
    """Worst last. The value: the class of its colour, and its name for people."""

    HEALTHY = ("healthy", "fully replicated")
    PLANNED = ("planned", "under-replicated, planned")
    DEGRADED = ("degraded", "under-replicated")
    UNDER_MIN_ISR = ("under", "below min.insync.replicas")
    OFFLINE = ("offline", "without a leader")
    UNOBSERVED = ("unobserved", "unobserved")

    @property
    def css(self) -> str:
        return self.value[0]

    @property
    def words(self) -> str:
        return self.value[1]

    @property
    def is_hatched(self) -> bool:
        return self in (State.PLANNED, State.UNOBSERVED)


_KINDS = {
    IntervalKind.UNDER_REPLICATED: State.DEGRADED,
    IntervalKind.UNDER_MIN_ISR: State.UNDER_MIN_ISR,
    IntervalKind.OFFLINE: State.OFFLINE,
    IntervalKind.UNOBSERVED: State.UNOBSERVED,
}


def state_of(interval: Interval) -> State | None:
    """Return an interval's state; None if its kind lies beside the states (distance from loss)."""
    state = _KINDS.get(interval.kind)
    return State.PLANNED if state is State.DEGRADED and interval.planned else state


def shares(row: SliRow) -> dict[State, float]:
    total = max(1, row.total_ms)
    spent = {
        State.HEALTHY: row.healthy_ms,
        State.PLANNED: row.degraded_planned_ms,
        State.DEGRADED: row.degraded_unplanned_ms,
        State.UNDER_MIN_ISR: row.under_min_isr_ms,
        State.OFFLINE: row.offline_ms,
        State.UNOBSERVED: row.unobserved_ms,
    }
    return {state: ms / total for state, ms in spent.items()}


def badness(row: SliRow) -> tuple[int, int, int, int, int]:
    """Return a sort key, worst first when reversed."""
    return (
        row.offline_ms,
        row.under_min_isr_ms,
        row.degraded_unplanned_ms,
        row.degraded_planned_ms,
        row.unobserved_ms,
    )


@dataclass(frozen=True, slots=True)
class Step:
    """Describe a time in which nothing changes."""

    start_ms: int
    end_ms: int
    count: int  # of intervals that cover it
    lowest: int  # of their values


def steps(intervals: Iterable[tuple[Interval, int]]) -> list[Step]:
    """Return where intervals overlap, each step with their values; none without an interval."""
    edges: dict[int, list[tuple[int, int]]] = {}
    for interval, value in intervals:
        if interval.end_ms > interval.start_ms:
            edges.setdefault(interval.start_ms, []).append((1, value))
            edges.setdefault(interval.end_ms, []).append((-1, value))
    found: list[Step] = []
    open_values: dict[int, int] = {}
    since, count = 0, 0
    for at_ms in sorted(edges):
        if count:
            lowest = min(value for value, number in open_values.items() if number)
            found.append(Step(since, at_ms, count, lowest))
        for change, value in edges[at_ms]:
            open_values[value] = open_values.get(value, 0) + change
            count += change
        since = at_ms
    return found


def merged(found: Sequence[Interval]) -> list[tuple[int, int]]:
    """Return the time that any of the intervals covers, in order, without overlaps."""
    covered: list[tuple[int, int]] = []
    for interval in sorted(found, key=lambda each: each.start_ms):
        if covered and interval.start_ms <= covered[-1][1]:
            covered[-1] = (covered[-1][0], max(covered[-1][1], interval.end_ms))
        else:
            covered.append((interval.start_ms, interval.end_ms))
    return covered
