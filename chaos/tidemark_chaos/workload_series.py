"""Hold when records were acknowledged and read, by partition: what a report draws and measures."""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field

import msgspec

from tidemark_chaos.verification import percentile
from tidemark_chaos.workload_log import ACKNOWLEDGED, Event, Produced, Read, Stalled, Started

UNPROMISED = "unpromised"  # records of acks 0 and 1 in a mix, whatever their outcome


def _doubles() -> "array[float]":
    return array("d")


@dataclass(slots=True)
class PartitionSeries:
    """Times are Unix milliseconds and rise."""

    acknowledged_ms: "array[float]" = field(default_factory=_doubles)
    latency_ms: "array[float]" = field(default_factory=_doubles)  # of the same records
    read_ms: "array[float]" = field(default_factory=_doubles)
    read_offset: int = -1  # of the last record that any consumer saw


@dataclass(frozen=True, slots=True)
class Gap:
    begin_ms: float
    end_ms: float

    @property
    def length_ms(self) -> float:
        return self.end_ms - self.begin_ms


@dataclass(slots=True)
class WorkloadSeries:
    partitions: dict[int, PartitionSeries] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)
    stalls: list[Stalled] = field(default_factory=list)

    def on_event(self, event: Event) -> None:
        match event:
            case Started():
                for partition in range(event.partitions):
                    self.partitions.setdefault(partition, PartitionSeries())
            case Produced():
                self.outcomes[event.outcome if event.is_promised else UNPROMISED] += 1
                if event.outcome == ACKNOWLEDGED:
                    series = self._of(event.partition)
                    last = series.acknowledged_ms[-1] if series.acknowledged_ms else 0.0
                    series.acknowledged_ms.append(max(last, event.t_ms))
                    series.latency_ms.append(event.latency_ms)
            case Read():
                series = self._of(event.partition)
                end = event.offset + len(event.sequences) - 1
                if end > series.read_offset:  # the first consumer that saw it
                    series.read_offset = end
                    series.read_ms.append(event.t_ms)
            case Stalled():
                self.stalls.append(event)
            case _:
                pass

    def _of(self, partition: int) -> PartitionSeries:
        return self.partitions.setdefault(partition, PartitionSeries())

    def gaps_ms(self, now_ms: float) -> dict[int, float]:
        """Return for each partition how long ago it last acknowledged a record."""
        return {
            partition: now_ms - series.acknowledged_ms[-1]
            for partition, series in self.partitions.items()
            if series.acknowledged_ms
        }

    def acknowledged_between(self, begin_ms: float, end_ms: float) -> int:
        return sum(
            bisect_left(series.acknowledged_ms, end_ms)
            - bisect_left(series.acknowledged_ms, begin_ms)
            for series in self.partitions.values()
        )

    def latencies(self, begin_ms: float, end_ms: float) -> list[float]:
        """Return, in order, the latencies of what was acknowledged in that time."""
        found: list[float] = []
        for series in self.partitions.values():
            first = bisect_left(series.acknowledged_ms, begin_ms)
            last = bisect_left(series.acknowledged_ms, end_ms)
            found += series.latency_ms[first:last]
        return sorted(found)

    def stall_ms(self, begin_ms: float, end_ms: float) -> float:
        """Return the longest time in that window for which the workload had no processor."""
        return max(
            (
                stall.late_ms
                for stall in self.stalls
                if stall.t_ms > begin_ms and stall.t_ms - stall.late_ms < end_ms
            ),
            default=0.0,
        )


def longest_gap(times_ms: "array[float]", begin_ms: float, end_ms: float) -> Gap:
    """Return the longest time without an event that overlaps the window.

    It may begin before the window; without an event after it, it ends with the window.
    """
    first = max(0, bisect_right(times_ms, begin_ms) - 1)
    longest = Gap(begin_ms, begin_ms)
    before = min(begin_ms, times_ms[first]) if times_ms else begin_ms
    for place in range(first, len(times_ms)):
        at = times_ms[place]
        if at - before > longest.length_ms and at > begin_ms:
            longest = Gap(before, at)
        before = at
        if at >= end_ms:
            return longest
    if end_ms - before > longest.length_ms:
        longest = Gap(before, end_ms)
    return longest


def first_after_gap(
    times_ms: "array[float]", begin_ms: float, end_ms: float, least_ms: float
) -> float:
    """Return the end of the first gap of `least_ms` in the window; without one the first event.

    What was under way may still be acknowledged after the begin, so the first event is not it.
    """
    first = bisect_right(times_ms, begin_ms)
    before = begin_ms
    for place in range(first, len(times_ms)):
        at = times_ms[place]
        if at - before >= least_ms:
            return at
        if at >= end_ms:
            break
        before = at
    return times_ms[first] if first < len(times_ms) else end_ms


class Latency(msgspec.Struct, frozen=True, rename="camel"):
    """Nearest-rank percentiles in ms; None without an acknowledgement."""

    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


def latency_of(ordered: list[float]) -> Latency:
    if not ordered:
        return Latency(None, None, None)
    return Latency(
        round(percentile(ordered, 50), 1),
        round(percentile(ordered, 99), 1),
        round(ordered[-1], 1),
    )
