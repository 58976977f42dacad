"""Hold what judging one partition needs beside its own series; small, and sent to every task."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tidemark_audit.analysis.series import MergedSeries, fold_scrapes
from tidemark_audit.analysis.step_function import CAP_INTERVALS, steps_of
from tidemark_audit.analysis.what_if import WhatIf
from tidemark_audit.metrics.families import Exporter


@dataclass(frozen=True, slots=True)
class Intervals:
    """Time between two scrapes of a target, in ms, by what is scraped."""

    broker_ms: int
    operator_ms: int

    def cap_ms(self, exporter: Exporter) -> int:
        """Return how long a sample is valid when none follows."""
        interval = self.broker_ms if exporter is Exporter.BROKER else self.operator_ms
        return round(interval * CAP_INTERVALS)


# A planned restart lasts no longer (docs/operations/metrics.md).
PLANNED_RESTART_LIMIT_MS = 600_000
LONGEST_SCRAPE_MS = 10_000  # Prometheus's default limit
DIRECTLY_INTERVALS = 1.5  # two samples further apart may have had another exporter between them


BrokerPlace = tuple[str, str, str]  # cluster, pool, broker: ids are unique within a pool


@dataclass(frozen=True, slots=True)
class PlannedRestart:
    """Describe a restart that the operator announced over [start, end).

    An absence that began then is planned until `until_ms`. The announcement came after `silent_ms`,
    when it was last seen to be absent. `until_ms` is the end, unless the announcing operator fell
    silent: a new controller does not know of restarts that another one began.
    """

    silent_ms: int
    start_ms: int
    end_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Context:
    window_start_ms: int
    window_end_ms: int
    intervals: Intervals
    # In order of time.
    planned: Mapping[BrokerPlace, tuple[PlannedRestart, ...]]
    # When each was seen first and last; operators by cluster, where any was scraped.
    broker_seen_ms: Mapping[BrokerPlace, tuple[int, int]]
    operator_seen_ms: Mapping[str, tuple[int, int]]
    cluster_since_ms: Mapping[str, int]  # the first sight of anything of it
    # Of each broker, when each of its processes was seen first and last.
    broker_lives_ms: Mapping[BrokerPlace, tuple[tuple[int, int], ...]]
    what_if: WhatIf | None = None

    @property
    def excuse_slack_ms(self) -> int:
        """Return how much longer than its announcement a planned absence may be seen."""
        return 2 * self.intervals.cap_ms(Exporter.BROKER)

    @property
    def scrape_ms(self) -> int:
        """Return how much younger than its sample's time a value may be.

        A sample's time is when the scrape began.
        """
        return min(LONGEST_SCRAPE_MS, self.intervals.broker_ms, self.intervals.operator_ms)

    def excused_until_ms(self, broker: BrokerPlace, since_ms: int) -> int:
        """Return until when an absence that began then is planned: its beginning, if it is not.

        Only an absence's beginning makes it planned: a restart asked for later excuses no crash. It
        is known to be later where the announcement was seen to be absent.
        """
        found = [
            restart.until_ms + self.excuse_slack_ms
            for restart in self.planned.get(broker, ())
            if restart.silent_ms - self.scrape_ms
            <= since_ms
            < restart.end_ms + self.intervals.cap_ms(Exporter.BROKER)
        ]
        return max(found, default=since_ms)

    def ends_of_excuses_ms(self, cluster: str, pool: str) -> list[int]:
        return [
            restart.until_ms + self.excuse_slack_ms
            for (*where, _), restarts in self.planned.items()
            if where == [cluster, pool]
            for restart in restarts
        ]

    def pool_of(self, cluster: str, named: str) -> str:
        """Return the pool of a partition, as the operator names it, else the cluster's only one."""
        pools = {pool for where, pool, _ in self.broker_seen_ms if where == cluster}
        return named or (pools.pop() if len(pools) == 1 else "")

    def broker_since_ms(self, broker: BrokerPlace) -> int | None:
        seen = self.broker_seen_ms.get(broker)
        return None if seen is None else seen[0]

    def operator_since_ms(self, cluster: str) -> int | None:
        seen = self.operator_seen_ms.get(cluster)
        return None if seen is None else seen[0]


