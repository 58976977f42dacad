"""From an export to a verdict, without Spark: each rule, and each thing that only looks bad."""

from pathlib import Path

import pytest
from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.outputs import write_outputs
from tidemark_audit.results import AuditResult, IntervalKind, LossKind, Outcome, Verdict
from tidemark_audit.sources.detect import sources_at

from tests.support.audit_exports import Export, brokers, partition


def checked_proposal(export: Export, path: Path) -> AuditResult:
    return audit(LocalEngine(), sources_at([str(export.write(path / "export.jsonl"))]))


def outcome(result: AuditResult, rule: str) -> Outcome:
    return next(each.outcome for each in result.rules if each.rule == rule)


def test_a_quiet_cluster_passes(tmp_path: Path) -> None:
    export = Export()
    partition(export)
    brokers(export)
    result = checked_proposal(export, tmp_path)
    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    row = result.sli_by_partition[0]
    assert (row.healthy_ms, row.total_ms) == (119_000, 119_000)


def test_a_follower_out_of_sync_is_one_incident_of_its_broker(tmp_path: Path) -> None:
    export = Export()
    for number in range(3):
        partition(
            export,
            number=number,
            in_sync=lambda t: {1, 2} if 30_000 <= t < 60_000 else {1, 2, 3},
        )
    brokers(export)
    result = checked_proposal(export, tmp_path)
    assert result.verdict is Verdict.VIOLATED
    assert [(each.rule, each.subject) for each in result.findings] == [("R1", "broker 3")]
    assert len(result.findings[0].partitions) == 3
    found = [each for each in result.intervals if each.kind is IntervalKind.UNDER_REPLICATED]
    assert [(each.start_ms, each.end_ms) for each in found] == [(30_000, 60_000)] * 3


def test_a_planned_restart_is_shown_and_not_counted(tmp_path: Path) -> None:
    export = Export(length_ms=2_000_000, step_ms=5000)
    partition(export, in_sync=lambda t: {1, 2} if 30_000 <= t < 35_000 else {1, 2, 3})
    brokers(export, planned=lambda b, t: b == 3 and 28_000 <= t < 40_000)
    result = checked_proposal(export, tmp_path)
    assert (result.verdict, outcome(result, "R1")) == (Verdict.PASS, Outcome.KEPT)
    assert result.findings[0].planned
    assert result.sli_by_partition[0].degraded_planned_ms == 5000


@pytest.mark.parametrize(("counted_ms", "is_planned"), [(35_000, True), (50_000, False)])
def test_a_planned_restart_between_two_scrapes_is_known_by_its_count(
    counted_ms: int, is_planned: bool, tmp_path: Path
) -> None:
    export = Export(length_ms=2_000_000, step_ms=5000)
    partition(export, in_sync=lambda t: {1, 2} if 30_000 <= t < 35_000 else {1, 2, 3})
    brokers(export)
    for broker in (1, 2, 3):
        export.add(
            "broker_planned_restarts_total",
            lambda t, b=broker: 4 if b == 3 and t >= counted_ms else 3,
            pool="default/pool",
            broker=str(broker),
        )
    row = checked_proposal(export, tmp_path).sli_by_partition[0]
    degraded = (row.degraded_planned_ms, row.degraded_unplanned_ms)
    assert degraded == ((5000, 0) if is_planned else (0, 5000))


def test_a_restart_asked_for_later_makes_no_crash_planned(tmp_path: Path) -> None:
    export = Export()
    partition(export, in_sync=lambda t: {1, 2} if 30_000 <= t < 100_000 else {1, 2, 3})
    brokers(export, planned=lambda b, t: b == 3 and 60_000 <= t < 100_000)
    assert checked_proposal(export, tmp_path).sli_by_partition[0].degraded_unplanned_ms == 70_000


@pytest.mark.parametrize(("crashed_s", "is_planned"), [(0, False), (110, False), (250, True)])
def test_a_crash_before_the_operator_spoke_is_not_planned(
    crashed_s: int, is_planned: bool, tmp_path: Path
) -> None:
    """All is scraped once a minute; the word stands from four minutes after the hour to ten."""
    hour = 3_600_000
    export = Export(length_ms=2 * hour, step_ms=60_000)
    partition(
        export,
        in_sync=lambda t: {1, 2} if hour + 1000 * crashed_s <= t < hour + 600_000 else {1, 2, 3},
    )
    brokers(export, planned=lambda b, t: b == 3 and hour + 240_000 <= t < hour + 600_000)
    row = checked_proposal(export, tmp_path).sli_by_partition[0]
    assert (row.degraded_planned_ms > 0, row.degraded_unplanned_ms > 0) == (
        is_planned, not is_planned
    )  # fmt: skip


