"""Build one partition's timeline: who leads, what the leader reports, and the state of it.

The leader's view counts: of the brokers that claim to lead, the one in the highest epoch. Where
none is seen, the operator's view is taken for the worse (offline, too few in sync) and never for
the better: a partition is healthy only if its leader says so.

A timeline begins with what was read before the window: a state at its start has its beginning
there, which decides whether it was planned and how long it lasted.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tidemark_audit.aggregation.samples import Flags, Floats, Longs
from tidemark_audit.analysis.context import Context
from tidemark_audit.analysis.series import MergedSeries
from tidemark_audit.analysis.step_function import StepFunction, steps_of
from tidemark_audit.analysis.what_if import Counts, as_if
from tidemark_audit.metrics.families import FAMILIES, PREFIX, SeriesKey

NOBODY = -1


class State(IntEnum):
    HEALTHY = 0
    DEGRADED = 1
    UNDER_MIN_ISR = 2
    OFFLINE = 3
    UNOBSERVED = 4


BAD_STATES = (State.DEGRADED, State.UNDER_MIN_ISR, State.OFFLINE)


@dataclass(frozen=True, slots=True)
class Series:
    """Hold the merged series of one partition, by their keys."""

    cluster: str
    pool: str
    topic: str
    topic_id: str
    partition: int
    merged_series_list: Mapping[SeriesKey, MergedSeries]
    context: Context

    def find(
        self, family: str, *, broker: str = "", follower: str = "", detail: str = ""
    ) -> MergedSeries | None:
        for key, merged_series in self.merged_series_list.items():
            if (key.family, key.broker, key.follower, key.detail) == (
                family, broker, follower, detail
            ):  # fmt: skip
                return merged_series
        return None

    def all_of(self, family: str) -> list[MergedSeries]:
        return [
            merged_series
            for key, merged_series in self.merged_series_list.items()
            if key.family == family
        ]

    def brokers(self) -> tuple[str, ...]:
        named = {key.broker for key in self.merged_series_list if key.broker}
        return tuple(sorted(named, key=lambda name: (len(name), name)))

    @property
    def first_ms(self) -> int:
        """Return the time of the first sample of all series."""
        firsts = (
            int(merged_series.first_ms[0])
            for merged_series in self.merged_series_list.values()
            if not merged_series.is_empty
        )
        return min(firsts, default=self.context.window_start_ms)

    def place_of(self, broker: str) -> tuple[str, str, str]:
        return self.cluster, self.pool, broker

    def cap_ms(self, family: str) -> int:
        return self.context.intervals.cap_ms(FAMILIES[PREFIX + family].exporter)

    def steps(self, family: str, *, broker: str = "", follower: str = "") -> StepFunction:
        merged_series = self.find(family, broker=broker, follower=follower)
        return steps_of(merged_series, self.cap_ms(family))


@dataclass(frozen=True, slots=True)
class PartitionTimeline:
    """Segment i is [borders[i], borders[i + 1]); all arrays have one entry per segment."""

    borders_ms: Longs
    brokers: tuple[str, ...]
    leader: NDArray[np.int64]  # index into `brokers`, or NOBODY
    leader_epoch: Floats
    in_sync: Floats
    replicas: Floats
    min_in_sync: Floats
    reassigning: Flags
    state: NDArray[np.int64]
    missing: Sequence[frozenset[str]]  # followers that the leader says are out of sync
    last_seen_ms: Floats  # last sample of the leader's that the segment rests on

    @property
    def starts_ms(self) -> Longs:
        return self.borders_ms[:-1]

    @property
    def lengths_ms(self) -> Longs:
        return np.diff(self.borders_ms)

    def since(self, start_ms: int) -> "PartitionTimeline":
        """Return the segments from a time on, which must be one of the borders."""
        first = int(np.searchsorted(self.borders_ms, start_ms))
        return PartitionTimeline(
            self.borders_ms[first:], self.brokers, self.leader[first:], self.leader_epoch[first:],
            self.in_sync[first:], self.replicas[first:], self.min_in_sync[first:],
            self.reassigning[first:], self.state[first:], self.missing[first:],
            self.last_seen_ms[first:],
        )  # fmt: skip


def timeline_of(series: Series) -> PartitionTimeline:
    brokers = series.brokers()
    claims = [_Claim.of(series, broker) for broker in brokers]
    operator = _Operator.of(series)
    followers = {
        (key.broker, key.follower): steps_of(merged_series, series.cap_ms(key.family))
        for key, merged_series in series.merged_series_list.items()
        if key.family == "follower_in_sync"
    }
    borders = _borders(series, [*claims, operator], followers.values())
    times = borders[:-1]
    leader, epoch = _leaders(claims, times)
    chosen = _Chosen.of(claims, leader, times)
    seen = ~np.isnan(chosen.in_sync)
    replicas = _filled(np.where(seen, chosen.replicas, np.nan))
    min_in_sync = _filled(np.where(seen, chosen.min_in_sync, np.nan))
    in_sync = np.where(seen, chosen.in_sync, operator.in_sync.at(times))
    if series.context.what_if is not None:
        counts = Counts(in_sync, replicas, min_in_sync)
        counts = as_if(series.context.what_if, counts, brokers, leader, followers, times)
        in_sync, replicas, min_in_sync = counts.in_sync, counts.replicas, counts.min_in_sync
    state = _states(seen, in_sync, replicas, min_in_sync)
    # What a leader said stands for up to two and a half intervals; that the operator knows of no
    # leader since is newer.
    leaderless = operator.leader.at(times) == NOBODY
    silent = ~seen | (times > chosen.last_sample_ms)
    state[leaderless & silent] = State.OFFLINE
    interval_ms = series.context.intervals.broker_ms
    nobodys = ~seen & ~leaderless & _none_leads(claims, times, replicas)
    state[_said_again(brokers, claims, operator, times, nobodys, interval_ms)] = State.OFFLINE
    state[~seen & (state == State.HEALTHY)] = State.UNOBSERVED
    leader = np.where(state == State.OFFLINE, NOBODY, leader)
    return PartitionTimeline(
        borders, brokers, leader, epoch, in_sync, replicas, min_in_sync,
        chosen.reassigning == 1.0, state,
        _missing(brokers, leader, state, followers, times), chosen.last_sample_ms,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Claim:
    """Hold what one broker reports of the partition."""

    in_sync: StepFunction
    replicas: StepFunction
    min_in_sync: StepFunction
    reassigning: StepFunction
    is_leader: StepFunction
    epoch: StepFunction

    @classmethod
    def of(cls, series: Series, broker: str) -> "_Claim":
        in_sync = series.steps("partition_in_sync_replicas", broker=broker)
        min_in_sync = series.steps("partition_min_in_sync_replicas", broker=broker)
        if not len(min_in_sync.value):
            min_in_sync = _min_in_sync_of_kafka(series, broker, in_sync)
        return cls(
            in_sync,
            series.steps("partition_replicas", broker=broker),
            min_in_sync,
            series.steps("partition_reassigning", broker=broker),
            series.steps("replica_is_leader", broker=broker),
            series.steps("replica_leader_epoch", broker=broker),
        )

    def functions(self) -> tuple[StepFunction, ...]:
        return (
            self.in_sync, self.replicas, self.min_in_sync, self.reassigning, self.is_leader,
            self.epoch,
        )  # fmt: skip


def _min_in_sync_of_kafka(series: Series, broker: str, in_sync: StepFunction) -> StepFunction:
    """Kafka tells on which side of min.insync.replicas a partition is: the nearest number there."""
    under = series.steps("partition_under_min_isr", broker=broker)
    at_it = series.steps("partition_at_min_isr", broker=broker)
    borders = np.unique(np.concatenate([each.borders() for each in (in_sync, under, at_it)]))
    times = borders[:-1]
    side = np.where(under.at(times) == 1.0, 1.0, np.where(at_it.at(times) == 1.0, 0.0, -1.0))
    side[np.isnan(under.at(times)) | np.isnan(at_it.at(times))] = np.nan
    value = in_sync.at(times) + side
    known = ~np.isnan(value)
    return StepFunction(
        times[known],
        borders[1:][known],
        value[known],
        in_sync.last_sample_at(times)[known].astype(np.int64),
    )


@dataclass(frozen=True, slots=True)
class _Operator:
    leader: StepFunction
    in_sync: StepFunction

    @classmethod
    def of(cls, series: Series) -> "_Operator":
        return cls(
            series.steps("partition_leader_id"),
            series.steps("partition_durable_in_sync_replicas"),
        )

    def functions(self) -> tuple[StepFunction, ...]:
        return (self.leader, self.in_sync)


def _borders(
    series: Series, speakers: Sequence["_Claim | _Operator"], more: Iterable[StepFunction]
) -> Longs:
    functions = [function for speaker in speakers for function in speaker.functions()]
    functions += more
    context = series.context
    end = context.window_end_ms
    start = min(context.window_start_ms, series.first_ms)
    borders = [function.borders() for function in functions]
    # A leader's last real sample: from there on the operator's word may be newer.
    borders += [claim.in_sync.last_sample_ms + 1 for claim in speakers if isinstance(claim, _Claim)]
    fixed = np.array(
        [
            start, context.window_start_ms, end,
            *context.ends_of_excuses_ms(series.cluster, series.pool),
        ],
        dtype=np.int64,
    )  # fmt: skip
    inside = np.unique(np.concatenate([fixed, *borders]))
    return inside[(inside >= start) & (inside <= end)]


def _leaders(claims: Sequence[_Claim], times: Longs) -> tuple[NDArray[np.int64], Floats]:
    leader = np.full(len(times), NOBODY, dtype=np.int64)
    highest = np.full(len(times), -np.inf)
    is_fresh = np.zeros(len(times), dtype=np.bool_)
    for number, claim in enumerate(claims):
        leads = claim.is_leader.at(times)
        speaks = ~np.isnan(claim.in_sync.at(times)) & (np.isnan(leads) | (leads == 1.0))
        epoch = claim.epoch.at(times)
        epoch = np.where(np.isnan(epoch), -1.0, epoch)
        # Without epochs (Kafka's): who was scraped since, where the other's word only still stands.
        fresh = claim.in_sync.last_sample_at(times) >= times
        better = speaks & ((epoch > highest) | ((epoch == highest) & fresh & ~is_fresh))
        leader[better] = number
        highest[better] = epoch[better]
        is_fresh[better] = fresh[better]
    return leader, np.where(leader == NOBODY, np.nan, highest)


@dataclass(frozen=True, slots=True)
class _Chosen:
    in_sync: Floats
    replicas: Floats
    min_in_sync: Floats
    reassigning: Floats
    last_sample_ms: Floats

    @classmethod
    def of(cls, claims: Sequence[_Claim], leader: NDArray[np.int64], times: Longs) -> "_Chosen":
        columns = [np.full(len(times), np.nan) for _ in range(5)]
        for number, claim in enumerate(claims):
            mine = leader == number
            if not mine.any():
                continue
            said = (
                claim.in_sync.at(times), claim.replicas.at(times), claim.min_in_sync.at(times),
                claim.reassigning.at(times), claim.in_sync.last_sample_at(times),
            )  # fmt: skip
            for column, values in zip(columns, said, strict=True):
                column[mine] = values[mine]
        return cls(*columns)


def _filled(values: Floats) -> Floats:
    """Fill gaps with the last known value, or the first one before it: these are settings."""
    known = np.flatnonzero(~np.isnan(values))
    if len(known) == 0:
        return values
    place = np.searchsorted(known, np.arange(len(values)), side="right") - 1
    return np.asarray(values[known[np.maximum(place, 0)]])


def _states(
    seen: Flags, in_sync: Floats, replicas: Floats, min_in_sync: Floats
) -> NDArray[np.int64]:
    state = np.full(len(seen), int(State.UNOBSERVED), dtype=np.int64)
    known = ~np.isnan(in_sync) & ~np.isnan(replicas)
    state[known] = State.HEALTHY
    state[known & (in_sync < replicas)] = State.DEGRADED
    state[known & (in_sync < min_in_sync)] = State.UNDER_MIN_ISR
    return state


def _none_leads(claims: Sequence[_Claim], times: Longs, replicas: Floats) -> Flags:
    """Return where every replica is seen, and none reports that it leads."""
    followers = np.zeros(len(times), dtype=np.int64)
    for claim in claims:
        followers += claim.is_leader.at(times) == 0.0
    return np.asarray(~np.isnan(replicas) & (followers >= replicas))


def _said_again(
    brokers: Sequence[str],
    claims: Sequence[_Claim],
    operator: _Operator,
    times: Longs,
    nobodys: Flags,
    interval_ms: int,
) -> Flags:
    """Return the parts of `nobodys` that lasted for two scrapes of every broker.

    Brokers are scraped one after another: when leadership moves, the old leader may be scraped
    after it and the new one before, although no moment was without a leader. Where the operator
    names a leader, that broker must have reported twice that it does not lead.
    """
    found = np.zeros(len(times), dtype=np.bool_)
    if not nobodys.any():
        return found
    named = operator.leader.at(times)
    places = {int(name): place for place, name in enumerate(brokers) if name.isdecimal()}
    same = (nobodys[1:] == nobodys[:-1]) & (
        (named[1:] == named[:-1]) | (np.isnan(named[1:]) & np.isnan(named[:-1]))
    )
    edges = [0, *(np.flatnonzero(~same) + 1).tolist(), len(times)]
    for first, end in itertools.pairwise(edges):
        if not nobodys[first]:
            continue
        whole = times[first:end]
        requested = claims
        if not np.isnan(named[first]):
            place = places.get(int(named[first]))
            requested = [] if place is None else [claims[place]]
        said = [claim.is_leader for claim in requested if (claim.is_leader.at(whole) == 0.0).any()]
        lasts = [np.nanmax(each.last_sample_at(whole)) for each in said]
        is_short = end < len(times) and times[end] < whole[0] + interval_ms
        found[first:end] = bool(lasts) and not is_short and min(lasts) >= whole[0] + interval_ms
    return found


def _missing(
    brokers: tuple[str, ...],
    leader: NDArray[np.int64],
    state: NDArray[np.int64],
    followers: Mapping[tuple[str, str], StepFunction],
    times: Longs,
) -> list[frozenset[str]]:
    out: list[set[str]] = [set() for _ in times]
    for (broker, follower), function in followers.items():
        if broker not in brokers:
            continue
        says_so = (function.at(times) == 0.0) & (leader == brokers.index(broker))
        for segment in np.flatnonzero(says_so).tolist():
            out[segment].add(follower)
    led_by: list[int] = leader.tolist()
    last = NOBODY
    for segment, number in enumerate(led_by):
        if number != NOBODY:
            last = number
        elif last != NOBODY and state[segment] in BAD_STATES:
            out[segment].add(brokers[last])  # it led until then, and no leader was seen since
    return [frozenset(names) for names in out]
