"""Every exporter that would report a loss must have been seen, else durability is open."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tidemark_audit.analysis.context import Context
from tidemark_audit.analysis.partition_timeline import timeline_of
from tidemark_audit.analysis.reporting_coverage import COUNTER, OPERATOR, Reporter, reporters_of
from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult, Outcome, Verdict
from tidemark_audit.sources.detect import sources_at

from tests.support.audit_exports import Export, brokers, partition
from tests.support.audit_series import (
    CAP_MS,
    Samples,
    at_each_second,
    context,
    leading,
    merged,
    series,
)

LENGTH_MS = 1_800_000


def cluster() -> Export:
    export = Export(length_ms=LENGTH_MS, step_ms=5000)
    for number in range(3):
        partition(export, number=number)
    brokers(export)
    return export


def checked_proposal(export: Export, path: Path) -> AuditResult:
    return audit(LocalEngine(), sources_at([str(export.write(path / "export.jsonl"))]))


def without(export: Export, lost: Callable[[dict[str, str], int], bool]) -> Export:
    for key, samples in export.series.items():
        labels = dict(key)
        samples[:] = [(at_ms, value) for at_ms, value in samples if not lost(labels, at_ms)]
    return export


def of_the_operator(labels: dict[str, str]) -> bool:
    return "pool" in labels and "broker_epoch" not in labels["__name__"]


@pytest.mark.parametrize(
    ("lost", "subject"),
    [
        (lambda labels, t: of_the_operator(labels) and t > 60_000, "the operator without samples"),
        (lambda labels, t: labels.get("broker") == "3", "broker 3 without samples"),
        (lambda labels, t: labels.get("broker") == "3" and t > 60_000, "broker 3 without samples"),
        (
            lambda labels, t: labels.get("broker") == "3" and labels.get("partition") == "1",
            "broker 3 without samples",
        ),
    ],
    ids=["operator early only", "broker never", "broker early only", "one replica never"],
)
def test_an_exporter_that_was_not_heard_leaves_durability_open(
    lost: Callable[[dict[str, str], int], bool], subject: str, tmp_path: Path
) -> None:
    result = checked_proposal(without(cluster(), lost), tmp_path)
    outcomes = {each.rule: each.outcome for each in result.rules}
    assert result.coverage[0].ratio == 1.0
    assert (outcomes["R6"], outcomes["R8"]) == (Outcome.NOT_EVALUATED, Outcome.VIOLATED)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert [each.subject for each in result.findings] == [subject]


def test_a_process_that_is_heard_again_tells_of_the_time_between(tmp_path: Path) -> None:
    export = without(
        cluster(), lambda labels, t: labels.get("broker") == "3" and 300_000 < t < 900_000
    )
    assert checked_proposal(export, tmp_path).verdict is Verdict.PASS


def test_another_process_knows_nothing_of_the_time_before_it(tmp_path: Path) -> None:
    def unheard(labels: dict[str, str], at_ms: int) -> bool:
        if labels["__name__"] == "tidemark_broker_epoch" and labels["broker"] == "3":
            return True
        return labels.get("broker") == "3" and 300_000 < at_ms < 900_000

    export = without(cluster(), unheard)
    export.add(
        "broker_epoch",
        lambda t: 7 if t <= 300_000 else 8 if t >= 900_000 else None,
        pool="default/pool", broker="3",
    )  # fmt: skip
    assert checked_proposal(export, tmp_path).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("first_scrape_ms", "durability"),
    [(45_000, Outcome.KEPT), (60_000, Outcome.NOT_EVALUATED)],
    ids=["within two and a half scrapes", "later"],
)
def test_the_first_scrape_of_a_restarted_process_tells_of_the_time_just_before_it(
    first_scrape_ms: int, durability: Outcome, tmp_path: Path
) -> None:
    """A broker that is killed is in sync again before Prometheus finds it."""
    export = Export(length_ms=120_000, step_ms=5000)
    partition(
        export,
        in_sync=lambda t: {1, 2} if 20_000 <= t < 35_000 else {1, 2, 3},
        is_up=lambda broker, t: broker != 3 or not 20_000 <= t < first_scrape_ms,
    )
    brokers(
        export,
        epoch=lambda broker, t: (
            7 if broker != 3 or t < 20_000 else 8 if t >= first_scrape_ms else None
        ),
    )
    result = checked_proposal(export, tmp_path)
    assert {each.rule: each.outcome for each in result.rules}["R6"] is durability


def test_without_the_first_offsets_of_epochs_durability_is_open(tmp_path: Path) -> None:
    """As brokers of the profile `minimal` export."""
    export = without(
        cluster(), lambda labels, t: "replica_leader_epoch_start_offset" in labels["__name__"]
    )
    result = checked_proposal(export, tmp_path)
    assert {each.rule: each.outcome for each in result.rules}["R6"] is Outcome.NOT_EVALUATED


@pytest.mark.parametrize(
    "ends",
    [
        lambda labels: "topic" in labels,
        lambda labels: labels.get("topic") in ("clicks", "views"),
    ],
    ids=["all", "most, of two topics"],
)
def test_a_half_export_is_no_mass_of_deleted_topics(
    ends: Callable[[dict[str, str]], bool], tmp_path: Path
) -> None:
    export = Export(length_ms=LENGTH_MS, step_ms=5000)
    for topic in ("orders", "clicks", "views"):
        partition(export, topic=topic, topic_id=f"id-{topic}")
    brokers(export)
    result = checked_proposal(
        without(export, lambda labels, t: ends(labels) and t > 900_000), tmp_path
    )
    assert result.verdict is Verdict.INCONCLUSIVE
    assert [each.subject for each in result.findings] == ["series end"]


def test_one_topic_that_is_deleted_is_no_half_export(tmp_path: Path) -> None:
    export = cluster()
    partition(export, topic="gone", topic_id="id-gone")
    without(export, lambda labels, t: labels.get("topic") == "gone" and t > 900_000)
    assert checked_proposal(export, tmp_path).verdict is Verdict.PASS


def test_a_partition_that_nobody_ever_saw_is_not_made_up_for_by_ninety_nine(tmp_path: Path) -> None:
    export = Export(length_ms=300_000, step_ms=15_000)
    for number in range(100):
        partition(export, number=number)
    brokers(export)
    without(
        export,
        lambda labels, t: (
            labels.get("partition") == "7" and "partition_in_sync" in labels["__name__"]
        ),
    )
    result = checked_proposal(export, tmp_path)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert [each.subject for each in result.findings] == ["orders-7 unobserved"]


def reporters(counter: Samples, within: Context, in_sync: float = 1) -> dict[str, Reporter]:
    """Broker 1 leads for twenty seconds, with broker 2 in sync or not, which has the counter."""
    of = series(
        *leading("1", at_each_second(*[3] * 20)),
        merged("follower_in_sync", at_each_second(*[in_sync] * 20), broker="1", follower="2"),
        merged("partition_leader_id", at_each_second(*[1] * 5)),
        merged(COUNTER, counter, broker="2"),
        within=within,
    )
    return {each.exporter: each for each in reporters_of(of, timeline_of(of))}


def test_a_replica_is_due_while_it_leads_or_is_in_sync() -> None:
    window = context(window_s=(0, 20))
    found = reporters(at_each_second(0, 0), window)
    assert {name: each.due_ms for name, each in found.items()} == {
        OPERATOR: 20_000, "broker 1": 20_000, "broker 2": 20_000
    }  # fmt: skip
    assert reporters(at_each_second(0, 0), window, in_sync=0)["broker 2"].due_ms == 0


def test_samples_are_valid_for_their_usual_time_after_the_last() -> None:
    found = reporters([(0, 0.0), (9, 0.0)], context(window_s=(0, 20)))
    assert found[OPERATOR].heard_ms == 4000 + CAP_MS
    assert found["broker 1"].heard_ms == 0  # without a counter


def test_one_process_tells_of_the_time_between_its_samples_and_two_do_not() -> None:
    counter = [(0, 0.0), (15, 0.0)]
    one = context(window_s=(0, 20), broker_lives_ms={("", "", "2"): ((0, 15_000),)})
    two = context(window_s=(0, 20), broker_lives_ms={("", "", "2"): ((0, 0), (15_000, 15_000))})
    assert reporters(counter, one)["broker 2"].heard_ms == 15_000 + CAP_MS
    # The second began at 0 just before its first scrape.
    assert reporters(counter, two)["broker 2"].heard_ms == 3 * CAP_MS


def test_the_first_process_tells_of_nothing_before_its_first_sample() -> None:
    life = context(window_s=(0, 20), broker_lives_ms={("", "", "2"): ((5000, 9000),)})
    counter = at_each_second(*[0] * 5, since_s=5)
    assert reporters(counter, life)["broker 2"].heard_ms == 4000 + CAP_MS


def test_stretches_that_overlap_count_once() -> None:
    counter = [(0, 0.0), (2, 0.0)]
    lives = context(window_s=(0, 20), broker_lives_ms={("", "", "2"): ((0, 0), (2000, 2000))})
    assert reporters(counter, lives)["broker 2"].heard_ms == 2000 + CAP_MS