def test_a_leader_that_dies_leaves_its_partition_offline_until_the_next(tmp_path: Path) -> None:
    export = Export()
    partition(
        export,
        leader=lambda t: 1 if t < 30_000 else None if t < 34_000 else 2,
        in_sync=lambda t: {1, 2, 3} if t < 34_000 else {2, 3},
        epoch=lambda t: 5 if t < 34_000 else 6,
        is_up=lambda b, t: b != 1 or t < 30_000,
    )
    brokers(export)
    result = checked_proposal(export, tmp_path)
    assert result.sli_by_partition[0].offline_ms == 4000
    assert [(e.from_broker, e.to_broker, e.leader_epoch) for e in result.elections] == [
        ("1", "2", 6)
    ]
    assert outcome(result, "R2") is Outcome.VIOLATED


def test_committed_records_cut_from_a_log_are_a_loss(tmp_path: Path) -> None:
    export = Export()
    partition(export, without=frozenset({"replica_committed_truncated_records_total"}))
    brokers(export)
    export.add(
        "replica_committed_truncated_records_total",
        lambda t: 12 if t >= 50_000 else 0,
        topic="orders", topic_id="id-orders", partition="0", broker="2",
    )  # fmt: skip
    result = checked_proposal(export, tmp_path)
    assert (result.verdict, result.verdict.exit_code) == (Verdict.LOSS, 2)
    (evidence,) = result.loss_evidence
    assert (evidence.kind, evidence.records, evidence.after_ms, evidence.at_ms) == (
        LossKind.COMMITTED_TRUNCATION, 12, 49_000, 50_000
    )  # fmt: skip
    assert result.sentence == "at least 12 committed records lost in 1 partition"


def test_a_missing_family_is_not_evaluated_and_never_a_pass(tmp_path: Path) -> None:
    export = Export()
    partition(export, without=frozenset({"partition_leader_elections_total"}))
    brokers(export)
    result = checked_proposal(export, tmp_path)
    assert (result.verdict, outcome(result, "R6")) == (Verdict.INCONCLUSIVE, Outcome.NOT_EVALUATED)


def test_unobserved_time_makes_the_verdict_inconclusive(tmp_path: Path) -> None:
    export = Export()
    partition(export, is_up=lambda b, t: not 30_000 <= t < 60_000)
    brokers(export)
    result = checked_proposal(export, tmp_path)
    assert result.verdict is Verdict.INCONCLUSIVE
    # The last sample before the gap, at 29 s, stands for two and a half intervals.
    assert result.sli_by_partition[0].unobserved_ms == 60_000 - 31_500


@pytest.mark.parametrize("cut", [b'{"metric": {"__name__": "x"}, "valu', b"[1, 2]", b"{}"])
def test_half_a_line_is_an_error_with_its_place(tmp_path: Path, cut: bytes) -> None:
    from tidemark_audit.sources.source import SourceError

    path = tmp_path / "cut.jsonl"
    export = Export()
    partition(export)
    export.write(path)
    whole = path.read_bytes()
    path.write_bytes(whole + cut)
    with pytest.raises(SourceError) as failed:
        audit(LocalEngine(), sources_at([str(path)]))
    assert failed.value.place == f"{path}, byte {len(whole)}"


def test_a_follower_that_never_caught_up_has_an_age_without_end_and_a_report(
    tmp_path: Path,
) -> None:
    export = Export()
    partition(export, without=frozenset({"follower_caught_up_age_seconds"}))
    brokers(export)
    for follower in ("2", "3"):
        export.add(
            "follower_caught_up_age_seconds", -1,
            topic="orders", topic_id="id-orders", partition="0", broker="1", follower=follower,
        )  # fmt: skip
    result = checked_proposal(export, tmp_path)
    assert [lag.age_p99_seconds for lag in result.follower_lag] == [float("inf")] * 2
    assert outcome(result, "R4") is Outcome.VIOLATED
    write_outputs(result, tmp_path / "report")
    assert (tmp_path / "report" / "report.html").stat().st_size > 0


def test_the_limit_of_lag_is_that_of_the_slowest_followers_topic(tmp_path: Path) -> None:
    """Which the plot of lag shows as the objective."""
    export = Export()
    partition(export, without=frozenset({"partition_replica_lag_max_seconds"}))
    brokers(export)
    export.add(
        "partition_replica_lag_max_seconds", 30,
        topic="orders", topic_id="id-orders", partition="0", broker="1",
    )  # fmt: skip
    (rule,) = [each for each in checked_proposal(export, tmp_path).rules if each.rule == "R4"]
    assert rule.limit == pytest.approx(10.0)


def test_a_verdict_without_r6_does_not_say_that_no_loss_was_shown(tmp_path: Path) -> None:
    export = Export()
    partition(
        export,
        in_sync=lambda t: {1, 2, 3} if t < 40_000 else {1, 2},
        without=frozenset({"replica_committed_truncated_records_total"}),
    )
    brokers(export)
    result = checked_proposal(export, tmp_path)
    assert result.verdict is Verdict.VIOLATED
    assert result.sentence.startswith("loss not evaluated, but R1")
