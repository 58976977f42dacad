"""`report.json` holds everything that an audit found."""

from tidemark_audit.results import (
    AuditResult,
    Confidence,
    Coverage,
    Election,
    Finding,
    FollowerLag,
    Interval,
    IntervalKind,
    LossEvidence,
    LossKind,
    Outcome,
    RuleResult,
    Sample,
    Severity,
    SliRow,
    SourceInfo,
    TopicPartition,
    Verdict,
    from_json,
    to_json,
)

PARTITION = TopicPartition("orders", 1, "id-1")


def a_result() -> AuditResult:
    sample = Sample('tidemark_replica_leader_epoch{broker="1"}', 1_000, 7.0)
    return AuditResult(
        verdict=Verdict.LOSS,
        sentence="12 committed records are lost",
        clusters=("main",),
        window_start_ms=0,
        window_end_ms=60_000,
        unsettled_ms=0,
        scrape_interval_ms=1_000,
        engine="local",
        wall_seconds=0.5,
        sources=(SourceInfo("export.jsonl", "API JSON lines", 100, 4),),
        rules=(RuleResult("R1", "fully replicated", Outcome.KEPT, ">= 99.9 %", "100 %", 1.0),),
        sli_by_topic=(SliRow("orders", None, "id-1", 1, 50_000, 0, 5_000, 5_000, 0, 0),),
        sli_by_partition=(SliRow("orders", 1, "id-1", 1, 50_000, 0, 5_000, 5_000, 0, 0),),
        intervals=(Interval(PARTITION, IntervalKind.UNDER_MIN_ISR, 1_000, 6_000, brokers=("2",)),),
        follower_lag=(FollowerLag(PARTITION, "2", 9, 0, 0.0, 0.1, 0.2, 0.3, 1, 2, 3, None),),
        lag_bands=(),
        elections=(Election(PARTITION, 1_000, 2_000, "unclean", "1", "2", 8),),
        isr_changes=(),
        loss_evidence=(
            LossEvidence(
                PARTITION, LossKind.ELECTION_GAP, 1, 2, 8, 12, Confidence.PROVED, "lost", (sample,)
            ),
        ),
        coverage=(Coverage(PARTITION, 60_000, 60_000, 100),),
        burn=(),
        findings=(
            Finding(
                "f00", "R6", Severity.CRITICAL, "orders-1", 1, 2, "s", "c", "r", "d",
                Confidence.PROVED, partitions=(PARTITION,), samples=(sample,),
            ),
        ),
    )  # fmt: skip


def test_a_result_survives_its_json() -> None:
    assert from_json(to_json(a_result())) == a_result()


def test_the_buckets_of_an_sli_row_add_up_to_its_window() -> None:
    row = SliRow("orders", 0, "", 1, 1, 2, 3, 4, 5, 6)
    assert (row.observed_ms, row.total_ms) == (15, 21)


def test_each_verdict_has_its_exit_code() -> None:
    assert [verdict.exit_code for verdict in Verdict] == [0, 1, 2, 3, 4]
