"""Evidence of lost records, by kind: counters, digests, and watermarks that go back."""

from collections.abc import Callable
from pathlib import Path

from tidemark_audit.analysis.loss import loss_of
from tidemark_audit.analysis.partition_timeline import Series
from tidemark_audit.analysis.series import MergedSeries
from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult, LossKind, Verdict
from tidemark_audit.sources.detect import sources_at

from tests.support.audit_exports import Export, brokers, partition
from tests.support.audit_series import at_each_second, context, merged, series

STEP_MS = 15_000
STALE_AT_MS = 600_000
ORDERS = {"topic": "orders", "topic_id": "id-orders", "partition": "0"}


def checked_proposal(export: Export, path: Path) -> AuditResult:
    return audit(LocalEngine(), sources_at([str(export.write(path / "export.jsonl"))]))


def one_failed_scrape(value: Callable[[int], float]) -> Export:
    """Of the leader's watermark, with the stale marker (NaN) that Prometheus then writes."""
    export = Export(length_ms=1_200_000, step_ms=STEP_MS)
    partition(export, without=frozenset({"replica_high_watermark_offset"}))
    brokers(export)
    export.add(
        "replica_high_watermark_offset",
        lambda t: float("nan") if t == STALE_AT_MS else value(t),
        **ORDERS, broker="1",
    )  # fmt: skip
    return export


def test_a_watermark_that_goes_back_over_a_failed_scrape_is_a_loss(tmp_path: Path) -> None:
    result = checked_proposal(
        one_failed_scrape(lambda t: 1000 if t < STALE_AT_MS else 600), tmp_path
    )
    assert result.verdict is Verdict.LOSS
    assert [(each.kind, each.records) for each in result.loss_evidence] == [
        (LossKind.HIGH_WATERMARK_REGRESS, 400)
    ]


def test_a_failed_scrape_alone_is_none(tmp_path: Path) -> None:
    assert checked_proposal(one_failed_scrape(lambda t: t // 10), tmp_path).loss_evidence == ()


def handed_over(new_end: Callable[[int], int]) -> Export:
    """From broker 1 to 2 in a new epoch, whose first offset nobody says; 1000 were committed."""
    export = Export(length_ms=1_200_000, step_ms=STEP_MS)
    partition(
        export,
        leader=lambda t: 1 if t < STALE_AT_MS else 2,
        epoch=lambda t: 5 if t < STALE_AT_MS else 6,
        end_offset=lambda t: 1000 if t < STALE_AT_MS else new_end(t),
    )
    brokers(export)
    return export


def test_a_leader_whose_log_ends_below_what_was_committed_lacks_it(tmp_path: Path) -> None:
    result = checked_proposal(handed_over(lambda t: 700), tmp_path)
    assert [(each.kind, each.records) for each in result.loss_evidence] == [
        (LossKind.LEADER_BELOW_HIGH_WATERMARK, 300)
    ]


def test_a_leader_whose_log_goes_on_lacks_nothing(tmp_path: Path) -> None:
    result = checked_proposal(handed_over(lambda t: 1000 + (t - STALE_AT_MS) // 100), tmp_path)
    assert result.loss_evidence == ()


def replica(broker: str, epochs: list[float], *, leads: bool) -> list[MergedSeries]:
    """One that leads or follows, in one epoch each second."""
    return [
        merged("replica_leader_epoch", at_each_second(*epochs), broker=broker),
        merged("replica_is_leader", at_each_second(*[leads] * len(epochs)), broker=broker),
    ]


def found(of: Series) -> list[tuple[LossKind, int, int | None, int]]:
    return [(each.kind, each.at_ms, each.records, each.leader_epoch) for each in loss_of(of)]


def test_a_counter_of_truncated_records_that_rises_is_a_loss_of_its_window() -> None:
    family = "replica_committed_truncated_records_total"
    counter = merged(family, at_each_second(2, 2, 12), broker="1")
    of = [counter, *replica("1", [6, 6, 7], leads=False)]
    assert found(series(*of)) == [(LossKind.COMMITTED_TRUNCATION, 2000, 10, 7)]
    assert found(series(*of, within=context(window_s=(3, 9)))) == []


def test_a_gap_of_an_election_is_told_once_for_each_epoch_and_number() -> None:
    family = "partition_election_committed_gap_records"
    gaps = merged(family, at_each_second(0, 5, 0, 5, 5), broker="1")
    same = series(gaps, *replica("1", [6, 7, 7, 7, 7], leads=True))
    assert found(same) == [(LossKind.ELECTION_GAP, 1000, 5, 7)]
    other = series(gaps, *replica("1", [6, 7, 7, 8, 8], leads=True))
    assert [each[1] for each in found(other)] == [1000, 3000]


def test_two_digests_of_one_boundary_in_one_epoch_are_a_loss_of_unknown_size() -> None:
    def digests(second: float, boundary: float = 100, epoch: float = 6) -> Series:
        return series(
            *replica("1", [6, 6], leads=True),
            *replica("2", [epoch, epoch], leads=False),
            merged("replica_digest_offset", at_each_second(100, 100), broker="1"),
            merged("replica_digest_offset", at_each_second(boundary, boundary), broker="2"),
            merged("replica_digest", at_each_second(77, 77), broker="1"),
            merged("replica_digest", at_each_second(second, second), broker="2"),
        )

    assert found(digests(78)) == [(LossKind.DIGEST_MISMATCH, 0, None, 6)]
    assert found(digests(77)) == []
    assert found(digests(78, boundary=200)) == []
    assert found(digests(78, epoch=7)) == []


def test_a_watermark_that_goes_back_is_a_loss_of_a_leader_within_its_epoch_only() -> None:
    def watermark(*epochs: float, leads: bool = True) -> Series:
        marks = merged("replica_high_watermark_offset", at_each_second(10, 20, 15), broker="1")
        return series(marks, *replica("1", list(epochs), leads=leads))

    assert found(watermark(6, 6, 6)) == [(LossKind.HIGH_WATERMARK_REGRESS, 2000, 5, 6)]
    (evidence,) = loss_of(watermark(6, 6, 6))
    assert evidence.offsets == (15, 19)
    assert found(watermark(6, 6, 6, leads=False)) == []
    assert found(watermark(6, 6, 7)) == []


def test_an_epoch_that_starts_below_an_earlier_watermark_lacks_records() -> None:
    def starting(offset: float) -> Series:
        return series(
            *replica("1", [6, 6], leads=False),
            merged("replica_high_watermark_offset", at_each_second(40, 50), broker="1"),
            merged("replica_leader_epoch", [(2, 7), (3, 7)], broker="2"),
            merged("replica_is_leader", [(2, 1), (3, 1)], broker="2"),
            merged("replica_leader_epoch_start_offset", [(2, offset), (3, offset)], broker="2"),
        )

    assert found(starting(45)) == [(LossKind.LEADER_BELOW_HIGH_WATERMARK, 2000, 5, 7)]
    assert found(starting(50)) == []


def test_what_a_recovery_lost_is_of_its_own_epoch_and_starts_where_that_epoch_does() -> None:
    lost = merged("partition_recovery_lost_committed_records", at_each_second(0, 4), detail="all")
    epoch = merged("partition_recovery_epoch", at_each_second(3, 7), detail="all")
    start = merged("replica_leader_epoch_start_offset", at_each_second(-1, 30), broker="1")
    (evidence,) = loss_of(series(lost, epoch, start, *replica("1", [6, 7], leads=True)))
    assert (evidence.kind, evidence.records, evidence.leader_epoch) == (LossKind.RECOVERY, 4, 7)
    assert evidence.offsets == (30, 33)
