"""What is lost once is counted once, however often and wherever it shows."""

import shlex
from pathlib import Path

import pytest
from tidemark_audit.analysis.anomalies import Anomaly, AnomalyKind
from tidemark_audit.audit import run
from tidemark_audit.report.page import render_html
from tidemark_audit.results import Confidence, LossEvidence, LossKind, TopicPartition
from tidemark_audit.rules.r6_durability import losses, lost_records, remedy_of
from tidemark_cli.arguments import parse

from tests.support.audit_exports import Export, brokers, partition

ORDERS = TopicPartition("orders", 0, "id-orders")
GAP, CUT = LossKind.ELECTION_GAP, LossKind.COMMITTED_TRUNCATION


def evidence(kind: LossKind, epoch: int, records: int, since: int | None = None) -> LossEvidence:
    return LossEvidence(
        ORDERS, kind, 0, 1, epoch, records, Confidence.PROVED, kind.value, since_epoch=since
    )


def test_an_old_leader_that_cuts_in_a_later_epoch_tells_of_the_same_loss() -> None:
    """Epoch 6 lacked 100 records, a clean election made 7, and the leader of 5 came back."""
    reported = [evidence(GAP, 6, 100), evidence(CUT, 7, 100, since=5)]
    assert (lost_records(reported), len(losses(reported))) == (100, 1)


def test_losses_of_epochs_that_do_not_overlap_add_up() -> None:
    apart = [evidence(GAP, 6, 100), evidence(GAP, 7, 50)]
    assert (lost_records(apart), len(losses(apart))) == (150, 2)
    assert lost_records([*apart, evidence(CUT, 7, 100, since=5)]) == 150
    assert lost_records([*apart, evidence(CUT, 7, 170, since=5)]) == 170


def test_evidence_of_an_unknown_epoch_may_be_of_any_loss() -> None:
    reported = [evidence(GAP, 6, 100), evidence(LossKind.RECOVERY, -1, 80)]
    assert lost_records(reported) == 100


def a_loss(topic: str = "orders", starts_at: int = -1) -> Export:
    """Leader 2 of epoch 6 lacked 100 records; leader 3 of 7 was clean; broker 1 came back."""
    export = Export(length_ms=1_800_000, step_ms=5000)
    families = (
        "partition_election_committed_gap_records",
        "replica_committed_truncated_records_total",
        "replica_leader_epoch_start_offset",
    )

    def leader(at_ms: int) -> int:
        return 1 if at_ms < 300_000 else 2 if at_ms < 600_000 else 3

    partition(
        export,
        topic=topic,
        leader=leader,
        epoch=lambda t: 4 + leader(t),
        in_sync=lambda t: {1, 2, 3} if t < 300_000 or t > 800_000 else {2, 3},
        is_up=lambda b, t: b != 1 or t < 300_000 or t >= 700_000,
        without=frozenset(families),
    )
    brokers(export)
    about = {"topic": topic, "topic_id": "id-orders", "partition": "0"}
    gap, cut, starts = families
    for broker in ("2", "3"):
        export.add(
            starts, lambda t: starts_at if 300_000 <= t < 600_000 else -1, **about, broker=broker
        )
    export.add(gap, lambda t: 100 if leader(t) == 2 else None, **about, broker="2")
    for broker in ("2", "3"):
        export.add(cut, 0, **about, broker=broker)
    export.add(
        cut, lambda t: 0 if t < 300_000 else 100 if t >= 720_000 else None, **about, broker="1"
    )
    return export


def test_the_samples_of_such_a_loss_are_counted_once(tmp_path: Path) -> None:
    result = run(None, [str(a_loss().write(tmp_path / "export.jsonl"))])
    assert [(e.kind, e.leader_epoch) for e in result.loss_evidence] == [(GAP, 6), (CUT, 7)]
    assert result.sentence == "at least 100 committed records lost in 1 partition"


def test_a_loss_is_told_once_with_its_offsets_and_a_command(tmp_path: Path) -> None:
    export = a_loss("pay ments", starts_at=29_400)
    result = run(None, [str(export.write(tmp_path / "export.jsonl"))])
    (reported,) = [each for each in result.findings if each.subject == "pay ments-0"]
    what, where = reported.sentence.split(": ")
    assert what == "at least 100 committed records lost"
    assert where == "pay ments-0, offsets 29400 to 29499, by leader epoch 6"
    assert (
        "`tidemark consume 'pay ments' --partition 0 --from 29400 --max 100 --until-end`"
        in reported.remedy
    )
    assert reported.cause.count("became leader with 100 records less") == 1
    assert reported.cause.count("truncated 100 records") == 1
    assert "offsets 29400 to 29499, " in render_html(result)


def test_a_loss_without_known_offsets_names_none(tmp_path: Path) -> None:
    result = run(None, [str(a_loss().write(tmp_path / "export.jsonl"))])
    (reported,) = [each for each in result.findings if each.subject == "orders-0"]
    assert reported.sentence == "at least 100 committed records lost: orders-0, by leader epoch 6"
    assert "`tidemark consume orders --partition 0 --from earliest --until-end`" in reported.remedy


@pytest.mark.parametrize("kind", AnomalyKind)
def test_no_remedy_needs_the_load_file_of_an_experiment(kind: AnomalyKind) -> None:
    where = TopicPartition("pay ments", 3, "id-pay")
    anomaly = Anomaly(kind, 0, 1, "what happened", Confidence.PROVED, ())
    remedy = remedy_of(anomaly, where)
    assert "tidemark verify" not in remedy
    assert "{" not in remedy
    commands = [part for number, part in enumerate(remedy.split("`")) if number % 2]
    for command in commands:
        words = shlex.split(command)
        parsed = parse(words[1:])
        assert (parsed.topic, parsed.partition) == ("pay ments", 3)
