"""All facts of one partition, for as long as it existed.

Topics are deleted while others live on: their data is gone or kept, and neither is an outage, in
the window of the deletion and in later ones.
"""

from pathlib import Path

import pytest
from tidemark_audit.analysis.partition import from_bytes, life_of, to_bytes
from tidemark_audit.analysis.partition_timeline import Series
from tidemark_audit.audit import EVERYTHING, run
from tidemark_audit.results import AuditResult, IntervalKind, Verdict
from tidemark_audit.sources.source import Window

from tests.support.audit_exports import Export, brokers, partition
from tests.support.audit_facts import interval, partition_facts
from tests.support.audit_series import CAP_MS, at_each_second, context, merged, series

LENGTH_MS = 120_000
DELETED_MS = 50_000
KEPT = {"topic": "tmp", "topic_id": "id-tmp", "partition": "0"}


def an_export(*, is_kept: bool = True, adopted_ms: int = LENGTH_MS) -> Export:
    """`tmp` is deleted, and may be adopted again."""
    export = Export(length_ms=LENGTH_MS)
    partition(export)
    brokers(export)
    gone = range(DELETED_MS, adopted_ms)
    partition(
        export,
        topic="tmp",
        topic_id="id-tmp",
        replicas=lambda t: set() if t in gone else {1, 2, 3},
        in_sync=lambda t: set() if t in gone else {1, 2, 3},
        leader=lambda t: None if t in gone else 1,
    )
    for key, samples in export.series.items():
        labels = dict(key)
        if labels.get("topic") == "tmp" and "broker" not in labels:  # the operator's word ends
            samples[:] = [(at, value) for at, value in samples if at not in gone]
    for broker in "123" if is_kept else "":
        export.add("replica_is_retained", lambda t: 1 if t in gone else None, broker=broker, **KEPT)
    return export


def audited(export: Export, tmp_path: Path, window: Window = EVERYTHING) -> AuditResult:
    return run(None, [str(export.write(tmp_path / "export.jsonl"))], window=window)


@pytest.mark.parametrize("is_kept", [True, False])
def test_the_window_of_a_deletion_passes(is_kept: bool, tmp_path: Path) -> None:
    result = audited(an_export(is_kept=is_kept), tmp_path)
    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    lives = {row.topic: row.total_ms for row in result.sli_by_partition}
    assert lives["tmp"] <= DELETED_MS < lives["orders"]


def test_later_windows_pass_and_do_not_know_the_topic(tmp_path: Path) -> None:
    result = audited(an_export(), tmp_path, Window(70_000, LENGTH_MS))
    assert (result.verdict, result.findings) == (Verdict.PASS, ())
    assert {row.topic for row in result.sli_by_partition} == {"orders"}


def test_a_broker_that_starts_and_has_not_heard_yet_disturbs_nothing(tmp_path: Path) -> None:
    """It shows a replica that nobody leads, until the first push tells it that it is kept."""
    export = an_export()
    for name in ("replica_is_leader", "replica_leader_epoch", "replica_log_end_offset"):
        key = tuple(sorted({"__name__": f"tidemark_{name}", **KEPT, "broker": "1"}.items()))
        export.series[key].append((90_000, 0.0))
    result = audited(export, tmp_path, Window(70_000, LENGTH_MS))
    assert (result.verdict, result.findings) == (Verdict.PASS, ())


def test_a_topic_that_is_adopted_again_is_judged_with_the_time_between_unobserved(
    tmp_path: Path,
) -> None:
    result = audited(an_export(adopted_ms=90_000), tmp_path)
    (row,) = [row for row in result.sli_by_partition if row.topic == "tmp"]
    assert row.unobserved_ms + row.offline_ms > 0
    assert row.total_ms > 100_000


def test_a_partition_that_nobody_leads_is_an_outage_where_no_broker_says_that_it_is_kept(
    tmp_path: Path,
) -> None:
    export = an_export(is_kept=False)
    for broker in "123":
        key = tuple(
            sorted({"__name__": "tidemark_replica_is_leader", **KEPT, "broker": broker}.items())
        )
        export.series[key] += [(at, 0.0) for at in range(DELETED_MS, LENGTH_MS, 1000)]
    assert audited(export, tmp_path).verdict is Verdict.VIOLATED


def life(of: Series) -> tuple[int, int]:
    found = life_of(of)
    return found.window_start_ms, found.window_end_ms


def life_of_samples(
    first_s: int, last_s: int, *, broker_seen_ms: tuple[int, int]
) -> tuple[int, int]:
    """Return the life of a partition whose only series has samples from first to last."""
    samples = at_each_second(*[3] * (last_s - first_s + 1), since_s=first_s)
    led = merged("partition_in_sync_replicas", samples, broker="1")
    return life(series(led, within=context(broker_seen_ms={("", "", "1"): broker_seen_ms})))


def test_a_partition_lives_for_as_long_as_its_samples_if_its_broker_was_seen_longer() -> None:
    assert life_of_samples(20, 40, broker_seen_ms=(0, 60_000)) == (20_000, 40_001)


def test_a_broker_that_was_not_seen_longer_neither_begins_nor_ends_its_partitions() -> None:
    first, last = 20_000 - CAP_MS, 40_000 + CAP_MS
    assert life_of_samples(20, 40, broker_seen_ms=(first, 60_000)) == (0, 40_001)
    assert life_of_samples(20, 40, broker_seen_ms=(first - 1, 60_000)) == (20_000, 40_001)
    assert life_of_samples(20, 40, broker_seen_ms=(0, last)) == (20_000, 60_000)


def test_a_partition_without_samples_is_taken_to_live_all_the_time() -> None:
    assert life(series()) == (0, 60_000)


def test_retained_data_ends_a_partition_unless_it_is_led_again() -> None:
    led = merged("partition_in_sync_replicas", at_each_second(3, 3, 3), broker="1")
    kept = merged("replica_is_retained", [(10, 1.0)], broker="1")
    again = merged("partition_in_sync_replicas", [(0, 3.0), (30, 3.0)], broker="1")
    assert life(series(led, kept)) == (0, 10_000)
    assert life(series(again, kept)) == (0, 60_000)
    assert life(series(kept)) == (0, 0)  # deleted before the window


def test_facts_are_the_same_after_the_way_to_the_driver() -> None:
    facts = partition_facts(intervals=[interval(IntervalKind.OFFLINE, 5, 6)])
    assert from_bytes(to_bytes(facts)) == facts
