"""Facts of partitions as the analysis finds them, for tests of single rules."""

from collections.abc import Sequence
from dataclasses import replace

from tidemark_audit.analysis.changes import CounterChange
from tidemark_audit.analysis.partition import PartitionAnalysis
from tidemark_audit.metrics.families import FAMILIES, PREFIX
from tidemark_audit.results import (
    Coverage,
    Election,
    FollowerLag,
    Interval,
    IntervalKind,
    IsrChange,
    SliRow,
    TopicPartition,
)
from tidemark_audit.rules.evaluation import AuditAnalysis
from tidemark_audit.slo import Slo

HOUR_MS = 3_600_000
ALL_FAMILIES = frozenset(name.removeprefix(PREFIX) for name in FAMILIES)
ORDERS = TopicPartition("orders", 0)
DEFAULT_SLO = Slo()


def sli_row(topic: str = "orders", partition: int = 0, **spent_ms: int) -> SliRow:
    """Divide an hour: what `spent_ms` does not name is healthy."""
    row = SliRow(topic, partition, "", 1, 0, 0, 0, 0, 0, 0)
    row = replace(row, **spent_ms)
    return row if "healthy_ms" in spent_ms else replace(row, healthy_ms=HOUR_MS - row.total_ms)


def interval(
    kind: IntervalKind,
    start_ms: int,
    end_ms: int,
    *,
    of: TopicPartition = ORDERS,
    brokers: tuple[str, ...] = ("3",),
    planned: bool = False,
    earlier_ms: int = 0,
) -> Interval:
    cause = f"broker {', '.join(brokers)} out of sync"
    return Interval(
        of, kind, start_ms, end_ms, planned, cause, brokers, 2, 3, 2, earlier_ms=earlier_ms
    )


def partition_facts(
    of: TopicPartition = ORDERS,
    *,
    cluster: str = "",
    pool: str = "",
    sli: SliRow | None = None,
    intervals: Sequence[Interval] = (),
    elections: Sequence[Election] = (),
    isr_changes: Sequence[IsrChange] = (),
    counted: Sequence[CounterChange] = (),
    follower_lag: Sequence[FollowerLag] = (),
    life_ms: tuple[int, int] = (0, HOUR_MS),
    lag_max_seconds: float | None = 30.0,
    largest_append_records: float | None = 1.0,
) -> PartitionAnalysis:
    """Return the facts of a healthy partition in a window of one hour, but for what is given."""
    row = sli or sli_row(of.topic, of.partition)
    return PartitionAnalysis(
        cluster=cluster,
        pool=pool,
        sli=replace(row, topic=of.topic, partition=of.partition, topic_id=of.topic_id),
        coverage=Coverage(of, row.observed_ms, row.total_ms, 1),
        intervals=tuple(intervals),
        elections=tuple(elections),
        isr_changes=tuple(isr_changes),
        counted=tuple(counted),
        follower_lag=tuple(follower_lag),
        loss_evidence=(),
        oddities=(),
        witnesses=(),
        life_ms=life_ms,
        lag_max_seconds=lag_max_seconds,
        largest_append_records=largest_append_records,
    )


def audit_analysis(
    *partitions: PartitionAnalysis,
    slo: Slo = DEFAULT_SLO,
    families: frozenset[str] = ALL_FAMILIES,
    window_end_ms: int = HOUR_MS,
) -> AuditAnalysis:
    return AuditAnalysis(
        window_start_ms=0,
        window_end_ms=window_end_ms,
        slack_ms=2500,
        partitions=partitions,
        families=families,
        clock_skew=(),
        bad_samples=(),
        crc_failures=(),
        slo=slo,
    )
