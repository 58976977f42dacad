"""What only looks like a fault (study of the audit, 5.5): none of it may be held against anybody.

Every row of CASES is half an hour of a cluster in which nothing went wrong. It must end as PASS,
with nothing told but what somebody asked for.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from tidemark_audit.audit import AuditRequest, audit, audit_what_if
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult, Severity, Verdict, from_json, to_json
from tidemark_audit.slo import Objectives, Slo
from tidemark_audit.sources.detect import sources_at
from tidemark_audit.sources.source import Window

from tests.support.audit_exports import Export, brokers, partition

LENGTH_MS = 1_800_000
STEP_MS = 5000
# Half an hour is short: a restart of a minute is more than 0.5 % of it.
LENIENT = Slo(Objectives(fully_replicated_with_planned=0.5))
COUNTED = frozenset({"partition_leader_elections_total"})


def fresh() -> Export:
    return Export(length_ms=LENGTH_MS, step_ms=STEP_MS)


def checked_proposal(export: Export, path: Path, window: Window | None = None) -> AuditResult:
    sources = sources_at([str(export.write(path / "export.jsonl"))])
    return audit(LocalEngine(), sources, slo=LENIENT, window=window or Window(0, LENGTH_MS))


def elections(export: Export, kind: str, counted: Callable[[int], int]) -> None:
    about = {"topic": "orders", "topic_id": "id-orders", "partition": "0", "pool": "default/pool"}
    for each in ("clean", "unclean", "planned"):
        value = counted if each == kind else 0
        export.add("partition_leader_elections_total", value, kind=each, **about)


def without(export: Export, lost: Callable[[dict[str, str], int], bool]) -> None:
    """Scrapes that failed."""
    for key, samples in export.series.items():
        labels = dict(key)
        samples[:] = [(at_ms, value) for at_ms, value in samples if not lost(labels, at_ms)]


def a_rolling_restart() -> Export:
    """Each broker in turn is gone for 40 s; the leader gives its leadership away before."""
    gone = {1: 300_000, 2: 500_000, 3: 700_000}

    def out(broker: int, at_ms: int) -> bool:
        return gone[broker] <= at_ms < gone[broker] + 40_000

    export = fresh()
    partition(
        export,
        leader=lambda t: 2 if 300_000 <= t < 500_000 else 3 if 500_000 <= t < 700_000 else 1,
        epoch=lambda t: 5 + sum(t >= start for start in (300_000, 500_000, 700_000)),
        in_sync=lambda t: {broker for broker in (1, 2, 3) if not out(broker, t)},
        is_up=lambda b, t: not out(b, t) or t >= gone[b] + 30_000,
        without=COUNTED,
    )  # fmt: skip
    elections(export, "planned", lambda t: sum(t >= gone[broker] for broker in gone))
    brokers(export, planned=lambda b, t: gone[b] - 5000 <= t < gone[b] + 45_000)
    return export


def a_new_controller_during_a_planned_restart() -> Export:
    """The gauge is the old controller's; the new one knows nothing of the restart."""
    export = fresh()
    partition(export, in_sync=lambda t: {1, 2} if 300_000 <= t < 600_000 else {1, 2, 3})
    for pod, leads in (("a", lambda t: t < 340_000), ("b", lambda t: t >= 345_000)):
        for broker in (1, 2, 3):
            labels = {"pool": "default/pool", "broker": str(broker), "pod": f"operator-{pod}"}
            export.add(
                "broker_planned_restart",
                lambda t, b=broker, leads=leads, pod=pod: (
                    (pod == "a" and b == 3 and t >= 295_000) if leads(t) else None
                ),
                **labels,
            )
            export.add(
                "broker_clock_skew_seconds",
                lambda t, leads=leads: 0.01 if leads(t) else None,
                **labels,
            )
    for broker in (1, 2, 3):
        export.add("broker_epoch", 7, pool="default/pool", broker=str(broker))
    return export


def a_reassignment() -> Export:
    """Broker 4 takes the place of 3; until it has caught up it is no missing replica."""
    export = fresh()
    partition(
        export,
        held_by=(1, 2, 3, 4),
        replicas=lambda t: {1, 2, 3} if t < 700_000 else {1, 2, 4},
        adding=lambda t: {4} if 300_000 <= t < 700_000 else set(),
        in_sync=lambda t: {1, 2, 3} if t < 695_000 else {1, 2, 3, 4} if t < 700_000 else {1, 2, 4},
    )
    brokers(export, ids=(1, 2, 3, 4))
    return export


