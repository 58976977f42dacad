"""Plot how near partitions came to rejecting writes: the fewest in sync over time.

There is a plot for each min.insync.replicas: one line for all topics would show rejected writes
where there were none.
"""

from collections.abc import Sequence

from tidemark_audit.report.formatting import span
from tidemark_audit.report.markup import Markup, element
from tidemark_audit.report.partition_states import State, merged, state_of, steps
from tidemark_audit.report.plots import HEIGHT, NARROWEST, across, plot
from tidemark_audit.report.timescale import WIDTH, TimeScale
from tidemark_audit.results import AuditResult, Interval, IntervalKind

MOST_NAMES = 3
UNKNOWN = -1


def in_sync_minima(result: AuditResult, scale: TimeScale) -> list[Markup]:
    """Return a plot for each min.insync.replicas that has intervals."""
    reported = [
        each
        for each in result.intervals
        if each.in_sync_replicas >= 0 or each.kind is IntervalKind.OFFLINE
        if state_of(each) not in (None, State.UNOBSERVED)
    ]
    minimum_of = _minimum_of_topics(reported)
    by_minimum: dict[int, list[Interval]] = {}
    for each in reported:
        by_minimum.setdefault(minimum_of[each.partition.topic], []).append(each)
    if not reported:
        return [_minimum([], [], UNKNOWN, scale)]
    found: list[Markup] = []
    for minimum, intervals in sorted(by_minimum.items(), reverse=True):
        if len(by_minimum) > 1:
            found.append(element("h3", _title(minimum, intervals), class_="group"))
        topics = {each.partition.topic for each in intervals}
        planned = [e for e in result.intervals if e.planned and e.partition.topic in topics]
        found.append(_minimum(intervals, planned, minimum, scale))
    return found


def _minimum_of_topics(reported: Sequence[Interval]) -> dict[str, int]:
    """Return each topic's greatest min.insync.replicas that was seen.

    Without a leader nobody exports it.
    """
    found: dict[str, int] = {}
    for each in reported:
        topic = each.partition.topic
        found[topic] = max(found.get(topic, UNKNOWN), each.min_in_sync_replicas)
    return found


def _title(minimum: int, intervals: Sequence[Interval]) -> str:
    topics = sorted({each.partition.topic for each in intervals})
    names = ", ".join(topics[:MOST_NAMES])
    if len(topics) > MOST_NAMES:
        names += f" and {len(topics) - MOST_NAMES} more"
    known = "unknown" if minimum == UNKNOWN else str(minimum)
    return f"min.insync.replicas {known}: {names}"


def _minimum(
    reported: Sequence[Interval], planned: Sequence[Interval], least: int, scale: TimeScale
) -> Markup:
    replicas = max((each.replicas for each in reported), default=3)
    top = float(max(replicas, least, 1))

    def y(count: float) -> float:
        return round(8 + (HEIGHT - 16) * (1 - count / top), 2)

    low = steps((each, _in_sync(each)) for each in reported)
    path, at = [f"M0 {y(top)}"], scale.start_ms
    for step in low:
        if step.start_ms > at:
            path.append(f"V{y(top)} H{scale.x(step.start_ms)}")
        path.append(f"V{y(step.lowest)} H{scale.x(step.end_ms)}")
        at = step.end_ms
    if at < scale.end_ms:
        path.append(f"V{y(top)} H{WIDTH:g}")
    body = [
        *(_shade(start, end, scale) for start, end in merged(planned)),
        *(across(y(count), "grid") for count in range(int(top) + 1)),
        *((across(y(least), "limit"),) if least != UNKNOWN else ()),
        element("path", d=" ".join(path), class_="line"),
    ]
    return plot(
        body,
        height=HEIGHT,
        labels=[(y(n), str(n)) for n in range(int(top) + 1)],
        scale=scale,
        title="Fewest in-sync replicas of any partition",
    )


def _in_sync(interval: Interval) -> int:
    return 0 if interval.kind is IntervalKind.OFFLINE else interval.in_sync_replicas


def _shade(start_ms: int, end_ms: int, scale: TimeScale) -> Markup:
    left = scale.x(start_ms)
    width = max(NARROWEST, scale.x(end_ms) - left)
    reported = element("title", f"planned, {span(start_ms, end_ms)}")
    return element("rect", reported, x=left, y=0, width=width, height=HEIGHT, class_="shade")
