"""A counter above 0 in its first sample is one increase, in the window of that sample."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tidemark_audit.analysis.counter_increases import (
    CounterIncrease,
    counted_steps,
    first_rise,
    stood_at_start,
)
from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult, LossKind, Outcome, Severity, Verdict
from tidemark_audit.sources.detect import sources_at
from tidemark_audit.sources.source import Window

from tests.support.audit_exports import Export, brokers, partition
from tests.support.audit_series import CAP_MS, at_each_second, context, gone, merged, series

LENGTH_MS = 1_800_000
STEP_MS = 5000
ORDERS = {"topic": "orders", "topic_id": "id-orders", "partition": "0"}
CUT, GAP = "replica_committed_truncated_records_total", "partition_election_committed_gap_records"
LOST = "partition_recovery_lost_committed_records"


def cluster(name: str, value: Callable[[int], float | None], **labels: str) -> Export:
    """A quiet one, but for one series of the family."""
    export = Export(length_ms=LENGTH_MS, step_ms=STEP_MS)
    partition(export, without=frozenset({name}))
    brokers(export)
    export.add(name, value, **ORDERS, **labels)
    others = {"1", "2", "3"} - {labels["broker"]} if name == CUT else set()
    for broker in sorted(others):
        export.add(name, 0, **ORDERS, broker=broker)
    return export


def checked_proposal(export: Export, path: Path, start_ms: int | None = None) -> AuditResult:
    sources = sources_at([str(export.write(path / "export.jsonl"))])
    return audit(LocalEngine(), sources, window=Window(start_ms, LENGTH_MS))


def durability(result: AuditResult) -> Outcome:
    return next(each.outcome for each in result.rules if each.rule == "R6")


def without(export: Export, lost: Callable[[dict[str, str], int], bool]) -> None:
    for key, samples in export.series.items():
        labels = dict(key)
        samples[:] = [(at_ms, value) for at_ms, value in samples if not lost(labels, at_ms)]


def test_a_broker_that_comes_back_with_its_counter_up_cut_these_records_now(
    tmp_path: Path,
) -> None:
    export = Export(length_ms=LENGTH_MS, step_ms=STEP_MS)
    partition(
        export,
        in_sync=lambda t: {1, 2} if t < 700_000 else {1, 2, 3},
        is_up=lambda b, t: b != 3 or t >= 600_000,
        without=frozenset({CUT}),
    )
    brokers(export)
    without(
        export,
        lambda labels, t: (
            labels["__name__"] == "tidemark_broker_epoch"
            and labels["broker"] == "3"
            and t < 600_000
        ),
    )
    export.add(CUT, lambda t: 500 if t >= 600_000 else None, **ORDERS, broker="3")
    result = checked_proposal(export, tmp_path)
    assert result.verdict is Verdict.LOSS
    assert [(each.kind, each.records) for each in result.loss_evidence] == [
        (LossKind.COMMITTED_TRUNCATION, 500)
    ]


def test_a_broker_that_lived_unscraped_may_have_cut_them_before_the_window(tmp_path: Path) -> None:
    export = cluster(CUT, lambda t: 500, broker="3")
    without(export, lambda labels, t: labels.get("broker") == "3" and t < 600_000)
    result = checked_proposal(export, tmp_path)
    assert (result.verdict, result.loss_evidence) == (Verdict.VIOLATED, ())
    assert durability(result) is Outcome.VIOLATED


@pytest.mark.parametrize(("family", "labels"), [(CUT, {"broker": "1"}), (GAP, {"broker": "1"}),
                                                (LOST, {"pool": "default/pool"})])  # fmt: skip
@pytest.mark.parametrize("seen_at_ms", [0, STEP_MS, 2 * STEP_MS])
def test_what_is_up_at_the_first_sight_of_all_leaves_no_rule_of_durability_kept(
    family: str, labels: dict[str, str], seen_at_ms: int, tmp_path: Path
) -> None:
    export = cluster(family, lambda t: 100 if t >= seen_at_ms else None, **labels)
    result = checked_proposal(export, tmp_path)
    assert (result.verdict, durability(result)) == (Verdict.VIOLATED, Outcome.VIOLATED)
    assert "100 committed records were lost" in result.findings[0].sentence


@pytest.mark.parametrize(("family", "labels"), [(CUT, {"broker": "1"}), (GAP, {"broker": "1"}),
                                                (LOST, {"pool": "default/pool"})])  # fmt: skip
def test_a_loss_between_the_last_scrape_of_a_window_and_the_first_of_the_next_is_the_nexts(
    family: str, labels: dict[str, str], tmp_path: Path
) -> None:
    export = cluster(family, lambda t: 100 if t >= 600_000 else 0, **labels)
    result = checked_proposal(export, tmp_path, start_ms=597_000)
    assert result.verdict is Verdict.LOSS
    assert [(each.after_ms, each.at_ms) for each in result.loss_evidence] == [(595_000, 600_000)]


@pytest.mark.parametrize(("family", "labels"), [(CUT, {"broker": "1"}), (GAP, {"broker": "1"}),
                                                (LOST, {"pool": "default/pool"})])  # fmt: skip
@pytest.mark.parametrize("since_ms", [0, 500_000])
def test_what_an_earlier_window_told_is_shown_and_is_no_loss_of_this_one(
    family: str, labels: dict[str, str], since_ms: int, tmp_path: Path
) -> None:
    export = cluster(family, lambda t: 100 if t >= since_ms else 0, **labels)
    result = checked_proposal(export, tmp_path, start_ms=600_000)
    assert (result.verdict, result.loss_evidence) == (Verdict.PASS, ())
    assert [(each.severity, each.sentence) for each in result.findings] == [
        (Severity.MAJOR, "100 committed records were lost before this window")
    ]


def test_a_checkpoints_first_kept_stretch_holds_what_stood_before_its_window(
    tmp_path: Path,
) -> None:
    from tidemark_audit.audit import AuditRequest, audit_what_if

    export = cluster(CUT, lambda t: 100 if t >= 600_000 else 0, broker="1")
    sources = sources_at([str(export.write(tmp_path / "export.jsonl"))])
    requested = AuditRequest(Window(597_000, LENGTH_MS), checkpoint=tmp_path / "kept")
    result, _ = audit_what_if(LocalEngine(), sources, requested, None)
    assert (result.verdict, result.window_start_ms) == (Verdict.LOSS, 597_000)


def test_a_topic_deleted_just_before_the_window_is_none_of_its(tmp_path: Path) -> None:
    export = Export(length_ms=LENGTH_MS, step_ms=STEP_MS)
    partition(export)
    partition(export, topic="gone", topic_id="id-gone")
    brokers(export)
    without(export, lambda labels, t: labels.get("topic") == "gone" and t >= 500_000)
    result = checked_proposal(export, tmp_path, start_ms=600_000)
    assert (result.verdict, [row.topic for row in result.sli_by_partition]) == (
        Verdict.PASS, ["orders"]
    )  # fmt: skip


def up_since(first_s: int, *, seen_ms: int | None, window_s: int = 10) -> CounterIncrease:
    """Judge a counter of broker 1, which is up at its first sample; its broker was seen then."""
    counter = merged(CUT, at_each_second(4, since_s=first_s), broker="1")
    seen = {} if seen_ms is None else {("", "", "1"): (seen_ms, 60_000)}
    within = context(
        window_s=(window_s, 60), broker_seen_ms=seen, cluster_since_ms={"": seen_ms or 0}
    )
    return first_rise(series(counter, within=within), counter)


def test_a_counter_that_appears_long_after_its_exporter_rose_meanwhile() -> None:
    assert up_since(20, seen_ms=20_000 - CAP_MS - 1) is CounterIncrease.WITHIN
    assert up_since(20, seen_ms=20_000 - CAP_MS) is CounterIncrease.UNKNOWN


def test_a_counter_that_stood_before_the_window_rose_earlier() -> None:
    assert up_since(9, seen_ms=9000) is CounterIncrease.EARLIER
    assert up_since(10, seen_ms=10_000) is CounterIncrease.UNKNOWN


def test_a_counter_of_an_exporter_that_nobody_saw_rose_at_an_unknown_time() -> None:
    assert up_since(20, seen_ms=None) is CounterIncrease.UNKNOWN


@pytest.mark.parametrize(
    ("was_in_sync", "rise"), [(False, CounterIncrease.WITHIN), (True, CounterIncrease.UNKNOWN)]
)
def test_a_broker_first_seen_within_the_window_started_unless_it_was_in_sync_before(
    was_in_sync: bool, rise: CounterIncrease
) -> None:
    counter = merged(CUT, at_each_second(4, since_s=30), broker="1")
    word = merged("follower_in_sync", at_each_second(was_in_sync), broker="2", follower="1")
    within = context(broker_seen_ms={("", "", "1"): (30_000, 60_000)}, cluster_since_ms={"": 0})
    of = series(counter, word, within=within)
    assert first_rise(of, counter) is rise
    expected = [4.0] if rise is CounterIncrease.WITHIN else []
    assert [step.by for step in counted_steps(of, counter)] == expected


def test_what_stood_at_the_start_is_the_last_value_before_the_window() -> None:
    counter = merged(CUT, at_each_second(1, 3, gone(), 7), broker="1")
    stood = [
        stood_at_start(series(counter, within=context(window_s=(start, 60))), counter)
        for start in (0, 1, 2, 3, 4)
    ]
    assert stood == [0.0, 1.0, 3.0, 3.0, 7.0]
    assert counted_steps(series(), None) == []