def context_of(
    merged_series_list: list[MergedSeries],
    *,
    window_start_ms: int,
    window_end_ms: int,
    intervals: Intervals,
) -> Context:
    """`merged_series_list`: those without a topic."""
    planned: dict[BrokerPlace, tuple[PlannedRestart, ...]] = {}
    brokers: dict[BrokerPlace, tuple[int, int]] = {}
    operators: dict[str, tuple[int, int]] = {}
    clusters: dict[str, int] = {}
    counted: dict[BrokerPlace, list[PlannedRestart]] = {}
    lives: dict[BrokerPlace, tuple[tuple[int, int], ...]] = {}
    operator_cap = intervals.cap_ms(Exporter.OPERATOR)
    for merged_series in fold_scrapes(merged_series_list, operator_cap):
        if merged_series.is_empty:
            continue
        key, seen = (
            merged_series.key,
            (int(merged_series.first_ms[0]), int(merged_series.last_ms[-1])),
        )
        clusters[key.cluster] = min(seen[0], clusters.get(key.cluster, seen[0]))
        broker = (key.cluster, key.pool, key.broker)
        if key.family == "broker_planned_restart":
            scrapes = [each for each in merged_series_list if each.key._replace(scrape="") == key]
            planned[broker] = _planned_restarts(merged_series, scrapes, intervals)
        elif key.family == "broker_planned_restarts_total":
            scrapes = [each for each in merged_series_list if each.key._replace(scrape="") == key]
            counted[broker] = [each for look in scrapes for each in _counted(look, operator_cap)]
        elif key.family == "broker_epoch":
            brokers[broker] = _both(seen, brokers.get(broker, seen))
            lives[broker] = _lives(merged_series)
        if key.pool and key.family != "broker_epoch":
            operators[key.cluster] = _both(seen, operators.get(key.cluster, seen))
    for broker, restarts in counted.items():
        known = (*planned.get(broker, ()), *restarts)
        planned[broker] = tuple(sorted(known, key=lambda restart: restart.start_ms))
    return Context(
        window_start_ms, window_end_ms, intervals, planned, brokers, operators, clusters, lives
    )


def _lives(epochs: MergedSeries) -> tuple[tuple[int, int], ...]:
    """Return when each process of a broker was seen first and last."""
    return tuple((first, last) for first, last, _ in lives_of(epochs))


def lives_of(epochs: MergedSeries) -> list[tuple[int, int, float]]:
    """Return first sight, last sight and epoch of each process, by the broker's epoch.

    The epoch is another one with every start. It is negative until the process has registered,
    which is a part of the same life.
    """
    found: list[tuple[int, int, float]] = []
    starting: int | None = None
    for first, last, epoch in zip(
        epochs.first_ms.tolist(), epochs.last_ms.tolist(), epochs.first_value.tolist(), strict=True
    ):
        if np.isnan(epoch):
            continue
        if epoch < 0:
            starting = first if starting is None else starting
        elif found and found[-1][2] == epoch:
            found[-1] = (found[-1][0], last, epoch)
        else:
            found.append((first if starting is None else starting, last, epoch))
            starting = None
    return found


def _planned_restarts(
    merged_series: MergedSeries, scrapes: Sequence[MergedSeries], intervals: Intervals
) -> tuple[PlannedRestart, ...]:
    """`merged_series` is what the looks are together; each of them may be of another controller."""
    directly_ms = round(intervals.operator_ms * DIRECTLY_INTERVALS)
    ends = sorted(end for look in scrapes for end in _said_ends(look, directly_ms))
    found = []
    cap_ms = intervals.cap_ms(Exporter.OPERATOR)
    unsaid = merged_series.last_ms[
        (merged_series.first_value != 1.0) & ~np.isnan(merged_series.first_value)
    ]
    for start, end in steps_of(merged_series, cap_ms).intervals_of(1.0):
        before = unsaid[unsaid < start]
        silent = max(start - cap_ms, int(before[-1]) if len(before) else start - cap_ms)
        limit = start + PLANNED_RESTART_LIMIT_MS
        said = next((each for each in ends if start < each <= limit), limit)
        found.append(PlannedRestart(silent, start, end, max(end, said)))
    return tuple(found)


def _counted(look: MergedSeries, cap_ms: int) -> Iterator[PlannedRestart]:
    """Yield a restart for each rise of an exporter's count.

    The gauge may miss a restart that fits between two scrapes. It began between the two samples,
    and what the gauge does not show was over at the second.
    """
    steps = zip(
        look.last_ms[:-1].tolist(), look.last_value[:-1].tolist(),
        look.first_ms[1:].tolist(), look.first_value[1:].tolist(),
        strict=True,
    )  # fmt: skip
    for before_ms, before, at_ms, value in steps:
        if value > before:  # false with a NaN, which ends a series
            yield PlannedRestart(max(before_ms, at_ms - cap_ms), at_ms, at_ms, at_ms)


def _said_ends(look: MergedSeries, directly_ms: int) -> list[int]:
    """Return when an exporter's 1 was followed by another value of the same exporter."""
    ends = look.first_value[:-1] == 1.0
    ends &= ~np.isnan(look.first_value[1:])
    ends &= look.first_ms[1:] - look.last_ms[:-1] <= directly_ms
    return [int(at_ms) for at_ms in look.first_ms[1:][ends]]


def _both(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return min(one[0], other[0]), max(one[1], other[1])
