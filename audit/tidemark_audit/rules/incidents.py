"""Join what one broker's failure did to all its partitions into one incident."""

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark_audit.results import Interval, IntervalKind, TopicPartition
from tidemark_audit.rules.evaluation import AuditAnalysis, Subject

BAD = (IntervalKind.UNDER_REPLICATED, IntervalKind.UNDER_MIN_ISR, IntervalKind.OFFLINE)


@dataclass(frozen=True, slots=True)
class Incident:
    where: str  # cluster, and pool if there are several; mostly empty
    brokers: tuple[str, ...]
    intervals: tuple[Interval, ...]
    planned: bool

    @property
    def start_ms(self) -> int:
        """Return the start, before the window if it was under way then: earlier windows agree."""
        return min(interval.began_ms for interval in self.intervals)

    @property
    def end_ms(self) -> int:
        return max(interval.end_ms for interval in self.intervals)

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(dict.fromkeys(interval.partition for interval in self.intervals))

    @property
    def subject(self) -> str:
        if self.brokers:
            names = f"broker{'s' if len(self.brokers) > 1 else ''} {', '.join(self.brokers)}"
        else:
            names = ", ".join(str(partition) for partition in self.partitions[:3])
        return f"{self.where}: {names}" if self.where else names

    def about(self) -> Subject:
        return Subject(
            self.subject, self.start_ms, self.end_ms, self.partitions, planned=self.planned
        )

    def lost_ms(self, kinds: Iterable[IntervalKind]) -> int:
        wanted = set(kinds)
        return sum(each.duration_ms for each in self.intervals if each.kind in wanted)


def still(intervals: Iterable[Interval], analysis: AuditAnalysis) -> str:
    """Return the end of a sentence about intervals that are open."""
    is_open = any(each.end_ms >= analysis.window_end_ms for each in intervals)
    return "; ongoing at the end of the window" if is_open else ""


def incidents(analysis: AuditAnalysis, kinds: Iterable[IntervalKind] = BAD) -> list[Incident]:
    """Return the incidents in order of time.

    Two intervals are of one incident if they share a broker and touch, give or take some scrapes;
    without a known broker, if they are of one partition.
    """
    wanted, places = set(kinds), analysis.places()
    lanes: dict[tuple[str, bool, str], list[tuple[Interval, int]]] = {}
    found: list[tuple[str, Interval]] = [
        (places[partition.cluster, partition.pool], interval)
        for partition in analysis.partitions
        for interval in partition.intervals
        if interval.kind in wanted
    ]
    group = list(range(len(found)))

    def root(number: int) -> int:
        while group[number] != number:
            group[number] = group[group[number]]
            number = group[number]
        return number

    for number, (where, interval) in enumerate(found):
        for name in interval.brokers or (f"partition {interval.partition}",):
            lanes.setdefault((where, interval.planned, name), []).append((interval, number))
    for lane in lanes.values():
        lane.sort(key=lambda each: (each[0].start_ms, each[1]))
        reach, number = lane[0][0].end_ms, lane[0][1]
        for interval, other in lane[1:]:
            if interval.start_ms <= reach + analysis.slack_ms:
                group[root(other)] = root(number)
                reach = max(reach, interval.end_ms)
            else:
                reach = interval.end_ms
            number = other
    members: dict[int, list[int]] = {}
    for number in range(len(found)):
        members.setdefault(root(number), []).append(number)
    made = [_incident([found[number] for number in numbers]) for numbers in members.values()]
    return sorted(made, key=lambda incident: (incident.start_ms, incident.subject))


def _incident(members: list[tuple[str, Interval]]) -> Incident:
    intervals = tuple(
        sorted(
            (interval for _, interval in members),
            key=lambda each: (each.start_ms, each.partition.topic, each.partition.partition),
        )
    )
    brokers = sorted({name for interval in intervals for name in interval.brokers})
    return Incident(members[0][0], tuple(brokers), intervals, intervals[0].planned)
