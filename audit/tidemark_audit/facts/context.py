"""What judging one partition needs beside its own series; small, and sent to every task."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_audit.facts.steps import CAP_INTERVALS, steps_of
from tidemark_audit.facts.tracks import Track, fold_scrapes
from tidemark_audit.facts.what_if import WhatIf
from tidemark_audit.families import Exporter


@dataclass(frozen=True, slots=True)
class Intervals:
    """Time between two scrapes of a target, in ms, by what is scraped."""

    broker_ms: int
    operator_ms: int

    def cap_ms(self, exporter: Exporter) -> int:
        """How long a sample stands when none follows."""
        interval = self.broker_ms if exporter is Exporter.BROKER else self.operator_ms
        return round(interval * CAP_INTERVALS)


@dataclass(frozen=True, slots=True)
class Context:
    window_start_ms: int
    window_end_ms: int
    intervals: Intervals
    # Of each (cluster, broker): stretches with the operator's word that it was being restarted.
    planned: Mapping[tuple[str, str], tuple[tuple[int, int], ...]]
    # When each was seen first and last; operators by cluster, where any was scraped.
    broker_seen_ms: Mapping[tuple[str, str], tuple[int, int]]
    operator_seen_ms: Mapping[str, tuple[int, int]]
    what_if: WhatIf | None = None

    def broker_since_ms(self, cluster: str, broker: str) -> int | None:
        seen = self.broker_seen_ms.get((cluster, broker))
        return None if seen is None else seen[0]

    def operator_since_ms(self, cluster: str) -> int | None:
        seen = self.operator_seen_ms.get(cluster)
        return None if seen is None else seen[0]


def context_of(
    tracks: list[Track], *, window_start_ms: int, window_end_ms: int, intervals: Intervals
) -> Context:
    """`tracks`: those without a topic."""
    planned: dict[tuple[str, str], tuple[tuple[int, int], ...]] = {}
    brokers: dict[tuple[str, str], tuple[int, int]] = {}
    operators: dict[str, tuple[int, int]] = {}
    operator_cap = intervals.cap_ms(Exporter.OPERATOR)
    for track in fold_scrapes(tracks, operator_cap):
        if track.is_empty:
            continue
        key, seen = track.key, (int(track.first_ms[0]), int(track.last_ms[-1]))
        broker = (key.cluster, key.broker)
        if key.family == "broker_planned_restart":
            planned[broker] = tuple(steps_of(track, operator_cap).stretches_of(1.0))
        elif key.family == "broker_epoch":
            brokers[broker] = _both(seen, brokers.get(broker, seen))
        if key.pool and key.family != "broker_epoch":
            operators[key.cluster] = _both(seen, operators.get(key.cluster, seen))
    return Context(window_start_ms, window_end_ms, intervals, planned, brokers, operators)


def _both(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return min(one[0], other[0]), max(one[1], other[1])
