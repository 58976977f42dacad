"""What is known beside a partition's own series: planned restarts, processes, pools.

Two pools in one Prometheus: each has a broker 3, and they are not the same.
"""

from pathlib import Path

from tidemark_audit.analysis.context import (
    PLANNED_RESTART_LIMIT_MS,
    Context,
    Intervals,
    PlannedRestart,
    context_of,
    lives_of,
)
from tidemark_audit.analysis.series import MergedSeries
from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.metrics.families import Exporter
from tidemark_audit.results import AuditResult
from tidemark_audit.sources.detect import sources_at

from tests.support.audit_exports import Export, partition
from tests.support.audit_series import (
    CAP_MS,
    INTERVALS,
    STEP_MS,
    at_each_second,
    context,
    gone,
    merged,
)

LENGTH_MS = 1_800_000
FALL_MS = (600_000, 640_000)
POOLS = ("default/a", "default/b")


def two_pools() -> Export:
    """Broker 3 of the first restarts as planned; that of the second crashes at the same time."""
    whole = Export(length_ms=LENGTH_MS, step_ms=5000)
    for pool in POOLS:
        part = Export(length_ms=LENGTH_MS, step_ms=5000)
        partition(
            part,
            topic_id=f"id-{pool}",
            in_sync=lambda t: {1, 2} if FALL_MS[0] <= t < FALL_MS[1] else {1, 2, 3},
        )
        for key, samples in part.series.items():
            labels = dict(key)
            if "pool" in labels:
                labels["pool"] = pool
            whole.series[tuple(sorted(labels.items()))] = samples
        for broker in ("1", "2", "3"):
            about = {"pool": pool, "broker": broker}
            whole.add("broker_epoch", 7, **about)
            whole.add("broker_clock_skew_seconds", 0.01, **about)
            whole.add(
                "broker_planned_restart",
                lambda t, p=pool, b=broker: (
                    p == POOLS[0] and b == "3" and FALL_MS[0] - 10_000 <= t < FALL_MS[1] + 10_000
                ),
                **about,
            )
    return whole


def checked_proposal(export: Export, path: Path) -> AuditResult:
    return audit(LocalEngine(), sources_at([str(export.write(path / "export.jsonl"))]))


def test_a_planned_restart_in_one_pool_excuses_nothing_in_another(tmp_path: Path) -> None:
    result = checked_proposal(two_pools(), tmp_path)
    assert {row.topic_id: row.degraded_planned_ms for row in result.sli_by_partition} == {
        "id-default/a": 40_000,
        "id-default/b": 0,
    }
    found = {(f.subject, f.planned) for f in result.findings if f.rule == "R1"}
    assert found == {("default/a: broker 3", True), ("default/b: broker 3", False)}


BROKER = ("", "p", "3")
PLANNED = "broker_planned_restart"


def context_with(*of: MergedSeries) -> Context:
    return context_of(list(of), window_start_ms=0, window_end_ms=60_000, intervals=INTERVALS)


def test_a_sample_is_valid_for_two_and_a_half_intervals_of_its_exporter() -> None:
    intervals = Intervals(broker_ms=15_000, operator_ms=60_000)
    assert [intervals.cap_ms(exporter) for exporter in Exporter] == [37_500, 150_000]


def test_a_restart_is_planned_from_the_announcement_until_the_operator_takes_it_back() -> None:
    said = merged(PLANNED, at_each_second(0, 0, 1, 1, 0), pool="p", broker="3")
    assert context_with(said).planned == {BROKER: (PlannedRestart(1000, 2000, 4000, 4000),)}


def test_an_announcement_whose_operator_fell_silent_stands_to_the_operators_own_limit() -> None:
    said = merged(PLANNED, at_each_second(0, 1, gone()), pool="p", broker="3")
    (restart,) = context_with(said).planned[BROKER]
    assert (restart.end_ms, restart.until_ms) == (2000, 1000 + PLANNED_RESTART_LIMIT_MS)


def test_what_one_scrape_takes_back_early_stands_for_as_long_as_the_fuller_one_says() -> None:
    fuller = merged(PLANNED, at_each_second(1, 1, 1, 0), pool="p", broker="3", scrape="a")
    other = merged(PLANNED, at_each_second(1, 0), pool="p", broker="3", scrape="b")
    (restart,) = context_with(fuller, other).planned[BROKER]
    assert (restart.end_ms, restart.until_ms) == (3000, 3000)


def test_an_absence_is_excused_only_if_it_began_with_the_announcement() -> None:
    within = context(planned={BROKER: (PlannedRestart(9000, 10_000, 14_000, 14_000),)})
    excused = 14_000 + 2 * CAP_MS
    until = {at: within.excused_until_ms(BROKER, at) for at in (7999, 8000, 14_000, 16_499, 16_500)}
    assert until == {7999: 7999, 8000: excused, 14_000: excused, 16_499: excused, 16_500: 16_500}
    assert within.excused_until_ms(("", "other", "3"), 12_000) == 12_000
    assert within.scrape_ms == STEP_MS
    assert within.ends_of_excuses_ms("", "p") == [excused]
    assert within.ends_of_excuses_ms("", "other") == []


def test_a_process_begins_before_it_is_registered_and_ends_with_the_next_epoch() -> None:
    epochs = merged("broker_epoch", at_each_second(4, 4, -1, -1, 5, gone(), 5), broker="3")
    assert lives_of(epochs) == [(0, 1000, 4.0), (2000, 6000, 5.0)]


def test_a_cluster_is_as_old_as_the_first_of_its_exporters() -> None:
    epochs = merged("broker_epoch", [(5, 4.0), (20, 4.0)], pool="p", broker="3")
    said = merged(PLANNED, at_each_second(0, 0, since_s=3), pool="p", broker="3")
    found = context_with(epochs, said)
    assert found.cluster_since_ms == {"": 3000}
    assert found.broker_since_ms(BROKER) == 5000
    assert found.operator_since_ms("") == 3000
    assert found.broker_since_ms(("", "p", "4")) is None
    assert found.operator_since_ms("other") is None


def test_a_partition_is_of_the_only_pool_of_its_cluster_if_none_is_named() -> None:
    one = context(broker_seen_ms={("", "p", "1"): (0, 1), ("", "p", "2"): (0, 1)})
    two = context(broker_seen_ms={("", "p", "1"): (0, 1), ("", "q", "1"): (0, 1)})
    assert (one.pool_of("", ""), two.pool_of("", ""), two.pool_of("", "q")) == ("p", "", "q")
    assert one.pool_of("other", "") == ""
