"""Write what Prometheus would have stored of a scenario: every family of every broker.

Each broker is scraped at its own phase of the interval. A series that ends is followed by a stale
marker. Traps that only a monitor sees (resets, pairs, renamed pods) are added here.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tidemark_audit.selftest.expected_verdict import INTERVAL_MS
from tidemark_audit.selftest.scenario import (
    BROKERS,
    LENGTH_MS,
    MIN_ISR,
    PARTITIONS,
    SLOTS,
    ExpectedFacts,
    Loss,
    Scenario,
    replicas,
    reported,
)
from tidemark_audit.sources.source import LOOK_BACK_MS

BASE_MS = 1_700_000_000_000
LATE_MS = 90_000  # well within what coverage may lack
LABELS = (
    "cluster", "pool", "topic", "topic_id", "partition", "broker", "follower", "kind", "reason",
    "cause", "instance", "prometheus_replica",
)  # fmt: skip
STALE = np.array([0x7FF0000000000002], dtype=np.uint64).view(np.float64)[0]
Array = NDArray[np.float64]
Times = NDArray[np.int64]


@dataclass(slots=True)
class Table:
    """Series to columns, and columns to one Parquet file."""

    labels: list[dict[str, str]] = field(default_factory=list)
    times: list[Times] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)

    def add(self, name: str, times: Times, values: Array, **labels: object) -> None:
        """Add samples, with a stale marker where a scrape failed, as Prometheus writes it."""
        if not len(times):
            return
        gap = np.flatnonzero(np.diff(times) > INTERVAL_MS)
        ends = np.append(gap, len(times) - 1) if times[-1] + 2 * INTERVAL_MS < LENGTH_MS else gap
        times = np.insert(times, ends + 1, times[ends] + INTERVAL_MS)
        values = np.insert(values.astype(np.float64), ends + 1, STALE)
        self.labels.append({"metric": f"tidemark_{name}", **{k: str(v) for k, v in labels.items()}})
        self.times.append(times + BASE_MS)
        self.values.append(values)

    def write(self, path: Path) -> int:
        """Write the table and return the number of samples."""
        lengths = [len(times) for times in self.times]
        columns: dict[str, pa.Array] = {}
        for label in ("metric", *LABELS):
            words = [each.get(label, "") for each in self.labels]
            encoded = pa.array(words).dictionary_encode()
            codes = np.repeat(encoded.indices.to_numpy(), lengths)
            columns[label] = pa.DictionaryArray.from_arrays(codes, encoded.dictionary)
        columns["timestamp_ms"] = pa.array(np.concatenate(self.times))
        columns["value"] = pa.array(np.concatenate(self.values))
        pq.write_table(pa.table(columns), path, row_group_size=500_000, compression="zstd")
        return sum(lengths)


def write_samples(stories: Iterable[Scenario], path: Path) -> int:
    table = Table()
    for scenario in stories:
        _Monitor(scenario, table).run()
        if scenario.has("two pools"):
            _Monitor(_quiet_beside(scenario), table, pool="q").run()
    return table.write(path)


def _quiet_beside(scenario: Scenario) -> Scenario:
    """Return a healthy scenario of another pool whose brokers have the same ids.

    It announces a planned restart of each broker whenever that of the first scenario dies.
    """
    quiet = reported(scenario.number, ["quiet"] * SLOTS, Random(0))
    quiet.blind = scenario.blind
    quiet.announced = [fall for fall in scenario.absences if not fall.planned]
    return quiet


def _numbers(history: Sequence[ExpectedFacts], times: Times) -> Times:
    """Return the index of the state at each time; times before the first have the first."""
    places = np.searchsorted([truth.at_ms for truth in history], times, side="right") - 1
    return np.maximum(places, 0)


class _Monitor:
    """Simulate one Prometheus (and its twin) over one scenario."""

    def __init__(self, scenario: Scenario, table: Table, *, pool: str = "p") -> None:
        self.story = scenario
        self.table = table
        self.pool = pool
        self.topic = f"{scenario.topic}{pool}"
        self.topic_id = f"id-{scenario.cluster}{pool}"

    def run(self) -> None:
        twins = (0, 7000) if self.story.has("pair") else (0,)
        for twin, shift in enumerate(twins):
            for broker in BROKERS:
                self._broker(broker, shift + self._phase_ms(broker), f"prom-{twin}")
            self._operator(shift + 500, f"prom-{twin}")

    def _phase_ms(self, broker: int) -> int:
        """Far apart, at a handover both brokers may be seen to follow for nearly an interval."""
        return (
            (len(BROKERS) - broker) * 3600 if self.story.has("phased handover") else broker * 1300
        )

    def _times(self, phase_ms: int) -> Times:
        times = np.arange(phase_ms - LOOK_BACK_MS, LENGTH_MS, INTERVAL_MS, dtype=np.int64)
        seen = np.ones(len(times), dtype=bool)
        for start, end in self.story.blind:
            seen &= (times < start) | (times >= end)
        return times[seen]

    def _broker(self, broker: int, phase_ms: int, prometheus: str) -> None:
        times = self._times(phase_ms)
        restarts = np.zeros(len(times), dtype=np.int64)
        up = np.ones(len(times), dtype=bool)
        for absence in self.story.absences:
            if absence.broker == broker:
                up &= (times < absence.start_ms) | (times >= absence.end_ms)
                restarts += times >= absence.end_ms
        for episode in self.story.episodes_of("failed scrape"):
            if episode.broker == broker:
                up &= (times < episode.start_ms) | (times >= episode.start_ms + INTERVAL_MS)
        if not self.story.has("old loss"):  # what is up at a late first sight is of unknown time
            for episode in self.story.episodes_of("late exporter"):
                up &= (times >= LATE_MS) | (broker != episode.broker)
        times, restarts = times[up], restarts[up]
        for address, here in self._addresses(broker, times):
            about: dict[str, object] = {
                "cluster": self.story.cluster,
                "broker": broker,
                "prometheus_replica": prometheus,
                "instance": address,
            }
            epochs = (100 + restarts[here]).astype(np.float64)
            self.table.add("broker_epoch", times[here], epochs, pool=self.pool, **about)
            for place in range(PARTITIONS):
                if broker in replicas(place):
                    self._replica(place, broker, times[here], restarts[here], about)

    def _replica(
        self, place: int, broker: int, times: Times, restarts: Times, about: dict[str, object]
    ) -> None:
        history = self.story.histories[place]
        number = _numbers(history, times)
        leads = np.array([history[n].leader == broker for n in number], dtype=bool)
        epoch = np.array([history[n].epoch for n in number], dtype=np.float64)
        end = np.array([history[n].end_at(int(t)) for n, t in zip(number, times, strict=True)])
        start = np.array([history[n].start_offset for n in number], dtype=np.float64)
        mark = end.astype(np.float64)
        if self.story.has("late watermark"):  # a new leader's own may lag behind at first
            fresh = np.array([history[n].at_ms for n in number])
            mark = np.where(
                (times - fresh < 12_000) & (fresh > 0), np.maximum(mark - 40, start), mark
            )
        end, mark, epoch, start = self._faulty_offsets(place, times, end, mark, epoch, start)
        for topic_id, chosen, end_of, mark_of, start_of in self._lives(
            place, times, end, mark, start
        ):
            labels = {
                **about,
                "topic": self.topic, "topic_id": topic_id, "partition": place,
            }  # fmt: skip
            self._replica_families(
                place, broker, times[chosen], restarts[chosen], labels,
                {
                    "replica_is_leader": leads[chosen].astype(np.float64),
                    "replica_leader_epoch": epoch[chosen],
                    "replica_leader_epoch_start_offset": start_of[chosen],
                    "replica_log_end_offset": end_of[chosen],
                    "replica_high_watermark_offset": mark_of[chosen],
                },
            )  # fmt: skip
            self._leader_families(
                place, broker, times[chosen & leads], number[chosen & leads], labels
            )

    def _addresses(self, broker: int, times: Times) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """Yield a broker's addresses and when each was scraped; for a while both old and new."""
        moved = [s.start_ms for s in self.story.episodes_of("new address") if s.broker == broker]
        since = moved[0] if moved else LENGTH_MS
        yield f"10.0.0.{broker}:{8080 + ord(self.pool)}", times < since + 2 * INTERVAL_MS
        if moved:
            yield f"10.0.1.{broker}:{8080 + ord(self.pool)}", times >= since

    def _faulty_offsets(
        self, place: int, times: Times, end: Array, mark: Array, epoch: Array, start: Array
    ) -> tuple[Array, Array, Array, Array]:
        for episode in self.story.episodes:
            if episode.partition != place:
                continue
            after = times >= episode.start_ms
            if episode.kind == "watermark back":
                end, mark = end - episode.size * after, mark - episode.size * after
            elif episode.kind == "idle":
                frozen = after & (times < episode.end_ms)
                level = np.interp(episode.start_ms, times, end)
                end = np.where(frozen, np.minimum(end, np.floor(level)), end)
                mark = np.minimum(mark, end)
            elif episode.kind == "epoch back":
                epoch = epoch - after * 3
        return end.astype(np.float64), mark.astype(np.float64), epoch, start

    def _lives(
        self, place: int, times: Times, end: Array, mark: Array, start: Array
    ) -> Iterator[tuple[str, NDArray[np.bool_], Array, Array, Array]]:
        """Yield the topic's lives: one that is created again begins at 0 under another id."""
        again = [s for s in self.story.episodes_of("topic again") if s.partition == place]
        name = self.topic_id
        if not again:
            yield name, np.ones(len(times), dtype=bool), end, mark, start
            return
        cut = times >= again[0].start_ms
        yield name, ~cut, end, mark, start
        # One base for all replicas, whenever each is scraped.
        begun = next(
            truth
            for truth in reversed(self.story.histories[place])
            if truth.at_ms <= again[0].start_ms
        )
        base = float(begun.end_at(again[0].start_ms))
        yield (
            f"{name}-again", cut, np.maximum(end - base, 0), np.maximum(mark - base, 0),
            np.maximum(start - base, 0),
        )  # fmt: skip

    def _replica_families(
        self,
        place: int,
        broker: int,
        times: Times,
        restarts: Times,
        labels: dict[str, object],
        values: dict[str, Array],
    ) -> None:
        for episode in self.story.episodes_of("two leaders"):
            leader = next(
                t.leader
                for t in reversed(self.story.histories[place])
                if t.at_ms <= episode.start_ms
            )
            zombie = min(each for each in replicas(place) if each != leader)
            if (episode.partition, zombie) == (place, broker):
                claims = (times >= episode.start_ms) & (times < episode.end_ms)
                values["replica_is_leader"] = np.maximum(values["replica_is_leader"], claims)
        for name, column in values.items():
            self.table.add(name, times, column, **labels)
        truncated = np.zeros(len(times))
        for loss in self._losses(place, labels):
            if loss.old_leader == broker and "truncation" in loss.shown:
                truncated += loss.records * (times >= loss.at_ms + 300_000)
        if self.story.has("old loss") and "again" not in str(labels["topic_id"]):
            truncated += 77
        if self.story.has("counter reset"):  # a new process counts from 0
            truncated = np.where(restarts > 0, truncated * (truncated != 77), truncated)
        self.table.add("replica_committed_truncated_records_total", times, truncated, **labels)
        boundary = np.floor(values["replica_high_watermark_offset"] / 8192) * 8192
        digest = (boundary * 31 + 7) % 2**47
        for episode in self.story.episodes_of("digest"):
            if (episode.partition, episode.broker) == (place, broker):
                digest = digest + (times >= episode.start_ms)
        self.table.add("replica_digest_offset", times, boundary, **labels)
        self.table.add("replica_digest", times, digest, **labels)

    def _losses(self, place: int, labels: dict[str, object]) -> list[Loss]:
        """Return the losses of this life of the topic: created again, its counters restart."""
        again = [s.start_ms for s in self.story.episodes_of("topic again") if s.partition == place]
        cut = again[0] if again else LENGTH_MS
        is_second = "again" in str(labels["topic_id"])
        return [
            loss
            for loss in self.story.losses
            if loss.partition == place and (loss.at_ms >= cut) == is_second
        ]

    def _leader_families(
        self, place: int, broker: int, times: Times, number: Times, labels: dict[str, object]
    ) -> None:
        history = self.story.histories[place]
        add = self.table.add
        count = np.array([len(history[n].in_sync) for n in number], dtype=np.float64)
        moving = np.zeros(len(times))
        for episode in self.story.episodes_of("move"):
            if episode.partition == place:
                moving += (times >= episode.start_ms) & (times < episode.end_ms)
        gap = np.zeros(len(times))
        for loss in self._losses(place, labels):
            if loss.new_leader == broker and "gap" in loss.shown:
                gap += loss.records * np.array([history[n].epoch == loss.epoch for n in number])
        add("partition_replicas", times, np.full(len(times), 3.0), **labels)
        add("partition_in_sync_replicas", times, count, **labels)
        add("partition_min_in_sync_replicas", times, np.full(len(times), float(MIN_ISR)), **labels)
        add("partition_reassigning", times, moving, **labels)
        add("partition_replica_lag_max_seconds", times, np.full(len(times), 10.0), **labels)
        add("partition_largest_append_records", times, np.full(len(times), 500.0), **labels)
        add("partition_election_committed_gap_records", times, gap, **labels)
        self._counted_changes(place, broker, times, labels)
        for follower in replicas(place):
            if follower != broker:
                self._follower(place, follower, times, number, labels)

    def _counted_changes(
        self, place: int, broker: int, times: Times, labels: dict[str, object]
    ) -> None:
        """Since the leader's process began."""
        births = [a.end_ms for a in self.story.absences if a.broker == broker]
        born = np.max([np.where(times >= at, at, -1) for at in (*births, -1)], axis=0)
        planned = {(a.broker, a.start_ms - 300) for a in self.story.absences if a.planned}
        counts = {name: np.zeros(len(times)) for name in ("fenced", "planned", "expand")}
        for before, after in itertools.pairwise(self.story.histories[place]):
            if not before.leader == after.leader == broker or before.in_sync == after.in_sync:
                continue
            left = before.in_sync - after.in_sync
            is_planned = any((each, after.at_ms) in planned for each in left)
            name = "expand" if not left else "planned" if is_planned else "fenced"
            counts[name] += (times >= after.at_ms) & (after.at_ms > born)
        self.table.add("partition_isr_expands_total", times, counts.pop("expand"), **labels)
        for reason, count in counts.items():
            self.table.add("partition_isr_shrinks_total", times, count, reason=reason, **labels)

    def _follower(
        self, place: int, follower: int, times: Times, number: Times, labels: dict[str, object]
    ) -> None:
        history = self.story.histories[place]
        in_sync = np.array([follower in history[n].in_sync for n in number])
        age = np.full(len(times), 0.05)
        for absence in self.story.absences:
            if absence.broker == follower:
                away = (times >= absence.start_ms) & (times < absence.end_ms + 8000)
                age = np.where(away, (times - absence.start_ms) / 1000, age)
        for episode in self.story.episodes:
            if (episode.partition, episode.broker) == (place, follower) and episode.kind in (
                "lagging", "flapping"
            ):  # fmt: skip
                during = (times >= episode.start_ms) & (times < episode.end_ms)
                age = np.where(during, 5.0 if episode.kind == "lagging" else 15.0, age)
        pair = {**labels, "follower": follower}
        self.table.add("follower_in_sync", times, in_sync, **pair)
        self.table.add("follower_caught_up_age_seconds", times, age, **pair)
        self.table.add("follower_lag_records", times, np.floor(age * 20), **pair)

    def _operator(self, phase_ms: int, prometheus: str) -> None:
        times = self._times(phase_ms)
        common: dict[str, object] = {
            "cluster": self.story.cluster,
            "pool": self.pool,
            "prometheus_replica": prometheus,
        }
        # After a change of operators another process counts from 0, at another address.
        changed = LENGTH_MS // 2 if self.story.has("operator change") else LENGTH_MS
        renamed = LENGTH_MS // 3 if self.story.has("renamed pod") else LENGTH_MS
        for broker in BROKERS:
            planned = np.zeros(len(times))
            announced = [a for a in self.story.absences if a.planned] + self.story.announced
            for absence in announced:
                if absence.broker == broker:
                    planned += (times >= absence.start_ms - 500) & (times < absence.end_ms + 8000)
            skew = 3.0 if self.story.has("clock") and broker == 2 else -0.002
            for chosen, instance in (
                (times < renamed, "operator-a"), (times >= renamed, "operator-b")
            ):  # fmt: skip
                about = {**common, "broker": broker, "instance": instance}
                self.table.add("broker_planned_restart", times[chosen], planned[chosen], **about)
                self.table.add(
                    "broker_clock_skew_seconds", times[chosen], np.full(chosen.sum(), skew), **about
                )
        for place in range(PARTITIONS):
            self._operators_partition(place, times, changed, common)

    def _operators_partition(
        self, place: int, times: Times, changed_ms: int, common: dict[str, object]
    ) -> None:
        history = self.story.histories[place]
        number = _numbers(history, times)
        leader = np.array([-1 if history[n].leader is None else history[n].leader for n in number])
        count = np.array([len(history[n].in_sync) for n in number], dtype=np.float64)
        labels = {
            **common, "topic": self.topic, "topic_id": self.topic_id,
            "partition": place,
        }  # fmt: skip
        again = [s for s in self.story.episodes_of("topic again") if s.partition == place]
        lives = [(np.ones(len(times), dtype=bool), labels)]
        if again:
            cut = times >= again[0].start_ms
            lives = [
                (~cut, labels),
                (cut, {**labels, "topic_id": f"{self.topic_id}-again"}),
            ]
        for chosen, about in lives:
            self.table.add("partition_leader_id", times[chosen], leader[chosen], **about)
            self.table.add(
                "partition_durable_in_sync_replicas", times[chosen], count[chosen], **about
            )
            self._elections(place, times[chosen], changed_ms, about)
        for loss in self.story.losses:
            if loss.partition == place:
                born = [about for chosen, about in lives if chosen[times >= loss.at_ms][:1].any()]
                self._recovery(times, loss, born[0])

    def _elections(
        self, place: int, times: Times, changed_ms: int, labels: dict[str, object]
    ) -> None:
        history = self.story.histories[place]
        unclean_at = {loss.at_ms for loss in self.story.losses if loss.partition == place}
        counts = {kind: np.zeros(len(times)) for kind in ("clean", "unclean", "planned")}
        for before, after in itertools.pairwise(history):
            if after.epoch == before.epoch:
                continue
            kind = "unclean" if after.at_ms in unclean_at else "clean"
            if kind == "clean" and before.leader is not None:
                kind = "planned"
            counts[kind] += (times >= after.at_ms) & (
                (after.at_ms >= changed_ms) | (times < changed_ms)
            )
        for kind, values in counts.items():
            self.table.add("partition_leader_elections_total", times, values, kind=kind, **labels)

    def _recovery(self, times: Times, loss: Loss, labels: dict[str, object]) -> None:
        after = times >= loss.at_ms
        about = {**labels, "cause": "Unclean"}
        epoch = np.full(after.sum(), float(loss.epoch))
        self.table.add("partition_recovery_epoch", times[after], epoch, **about)
        if "recovery" in loss.shown:
            lost = np.full(after.sum(), float(loss.records))
            self.table.add("partition_recovery_lost_committed_records", times[after], lost, **about)