def a_planned_restart_during_a_reassignment() -> Export:
    """Out of sync are both the broker that restarts and the one that is being added."""
    export = fresh()
    partition(
        export,
        held_by=(1, 2, 3, 4),
        replicas=lambda t: {1, 2, 3} if t < 700_000 else {1, 2, 4},
        adding=lambda t: {4} if 300_000 <= t < 700_000 else set(),
        in_sync=lambda t: (
            {1, 2} if 400_000 <= t < 440_000 else {1, 2, 3} if t < 700_000 else {1, 2, 4}
        ),
    )
    brokers(export, ids=(1, 2, 3, 4), planned=lambda b, t: b == 3 and 395_000 <= t < 445_000)
    return export


def a_replica_moved_there_and_back() -> Export:
    """Two moves within five minutes: the ISR shrinks and grows, and nobody failed."""
    export = fresh()
    there, back = 300_000, 420_000
    partition(
        export,
        held_by=(1, 2, 3, 4),
        replicas=lambda t: {1, 2, 4} if there + 60_000 <= t < back + 60_000 else {1, 2, 3},
        adding=lambda t: (
            {4} if there <= t < there + 60_000 else {3} if back <= t < back + 60_000 else set()
        ),
        in_sync=lambda t: (
            {1, 2, 3, 4}
            if there + 50_000 <= t < there + 60_000 or back + 50_000 <= t < back + 60_000
            else {1, 2, 4}
            if there + 60_000 <= t < back + 50_000
            else {1, 2, 3}
        ),
    )
    brokers(export, ids=(1, 2, 3, 4))
    return export


def a_higher_replication_factor() -> Export:
    export = fresh()
    partition(
        export,
        held_by=(1, 2, 3, 4),
        replicas=lambda t: {1, 2, 3} if t < 600_000 else {1, 2, 3, 4},
        adding=lambda t: {4} if 300_000 <= t < 600_000 else set(),
        in_sync=lambda t: {1, 2, 3} if t < 600_000 else {1, 2, 3, 4},
    )
    brokers(export, ids=(1, 2, 3, 4))
    return export


def a_lower_replication_factor() -> Export:
    export = fresh()
    partition(
        export,
        replicas=lambda t: {1, 2, 3} if t < 600_000 else {1, 2},
        in_sync=lambda t: {1, 2, 3} if t < 600_000 else {1, 2},
    )
    brokers(export)
    return export


