"""Exports written by hand: one partition's series over a few minutes, line by line."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

STEP_MS = 1000
Value = float | Callable[[int], float | None]  # of the time in ms; None leaves the sample out


class Export:
    """Collects series; `write` makes API JSON lines of them. Times are ms from 0."""

    def __init__(self, *, length_ms: int = 120_000, step_ms: int = STEP_MS) -> None:
        self.length_ms = length_ms
        self.step_ms = step_ms
        self.series: dict[tuple[tuple[str, str], ...], list[tuple[int, float]]] = {}

    def add(
        self, name: str, value: Value, *, offset_ms: int = 0, step_ms: int = 0, **labels: str
    ) -> None:
        """The tidemark_ family `name` at every scrape, at which `value` is called."""
        key = tuple(sorted({"__name__": f"tidemark_{name}", **labels}.items()))
        for at_ms in range(offset_ms, self.length_ms, step_ms or self.step_ms):
            found = value(at_ms) if callable(value) else value
            if found is not None:
                self.series.setdefault(key, []).append((at_ms, found))

    def write(self, path: Path) -> Path:
        with path.open("w") as file:
            for key, samples in self.series.items():
                file.write(json_line(dict(key), samples))
        return path


def json_line(labels: Mapping[str, str], samples: Iterable[tuple[int, float]]) -> str:
    values = [[at_ms / 1000, repr(float(value))] for at_ms, value in samples]
    return json.dumps({"metric": labels, "values": values}) + "\n"


Isr = Callable[[int], frozenset[int] | None]  # None: no leader
Leader = Callable[[int], int | None]


def partition(
    export: Export,
    *,
    number: int = 0,
    topic: str = "orders",
    topic_id: str = "id-orders",
    leader: Leader = lambda at_ms: 1,
    in_sync: Callable[[int], set[int]] = lambda at_ms: {1, 2, 3},
    epoch: Callable[[int], int] = lambda at_ms: 5,
    is_up: Callable[[int, int], bool] = lambda broker, at_ms: True,
    end_offset: Callable[[int], int] = lambda at_ms: at_ms // 10,
    replicas: Callable[[int], set[int]] = lambda at_ms: {1, 2, 3},
    adding: Callable[[int], set[int]] = lambda at_ms: set(),
    held_by: tuple[int, ...] = (1, 2, 3),
    scrape: Mapping[str, str] = {},
    without: frozenset[str] = frozenset(),
) -> None:
    """All families of one partition with min.insync.replicas 2, on brokers 1, 2, 3.

    `held_by` names all that ever hold a replica, `adding` those that a move brings, `scrape` what
    a scrape configuration adds.
    """
    about = {"topic": topic, "topic_id": topic_id, "partition": str(number)}

    def add(name: str, value: Value, **labels: str) -> None:
        if name not in without:
            export.add(name, value, **about, **scrape, **labels)

    def holds(broker: int, at_ms: int) -> bool:
        return broker in replicas(at_ms) | adding(at_ms)

    for broker in held_by:

        def up(at_ms: int, value: float, broker: int = broker) -> float | None:
            return value if is_up(broker, at_ms) and holds(broker, at_ms) else None

        def leads(at_ms: int, value: float, broker: int = broker) -> float | None:
            return up(at_ms, value, broker) if leader(at_ms) == broker else None

        b = str(broker)
        add("replica_is_leader", lambda t, b=broker: up(t, leader(t) == b, b), broker=b)
        add("replica_leader_epoch", lambda t, b=broker: up(t, epoch(t), b), broker=b)
        add("replica_leader_epoch_start_offset", lambda t, b=broker: up(t, -1, b), broker=b)
        add("replica_high_watermark_offset", lambda t, b=broker: up(t, end_offset(t), b), broker=b)
        add("replica_log_end_offset", lambda t, b=broker: up(t, end_offset(t), b), broker=b)
        add("replica_committed_truncated_records_total", lambda t, b=broker: up(t, 0, b), broker=b)
        add("partition_replicas", lambda t, b=broker: leads(t, len(replicas(t)), b), broker=b)
        add("partition_min_in_sync_replicas", lambda t, b=broker: leads(t, 2, b), broker=b)
        add(
            "partition_in_sync_replicas",
            lambda t, b=broker: leads(t, len(in_sync(t)), b),
            broker=b,
        )
        add("partition_reassigning", lambda t, b=broker: leads(t, bool(adding(t)), b), broker=b)
        add("partition_replica_lag_max_seconds", lambda t, b=broker: leads(t, 10, b), broker=b)
        add("partition_largest_append_records", lambda t, b=broker: leads(t, 100, b), broker=b)
        add(
            "partition_election_committed_gap_records", lambda t, b=broker: leads(t, 0, b), broker=b
        )
        for other in set(held_by) - {broker}:
            pair = {"broker": b, "follower": str(other)}

            def tells(at_ms: int, value: float, b: int = broker, o: int = other) -> float | None:
                return leads(at_ms, value, b) if holds(o, at_ms) else None

            add(
                "follower_in_sync",
                lambda t, o=other, tells=tells: tells(t, o in in_sync(t)),
                **pair,
            )
            add("follower_lag_records", lambda t, tells=tells: tells(t, 3), **pair)
            add("follower_caught_up_age_seconds", lambda t, tells=tells: tells(t, 0.1), **pair)
    operator = {"pool": "default/pool"}
    add("partition_leader_id", lambda t: -1 if leader(t) is None else leader(t), **operator)
    add("partition_durable_in_sync_replicas", lambda t: len(in_sync(t)), **operator)
    for kind in ("clean", "unclean", "planned"):
        add("partition_leader_elections_total", 0, kind=kind, **operator)


def brokers(
    export: Export,
    *,
    planned: Callable[[int, int], bool] = lambda broker, at_ms: False,
    skew: Callable[[int, int], float] = lambda broker, at_ms: 0.01,
    ids: tuple[int, ...] = (1, 2, 3),
    epoch: Callable[[int, int], float | None] = lambda broker, at_ms: 7,
    scrape: Mapping[str, str] = {},
) -> None:
    for broker in ids:
        labels = {"pool": "default/pool", "broker": str(broker), **scrape}
        export.add("broker_epoch", lambda t, b=broker: epoch(b, t), **labels)
        export.add("broker_planned_restart", lambda t, b=broker: planned(b, t), **labels)
        export.add("broker_clock_skew_seconds", lambda t, b=broker: skew(b, t), **labels)


def open_metrics(export: Export, path: Path, *, base_ms: int = 0) -> Path:
    """The same samples as text, every family's together, with the time moved by `base_ms`."""
    with path.open("w") as file:
        for key in sorted(export.series, key=lambda key: dict(key)["__name__"]):
            labels = dict(key)
            name = labels.pop("__name__")
            text = ",".join(f'{label}="{value}"' for label, value in labels.items())
            for at_ms, value in export.series[key]:
                file.write(f"{name}{{{text}}} {float(value)!r} {(base_ms + at_ms) / 1000:.3f}\n")
        file.write("# EOF\n")
    return path


def tall_parquet(export: Export, path: Path, *, rows_per_group: int = 1000) -> Path:
    rows = [
        {**dict(key), "timestamp_ms": at_ms, "value": float(value)}
        for key, samples in export.series.items()
        for at_ms, value in samples
    ]
    names = sorted({name for row in rows for name in row})
    columns = {name: [row.get(name) for row in rows] for name in names}
    pq.write_table(pa.table(columns), path, row_group_size=rows_per_group)
    return path
