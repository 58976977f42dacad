"""A day of a Tidemark cluster as Prometheus exports it: tall Parquet of any number of samples.

Every family of the profile `audit` that the audit reads of brokers, scraped every 15 s, for as many
partitions as the number of samples needs; scrape gaps, counter resets, elections, lag that jumps
from 3 records to 10,000. One partition in some dozens has lost records, in each way that samples
show. Made by numpy, sixteen partitions in memory at a time; kept by the content of this package.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.audit import history
from bench.audit.history import (
    ABSENCES,
    BROKERS,
    DAY_MS,
    INTERVAL_MS,
    LAG_MAX_MS,
    MIN_ISR,
    REPLICAS,
    Floats,
    Longs,
)

BASE_MS = 1_750_000_020_000
SERIES_PER_PARTITION = 33
SAMPLES_PER_PARTITION = SERIES_PER_PARTITION * (DAY_MS // INTERVAL_MS)
PARTITIONS_PER_TOPIC = 12
AT_A_TIME = 16  # partitions
ROW_GROUP = 500_000
LABELS = ("pool", "topic", "topic_id", "partition", "broker", "follower", "reason")
Progress = Callable[[int, int], None]


def samples_file(samples: int, progress: Progress) -> Path:
    """The file of about that many samples; made if it is not there yet."""
    own = Path(__file__)
    words = own.read_bytes() + own.with_name("history.py").read_bytes()
    cache = Path(os.environ.get("TIDEMARK_CACHE", Path.home() / ".cache" / "tidemark"))
    directory = cache / "bench-audit"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{samples}-{hashlib.sha256(words).hexdigest()[:12]}.parquet"
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=directory, suffix=".new", delete=False) as file:
            new = Path(file.name)
        try:
            _write(new, max(1, round(samples / SAMPLES_PER_PARTITION)), progress)
            new.rename(path)
        finally:
            new.unlink(missing_ok=True)
    return path


class _Series:
    """Series of a batch, put in the order of their families as an export of Prometheus is."""

    def __init__(self) -> None:
        self._labels: list[dict[str, str]] = []
        self._times: list[Longs] = []
        self._values: list[Floats] = []

    def add(self, family: str, times: Longs, values: Floats | float, **labels: object) -> None:
        if len(times) == 0:
            return
        self._labels.append(
            {"metric": f"tidemark_{family}"} | {k: str(v) for k, v in labels.items()}
        )
        self._times.append(times + BASE_MS)
        self._values.append(np.broadcast_to(np.asarray(values, dtype=np.float64), len(times)))

    def table(self) -> pa.Table:
        order = sorted(range(len(self._labels)), key=lambda place: self._labels[place]["metric"])
        lengths = [len(self._times[place]) for place in order]
        columns: dict[str, pa.Array] = {}
        for label in ("metric", *LABELS):
            words = pa.array([self._labels[place].get(label, "") for place in order])
            encoded = words.dictionary_encode()
            codes = np.repeat(encoded.indices.to_numpy(), lengths)
            columns[label] = pa.DictionaryArray.from_arrays(codes, encoded.dictionary)
        columns["timestamp_ms"] = pa.array(np.concatenate([self._times[place] for place in order]))
        columns["value"] = pa.array(np.concatenate([self._values[place] for place in order]))
        return pa.table(columns)


def _write(path: Path, partitions: int, progress: Progress) -> None:
    series = _Series()
    _add_cluster(series)
    table = series.table()
    with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
        writer.write_table(table, row_group_size=ROW_GROUP)
        for table in _batches(partitions, progress):
            writer.write_table(table, row_group_size=ROW_GROUP)


def _batches(partitions: int, progress: Progress) -> Iterator[pa.Table]:
    for first in range(0, partitions, AT_A_TIME):
        progress(first, partitions)
        series = _Series()
        for partition in range(first, min(first + AT_A_TIME, partitions)):
            _Partition(partition, series).add_all()
        yield series.table()
    progress(partitions, partitions)


def _add_cluster(series: _Series) -> None:
    """Of each broker, and what the operator says of it."""
    random = np.random.default_rng(7)
    operator = np.arange(1_000, DAY_MS, INTERVAL_MS, dtype=np.int64)
    for broker in range(BROKERS):
        about = {"pool": "bench/bench", "broker": broker}
        times = history.scrapes_of(broker)
        series.add("broker_epoch", times, 100.0 + history.lives_before(broker, times), **about)
        planned = np.zeros(len(operator))
        for absence in ABSENCES:
            if absence.broker == broker and absence.is_planned:
                end = absence.end_ms + history.CATCH_UP_MS
                planned[(operator >= absence.start_ms - 5_000) & (operator < end)] = 1.0
        series.add("broker_planned_restart", operator, planned, **about)
        skew = np.round(random.normal(0.0, 0.004, len(operator)), 4)
        series.add("broker_clock_skew_seconds", operator, skew, **about)


class _Partition:
    """All series of one partition, from each of its brokers."""

    def __init__(self, number: int, series: _Series) -> None:
        self._number = number
        self._series = series
        self._random = np.random.default_rng((11, number))
        self._replicas = history.replicas_of(number)
        self._reigns = history.reigns_of(number)
        self._episodes = history.episodes_of(number, self._random)
        topic = number // PARTITIONS_PER_TOPIC
        self._about = {
            "topic": f"topic-{topic:03d}",
            "topic_id": hashlib.sha256(f"topic {topic}".encode()).hexdigest()[:22],
            "partition": number % PARTITIONS_PER_TOPIC,
        }

    def add_all(self) -> None:
        for broker in self._replicas:
            times = history.scrapes_of(broker)
            term = np.searchsorted([each.from_ms for each in self._reigns], times, "right") - 1
            leads = np.array([each.leader for each in self._reigns])[term] == broker
            epoch = np.array([each.epoch for each in self._reigns], dtype=np.float64)[term]
            self._add_replica(broker, times, term, leads, epoch)
            self._add_leader(broker, times[leads])

    def _add_replica(
        self, broker: int, times: Longs, term: Longs, leads: np.ndarray, epoch: Floats
    ) -> None:
        about = {**self._about, "broker": broker}
        behind = history.behind_ms(self._number, broker, self._episodes, times)
        behind[leads] = 0
        end = history.log_end(self._number, times - 5 * ~leads - behind)
        watermark = history.log_end(self._number, times - np.where(leads, 20, 500) - behind)
        end, watermark = np.maximum.accumulate(end), np.maximum.accumulate(watermark)
        if self._number % 97 == 3 and leads.any():
            place = int(np.flatnonzero(leads)[len(leads[leads]) // 2])
            watermark[place:] -= 700.0 + 25 * 501  # within an epoch; more than an interval brings
        began = history.log_end(self._number, np.array([each.from_ms for each in self._reigns]))
        if self._number % 71 == 2 and len(began) > 1:
            began[1] -= 900.0 + 20 * 501  # below what the former leader knew
        cut = np.zeros(len(times))
        if self._number % 53 == 4 and broker == self._replicas[0]:
            cut[history.lives_before(broker, times) > 0] = 250.0
        add = self._series.add
        add("replica_is_leader", times, leads.astype(np.float64), **about)
        add("replica_leader_epoch", times, epoch, **about)
        add("replica_leader_epoch_start_offset", times, began[term], **about)
        add("replica_log_end_offset", times, end, **about)
        add("replica_high_watermark_offset", times, watermark, **about)
        add("replica_committed_truncated_records_total", times, cut, **about)

    def _add_leader(self, broker: int, times: Longs) -> None:
        """What it says while it leads, of its followers too."""
        about = {**self._about, "broker": broker}
        add = self._series.add
        in_sync = np.full(len(times), float(REPLICAS))
        for follower in self._replicas:
            if follower == broker:
                continue
            age = history.behind_ms(self._number, follower, self._episodes, times)
            is_in_sync = age <= LAG_MAX_MS
            in_sync -= ~is_in_sync
            idle = np.round(self._random.exponential(0.02, len(times)), 3)
            late = self._random.random(len(times)) < 0.7  # mostly it has just caught up
            seconds = np.where(age > 0, age / 1000.0, np.where(late, 0.0, idle))
            rate = 5 + (self._number * 37) % 496
            small = self._random.poisson(3, len(times)).astype(np.float64)
            records = np.where(age > 0, np.floor(rate * age / 1000.0), np.where(late, 0.0, small))
            add("follower_lag_records", times, records, follower=follower, **about)
            add("follower_caught_up_age_seconds", times, seconds, follower=follower, **about)
            add(
                "follower_in_sync", times, is_in_sync.astype(np.float64), follower=follower, **about
            )
        change = np.diff(in_sync, prepend=in_sync[:1])
        add("partition_in_sync_replicas", times, in_sync, **about)
        add("partition_replicas", times, float(REPLICAS), **about)
        add("partition_min_in_sync_replicas", times, float(MIN_ISR), **about)
        add("partition_replica_lag_max_seconds", times, LAG_MAX_MS / 1000.0, **about)
        add("partition_largest_append_records", times, 500.0, **about)
        add("partition_isr_expands_total", times, np.cumsum(change > 0) * 1.0, **about)
        shrinks = np.cumsum(change < 0) * 1.0
        for reason, values in (("lag", shrinks), ("fenced", 0.0), ("planned", 0.0)):
            add("partition_isr_shrinks_total", times, values, reason=reason, **about)
