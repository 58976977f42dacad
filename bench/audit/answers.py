"""Whether the audit and DuckDB say the same: both answers put in one form, rows of plain values.

Times, milliseconds and records must be equal; quantiles are of one bin, so they may differ by the
rounding of a logarithm.
"""

from collections.abc import Iterable, Mapping
from math import isclose
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tidemark_audit.aggregation import histogram
from tidemark_audit.results import AuditResult, IntervalKind, LossKind, TopicPartition

NAMES = (
    "sli", "intervals", "isr_changes", "elections", "lag", "bands", "truncations", "regresses",
    "epochs_below", "coverage",
)  # fmt: skip
_BAD_KINDS = (IntervalKind.UNDER_REPLICATED, IntervalKind.UNDER_MIN_ISR)
_LOSSES = {
    "truncations": LossKind.COMMITTED_TRUNCATION,
    "regresses": LossKind.HIGH_WATERMARK_REGRESS,
    "epochs_below": LossKind.LEADER_BELOW_HIGH_WATERMARK,
}
Row = tuple[Any, ...]
Answers = Mapping[str, frozenset[Row]]


def responses_of_audit(result: AuditResult) -> Answers:
    found: dict[str, list[Row]] = {
        "sli": [
            (
                row.topic, row.partition, row.healthy_ms,
                row.degraded_planned_ms + row.degraded_unplanned_ms, row.under_min_isr_ms,
                row.unobserved_ms, row.one_failure_from_loss_ms, row.one_failure_from_stall_ms,
            )
            for row in result.sli_by_partition
        ],
        "intervals": _joined(
            (*_place(each.partition), each.kind.value, each.start_ms, each.end_ms)
            for each in result.intervals
            if each.kind in _BAD_KINDS
        ),
        "isr_changes": [
            (
                *_place(each.partition), each.at_ms, each.from_in_sync_replicas,
                each.to_in_sync_replicas,
            )
            for each in result.isr_changes
        ],
        "elections": [
            (*_place(each.partition), each.at_ms, each.to_broker, each.leader_epoch)
            for each in result.elections
        ],
        "lag": [
            row
            for each in result.follower_lag
            for row in (
                (
                    "follower_caught_up_age_seconds", *_place(each.partition), each.follower,
                    each.age_max_seconds, each.age_p50_seconds, each.age_p99_seconds,
                    each.age_p999_seconds,
                ),
                (
                    "follower_lag_records", *_place(each.partition), each.follower,
                    each.records_max, each.records_p50, each.records_p99, each.records_p999,
                ),
            )
        ],
        "bands": [
            (
                each.start_ms,
                each.samples, each.max_seconds, each.p50_seconds, each.p90_seconds,
                each.p99_seconds,
            )
            for each in result.lag_bands
        ],
        "coverage": [(*_place(each.partition), each.samples) for each in result.coverage],
    }  # fmt: skip
    for name, kind in _LOSSES.items():
        found[name] = [
            (*_place(each.partition), each.at_ms, each.records)
            for each in result.loss_evidence
            if each.kind is kind
        ]
    return {name: frozenset(rows) for name, rows in found.items()}


def answers_of_duckdb(directory: Path) -> Answers:
    found: dict[str, list[Row]] = {}
    for name in NAMES:
        rows = pq.read_table(directory / f"{name}.parquet").to_pylist()
        for row in rows:
            if "partition" in row:
                row["partition"] = int(row["partition"])
            if "metric" in row:
                row["metric"] = row["metric"].removeprefix("tidemark_")
            _values_of_bins(row, is_bounded="metric" in row)
        if name in _LOSSES:
            keep = ("topic", "partition", "at_ms", "records")
            rows = [{column: row[column] for column in keep} for row in rows]
        found[name] = [tuple(row.values()) for row in rows]
    return {name: frozenset(rows) for name, rows in found.items()}


def differences(audit: Answers, duckdb: Answers) -> list[str]:
    """A line for each answer that is not the same; numbers that are equal to 1e-9 are."""
    found = []
    for name in NAMES:
        only_audit = sorted(audit[name] - duckdb[name])
        only_duckdb = sorted(duckdb[name] - audit[name])
        pairs = zip(only_audit, only_duckdb, strict=False)
        if len(only_audit) == len(only_duckdb) and all(_alike(*pair) for pair in pairs):
            continue
        found.append(
            f"{name}: {len(only_audit)} rows of the audit alone, as {only_audit[:2]};"
            f" {len(only_duckdb)} of DuckDB alone, as {only_duckdb[:2]}"
        )
    return found


def rows_of(answers: Answers) -> int:
    return sum(len(rows) for rows in answers.values())


def _place(partition: TopicPartition) -> tuple[str, int]:
    return (partition.topic, partition.partition)


def _joined(intervals: Iterable[Row]) -> list[Row]:
    """Planned and unplanned pieces of one stretch as that stretch."""
    found: list[Row] = []
    for row in sorted(intervals):
        if found and found[-1][:3] == row[:3] and found[-1][4] == row[3]:
            found[-1] = (*found[-1][:4], row[4])
        else:
            found.append(row)
    return found


def _values_of_bins(row: dict[str, Any], *, is_bounded: bool) -> None:
    """A follower's quantile is at most its maximum: a bin's middle may lie above every member."""
    for column in [name for name in row if name.endswith("_bin")]:
        value = histogram.value_of(row[column])
        row[column] = min(value, row["maximum"]) if is_bounded else value


def _alike(one: Row, other: Row) -> bool:
    return all(
        isclose(a, b, rel_tol=1e-9) if isinstance(a, float) and isinstance(b, float) else a == b
        for a, b in zip(one, other, strict=True)
    )
