"""What judging one partition needs beside its own series; small, and sent to every task."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark_audit.facts.steps import CAP_INTERVALS, steps_of
from tidemark_audit.facts.tracks import Track, fold_scrapes
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
    broker_since_ms: Mapping[tuple[str, str], int]
    operator_since_ms: Mapping[str, int]  # by cluster; empty where no operator was scraped


def context_of(
    tracks: list[Track], *, window_start_ms: int, window_end_ms: int, intervals: Intervals
) -> Context:
    """`tracks`: those without a topic."""
    planned: dict[tuple[str, str], tuple[tuple[int, int], ...]] = {}
    broker_since: dict[tuple[str, str], int] = {}
    operator_since: dict[str, int] = {}
    operator_cap = intervals.cap_ms(Exporter.OPERATOR)
    for track in fold_scrapes(tracks, operator_cap):
        if track.is_empty:
            continue
        key, first = track.key, int(track.first_ms[0])
        broker = (key.cluster, key.broker)
        if key.family == "broker_planned_restart":
            planned[broker] = tuple(steps_of(track, operator_cap).stretches_of(1.0))
        elif key.family == "broker_epoch":
            broker_since[broker] = min(first, broker_since.get(broker, first))
        if key.pool and key.family != "broker_epoch":
            operator_since[key.cluster] = min(first, operator_since.get(key.cluster, first))
    return Context(window_start_ms, window_end_ms, intervals, planned, broker_since, operator_since)