def a_topic_made_again() -> Export:
    """Another topic id, epochs and offsets from 0."""
    export = fresh()
    partition(export, is_up=lambda b, t: t < 600_000, leader=lambda t: 1)
    without(export, lambda labels, t: "topic" in labels and t >= 600_000)
    partition(
        export,
        topic_id="id-again",
        epoch=lambda t: 0,
        end_offset=lambda t: max(0, (t - 700_000) // 10),
    )
    without(export, lambda labels, t: labels.get("topic_id") == "id-again" and t < 700_000)
    brokers(export)
    return export


def an_idle_topic() -> Export:
    export = fresh()
    partition(export, end_offset=lambda t: 0)
    brokers(export)
    return export


def retention_and_compaction() -> Export:
    """The log's start moves up, at last to its end; the size falls."""
    export = fresh()
    partition(export, end_offset=lambda t: min(t // 10, 60_000))
    brokers(export)
    about = {"topic": "orders", "topic_id": "id-orders", "partition": "0"}
    for broker in ("1", "2", "3"):
        export.add(
            "replica_log_start_offset",
            lambda t: min(t // 200_000 * 15_000, 60_000),
            broker=broker, **about,
        )  # fmt: skip
        export.add("replica_size_bytes", lambda t: 1e6 - t // 10, broker=broker, **about)
    return export


def counters_that_begin_again() -> Export:
    """A broker's process restarts between two scrapes: its counters are 0 again."""
    export = fresh()
    partition(export, without=frozenset({"replica_committed_truncated_records_total"}))
    brokers(export)
    about = {"topic": "orders", "topic_id": "id-orders", "partition": "0"}
    for broker in ("1", "2", "3"):
        counted = 0 if broker != "2" else lambda t: 9 if t < 600_000 else 0
        export.add("partition_isr_expands_total", counted, broker=broker, **about)
        export.add("replica_committed_truncated_records_total", 0, broker=broker, **about)
        for reason in ("lag", "fenced", "planned"):
            export.add(
                "partition_isr_shrinks_total", counted, broker=broker, reason=reason, **about
            )
    return export


def scrapes_that_failed_now_and_then() -> Export:
    """Every tenth of each target is missing, at other times for each."""
    export = a_quiet_half_hour()
    without(export, lambda labels, t: (t // STEP_MS + 3 * int(labels.get("broker", "0"))) % 10 == 0)
    return export


def a_broker_that_could_not_be_scraped() -> Export:
    """The follower serves all the while: its leader says so."""
    export = a_quiet_half_hour()
    without(export, lambda labels, t: labels.get("broker") == "3" and 600_000 <= t < 900_000)
    return export


def a_prometheus_that_restarted() -> Export:
    """No sample of anything for longer than one stands, less than 1 % of the window."""
    export = a_quiet_half_hour()
    without(export, lambda labels, t: 600_000 < t < 600_000 + 6 * STEP_MS)
    return export


def a_pair_of_prometheus_servers() -> Export:
    """Both scrape the same, half an interval apart, each with its own label; one falls behind."""
    export = fresh()
    for name in ("a", "b"):
        partition(
            export,
            scrape={"prometheus_replica": name},
            in_sync=lambda t: {1, 2} if 300_000 <= t < 320_000 else {1, 2, 3},
        )
        brokers(
            export,
            scrape={"prometheus_replica": name},
            planned=lambda b, t: b == 3 and 295_000 <= t < 325_000,
        )
    for key, samples in export.series.items():
        if dict(key)["prometheus_replica"] == "b":
            samples[:] = [(at_ms + 2500, value) for at_ms, value in samples if at_ms < 1_500_000]
    return export


def a_watermark_that_catches_up() -> Export:
    """After a clean election the new leader knows an older high watermark for a while."""
    export = fresh()
    partition(
        export,
        leader=lambda t: 1 if t < 600_000 else 2,
        epoch=lambda t: 5 if t < 600_000 else 6,
        without=COUNTED | {"replica_high_watermark_offset", "replica_leader_epoch_start_offset"},
    )
    elections(export, "clean", lambda t: int(t >= 600_000))
    brokers(export)
    for broker in (1, 2, 3):
        export.add(
            "replica_high_watermark_offset",
            lambda t, b=broker: max(
                0, t // 10 - (3000 if b == 2 and 600_000 <= t < 610_000 else 200)
            ),
            topic="orders", topic_id="id-orders", partition="0", broker=str(broker),
        )  # fmt: skip
        export.add(
            "replica_leader_epoch_start_offset",
            lambda t: 0 if t < 600_000 else 60_000,
            topic="orders", topic_id="id-orders", partition="0", broker=str(broker),
        )  # fmt: skip
    return export


def pods_with_new_names() -> Export:
    """The same brokers under another pod and address."""
    export = fresh()
    for name, here in (("old", lambda t: t < 600_000), ("new", lambda t: t >= 600_000)):
        scrape = {"pod": f"broker-{name}", "instance": f"{name}:8080"}
        part = fresh()
        partition(part, scrape=scrape)
        brokers(part, scrape=scrape)
        without(part, lambda labels, t, here=here: not here(t))
        export.series.update(part.series)
    return export


def scrapes_that_came_late() -> Export:
    """Prometheus stamps a sample when it asks: on a loaded machine seconds after its turn."""
    export = a_quiet_half_hour()
    for key, samples in export.series.items():
        late = int(dict(key).get("broker", "0")) * 700
        samples[:] = [
            (at_ms + (late + at_ms * 7919) % 4500, value)
            for at_ms, value in samples
            if at_ms < LENGTH_MS - STEP_MS
        ]
    return export


def partitions_that_were_added() -> Export:
    export = a_quiet_half_hour()
    partition(export, number=1, epoch=lambda t: 0)
    without(export, lambda labels, t: labels.get("partition") == "1" and t < 900_000)
    return export


def a_follower_that_just_began() -> Export:
    """-1, never caught up, for one scrape after each start of a broker's term."""
    export = fresh()
    partition(export, without=frozenset({"follower_caught_up_age_seconds"}))
    brokers(export)
    for follower in ("2", "3"):
        export.add(
            "follower_caught_up_age_seconds",
            lambda t: -1 if t == 600_000 else 0.1,
            topic="orders", topic_id="id-orders", partition="0", broker="1", follower=follower,
        )  # fmt: skip
    return export


def a_quiet_half_hour() -> Export:
    export = fresh()
    partition(export)
    brokers(export)
    return export


CASES = (
    a_quiet_half_hour,
    a_rolling_restart,
    a_new_controller_during_a_planned_restart,
    a_reassignment,
    a_planned_restart_during_a_reassignment,
    a_replica_moved_there_and_back,
    a_higher_replication_factor,
    a_lower_replication_factor,
    a_topic_made_again,
    an_idle_topic,
    retention_and_compaction,
    counters_that_begin_again,
    scrapes_that_failed_now_and_then,
    a_broker_that_could_not_be_scraped,
    a_prometheus_that_restarted,
    a_pair_of_prometheus_servers,
    a_watermark_that_catches_up,
    pods_with_new_names,
    scrapes_that_came_late,
    partitions_that_were_added,
    a_follower_that_just_began,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_what_only_looks_like_a_fault_is_none(case: Callable[[], Export], tmp_path: Path) -> None:
    result = checked_proposal(case(), tmp_path)
    reported = [each for each in result.findings if each.severity is not Severity.INFO]
    assert (result.verdict, reported) == (Verdict.PASS, [])
    assert all(each.planned for each in result.findings)


def test_slices_that_are_cut_through_events_give_the_same_audit(tmp_path: Path) -> None:
    """Cuts of a checkpoint, at, before and after the moment when each thing happens."""
    export = a_rolling_restart()
    path = export.write(tmp_path / "export.jsonl")

    def audited(end_ms: int, kept: Path | None) -> AuditResult:
        requested = AuditRequest(Window(0, end_ms), LENIENT, STEP_MS, kept)
        result, _ = audit_what_if(LocalEngine(), sources_at([str(path)]), requested, None)
        return result

    for end in (295_000, 300_000, 300_001, 340_000, 702_500, LENGTH_MS):
        cut = audited(end, tmp_path / "kept")
    whole = audited(LENGTH_MS, None)
    assert (cut.verdict, cut.findings, cut.sli_by_partition, cut.intervals, cut.elections) == (
        whole.verdict, whole.findings, whole.sli_by_partition, whole.intervals, whole.elections
    )  # fmt: skip


def test_one_brokers_fall_is_one_incident_however_many_partitions_it_had(tmp_path: Path) -> None:
    export = fresh()
    for number in range(5):
        partition(
            export,
            number=number,
            in_sync=lambda t: {1, 2} if 300_000 <= t < 400_000 else {1, 2, 3},
        )
    brokers(export)
    findings = checked_proposal(export, tmp_path).findings
    assert [(each.rule, each.subject, len(each.partitions)) for each in findings] == [
        ("R1", "broker 3", 5)
    ]


def test_a_broker_that_crashes_during_its_planned_restart_is_not_excused_for_long(
    tmp_path: Path,
) -> None:
    """The same controller takes its word back: what it said before excuses nothing later."""
    export = fresh()
    partition(export, in_sync=lambda t: {1, 2} if 300_000 <= t < 900_000 else {1, 2, 3})
    brokers(export, planned=lambda b, t: b == 3 and 295_000 <= t < 340_000)
    row = checked_proposal(export, tmp_path).sli_by_partition[0]
    assert row.degraded_planned_ms + row.degraded_unplanned_ms == 600_000
    # Until a couple of scrapes after the word ended.
    assert row.degraded_planned_ms == 340_000 + 2 * 12_500 - 300_000


def test_a_crash_during_a_move_is_not_excused_by_the_one_who_joins(tmp_path: Path) -> None:
    """Broker 4 joins and is restarted by plan; broker 3 crashes."""
    export = fresh()
    partition(
        export,
        held_by=(1, 2, 3, 4),
        adding=lambda t: {4} if t >= 300_000 else set(),
        in_sync=lambda t: {1, 2} if 400_000 <= t < 500_000 else {1, 2, 3},
    )
    brokers(export, ids=(1, 2, 3, 4), planned=lambda b, t: b == 4 and 395_000 <= t < 510_000)
    row = checked_proposal(export, tmp_path).sli_by_partition[0]
    assert (row.degraded_planned_ms, row.degraded_unplanned_ms) == (0, 100_000)


@pytest.mark.parametrize("minutes", [1, 30, 95, 97, 1440])
def test_lag_bands_leave_no_moment_out(minutes: int, tmp_path: Path) -> None:
    export = Export(length_ms=minutes * 60_000, step_ms=15_000)
    export.add(
        "follower_caught_up_age_seconds", lambda t: t / 1000,
        topic="orders", topic_id="id-orders", partition="0", broker="1", follower="2",
    )  # fmt: skip
    export.add("partition_replicas", 3, topic="orders", topic_id="id-orders", partition="0",
               broker="1")  # fmt: skip
    start, end = 7000, minutes * 60_000 - 5000
    bands = checked_proposal(export, tmp_path, Window(start, end)).lag_bands
    assert (bands[0].start_ms, bands[-1].end_ms) == (start, end)
    assert [band.end_ms for band in bands[:-1]] == [band.start_ms for band in bands[1:]]
    assert sum(band.samples for band in bands) == len(range(15_000, end, 15_000))
    assert len(bands) <= 97
    for band in bands:
        assert band.start_ms <= 1000 * band.max_seconds < band.end_ms


def test_a_follower_that_never_caught_up_has_no_age_in_its_band(tmp_path: Path) -> None:
    """A number in its place would be none, and the page could not draw it."""
    export = Export(length_ms=120_000, step_ms=15_000)
    about = {"topic": "orders", "topic_id": "id-orders", "partition": "0", "broker": "1"}
    export.add("follower_caught_up_age_seconds", -1, **about, follower="2")
    export.add("partition_replicas", 3, **about)
    result = checked_proposal(export, tmp_path, Window(0, 120_000))
    assert {band.p99_seconds for band in result.lag_bands} == {None}
    assert from_json(to_json(result)).lag_bands == result.lag_bands
