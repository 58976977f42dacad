"""What must never be: two leaders in an epoch, an epoch that goes back, unclean elections."""

from pathlib import Path

from tidemark_audit.analysis.anomalies import AnomalyKind, anomalies_of
from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult
from tidemark_audit.sources.detect import sources_at

from tests.support.audit_exports import Export, brokers, partition
from tests.support.audit_series import at_each_second, context, merged, series

ORDERS = {"topic": "orders", "topic_id": "id-orders", "partition": "0"}
SECONDS = 1000


def checked_proposal(path: Path, export: Export) -> AuditResult:
    return audit(LocalEngine(), sources_at([str(export.write(path / "export.jsonl"))]))


def claiming(length_ms: int, claims: dict[str, set[int]]) -> Export:
    """Each broker leads in the given seconds; all are in one epoch."""
    export = Export(length_ms=length_ms)
    partition(export, without=frozenset({"replica_is_leader"}))
    brokers(export)
    for broker, seconds in claims.items():
        export.add(
            "replica_is_leader", lambda t, s=seconds: t // SECONDS in s, **ORDERS, broker=broker
        )
    return export


def reported(result: AuditResult) -> list[tuple[str, int, int]]:
    return [
        (each.sentence, each.start_ms // SECONDS, each.end_ms // SECONDS)
        for each in result.findings
        if "both leader" in each.sentence
    ]


def test_each_pair_is_told_with_the_time_that_they_share(tmp_path: Path) -> None:
    claims = {"1": set(range(20, 50)), "2": set(range(40, 70)), "3": {10, 11, *range(45, 48)}}
    assert reported(checked_proposal(tmp_path, claiming(100_000, claims))) == [
        ("brokers 1 and 2 were both leader in leader epoch 5", 40, 49),
        ("brokers 1 and 3 were both leader in leader epoch 5", 45, 47),
        ("brokers 2 and 3 were both leader in leader epoch 5", 45, 47),
    ]


def test_who_leads_one_after_the_other_is_none(tmp_path: Path) -> None:
    claims = {"1": {*range(20, 40), *range(60, 80)}, "2": set(range(40, 60)), "3": set[int]()}
    assert reported(checked_proposal(tmp_path, claiming(100_000, claims))) == []


def test_a_leader_whose_epoch_goes_back_is_told_once() -> None:
    leads = merged("replica_is_leader", at_each_second(*[1] * 6), broker="1")
    epochs = merged("replica_leader_epoch", at_each_second(5, 7, 7, 6, 6, 7), broker="1")
    (found,) = anomalies_of(series(leads, epochs))
    assert (found.kind, found.after_ms, found.at_ms) == (AnomalyKind.EPOCH_REGRESS, 2000, 3000)
    assert found.sentence == "broker 1 is leader in epoch 6 after epoch 7"


def test_the_epoch_of_a_follower_may_go_back() -> None:
    follows = merged("replica_is_leader", at_each_second(0, 0), broker="1")
    epochs = merged("replica_leader_epoch", at_each_second(7, 6), broker="1")
    assert anomalies_of(series(follows, epochs)) == []


def test_an_unclean_election_is_told_by_the_counter_or_else_by_its_epoch() -> None:
    counter = merged("partition_leader_elections_total", at_each_second(0, 0, 1), detail="unclean")
    epoch = merged("partition_recovery_epoch", at_each_second(3, 3, 6), detail="majority-lost")
    kinds = AnomalyKind.UNCLEAN_ELECTION
    (counted,) = anomalies_of(series(counter, epoch))
    assert (counted.kind, counted.at_ms) == (kinds, 2000)
    assert counted.sentence == "1 leader(s) elected that may lack committed records"
    (alone,) = anomalies_of(series(epoch))
    assert (alone.kind, alone.sentence) == (
        kinds,
        "unclean election of leader epoch 6 (majority-lost)",
    )


def test_what_lies_before_the_window_is_an_earlier_windows() -> None:
    counter = merged("partition_leader_elections_total", at_each_second(0, 0, 1), detail="unclean")
    assert len(anomalies_of(series(counter, within=context(window_s=(2, 9))))) == 1
    assert anomalies_of(series(counter, within=context(window_s=(3, 9)))) == []


def test_a_latched_loss_that_stood_before_the_window_names_the_largest_value() -> None:
    family = "replica_committed_truncated_records_total"
    counters = [
        merged(family, at_each_second(*[value] * 5), broker=broker)
        for broker, value in (("1", 3), ("2", 9), ("3", 0))
    ]
    (found,) = anomalies_of(series(*counters, within=context(window_s=(2, 9))))
    assert found.kind is AnomalyKind.LOSS_ON_RECORD
    assert found.sentence == "9 committed records were lost before this window"
    (unknown,) = anomalies_of(series(*counters))
    assert unknown.kind is AnomalyKind.LOSS_OF_UNKNOWN_TIME
