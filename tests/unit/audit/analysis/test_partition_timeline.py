"""Who leads a partition, and its state.

Leadership moves between brokers that are scraped one after another: the partition is not offline
meanwhile, unless two samples say so.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from tidemark_audit.analysis.partition_timeline import (
    NOBODY,
    PartitionTimeline,
    Series,
    State,
    timeline_of,
)
from tidemark_audit.audit import audit
from tidemark_audit.engines.local import LocalEngine
from tidemark_audit.results import AuditResult, Verdict
from tidemark_audit.sources.detect import sources_at

from tests.support.audit_exports import Export, brokers, partition
from tests.support.audit_series import (
    CAP_MS,
    at_each_second,
    context,
    leading,
    merged,
    series,
)

STEP_MS = 15_000
LENGTH_MS = 3_600_000
# Broker 1 is asked a second after a moment of the handovers, 2 just before it, 3 in between.
PHASES_MS = {"1": 10_000, "2": 8000, "3": 9000, "": 12_000}
OPERATORS = frozenset({"partition_leader_id", "partition_durable_in_sync_replicas"})


def scraped_in_turn(export: Export) -> Export:
    """Of an export with a sample each second, what a server sees that asks every 15 s."""
    for key, samples in export.series.items():
        labels = dict(key)
        by = "" if "pool" in labels else labels.get("broker", "")
        samples[:] = [each for each in samples if each[0] % STEP_MS == PHASES_MS[by]]
    return export


def handed_over(
    at_ms: int,
    *,
    takes_ms: int = 0,
    without: frozenset[str] = frozenset(),
    named: int | None = None,
) -> Export:
    """From broker 1 to broker 2, both living, for `takes_ms` without a leader."""
    export = Export(length_ms=LENGTH_MS, step_ms=1000)

    def leader(now_ms: int) -> int | None:
        return 1 if now_ms < at_ms else None if now_ms < at_ms + takes_ms else 2

    partition(
        export,
        leader=leader,
        epoch=lambda t: 5 if t < at_ms else 6,
        without=without | ({"partition_leader_id"} if named else set()),
    )
    if named:
        export.add(
            "partition_leader_id",
            lambda t: 1 if t < at_ms else named,
            topic="orders", topic_id="id-orders", partition="0", pool="default/pool",
        )  # fmt: skip
    brokers(export)
    return scraped_in_turn(export)


def checked_proposal(export: Export, path: Path) -> AuditResult:
    return audit(LocalEngine(), sources_at([str(export.write(path / "export.jsonl"))]))


@pytest.mark.parametrize("second", [0, 8, 9, 10, 12])
@pytest.mark.parametrize("without", [frozenset(), OPERATORS], ids=["operator", "alone"])
def test_a_handover_between_living_brokers_is_no_outage(
    second: int, without: frozenset[str], tmp_path: Path
) -> None:
    result = checked_proposal(handed_over(1_800_000 + 1000 * second, without=without), tmp_path)
    assert result.sli_by_partition[0].offline_ms == 0
    assert result.verdict is Verdict.PASS


@pytest.mark.parametrize(
    "export",
    [
        lambda: handed_over(1_800_000, takes_ms=60_000, without=OPERATORS),
        lambda: handed_over(1_800_000, takes_ms=60_000, named=2),
    ],
    ids=["nobody names a leader", "who is named does not lead"],
)
def test_brokers_that_twice_say_they_do_not_lead_are_believed(
    export: Callable[[], Export], tmp_path: Path
) -> None:
    row = checked_proposal(export(), tmp_path).sli_by_partition[0]
    assert abs(row.offline_ms - 60_000) <= STEP_MS


def states(of: Series) -> list[tuple[int, State]]:
    """Return each change of the state with its time."""
    timeline = timeline_of(of)
    every = list(zip(timeline.starts_ms.tolist(), map(State, timeline.state), strict=True))
    return [each for n, each in enumerate(every) if n == 0 or every[n - 1][1] != each[1]]


def at(timeline: PartitionTimeline, at_ms: int) -> int:
    return int(timeline.borders_ms.searchsorted(at_ms, side="right")) - 1


def test_the_state_follows_what_the_leader_says_of_its_in_sync_set() -> None:
    of = series(*leading("1", at_each_second(3, 2, 1, 2, 3)), within=context(window_s=(0, 5)))
    assert states(of) == [
        (0, State.HEALTHY),
        (1000, State.DEGRADED),
        (2000, State.UNDER_MIN_ISR),
        (3000, State.DEGRADED),
        (4000, State.HEALTHY),
    ]


def test_of_two_that_say_they_lead_the_one_in_the_higher_epoch_counts() -> None:
    of = series(
        *leading("1", at_each_second(3, 3, 3, 3), epoch=5),
        *leading("2", at_each_second(1, 1, since_s=1), epoch=6),
    )
    timeline = timeline_of(of)
    seen = [
        (timeline.leader[at(timeline, ms)], timeline.state[at(timeline, ms)]) for ms in (0, 1500)
    ]
    assert seen == [(0, State.HEALTHY), (1, State.UNDER_MIN_ISR)]


def test_the_operators_word_is_taken_for_the_worse_and_never_for_the_better() -> None:
    silent = leading("1", at_each_second(3))
    for durable, state in ((3, State.UNOBSERVED), (2, State.DEGRADED), (1, State.UNDER_MIN_ISR)):
        operator = merged("partition_durable_in_sync_replicas", at_each_second(*[durable] * 6))
        of = series(*silent, operator, within=context(window_s=(0, 6)))
        assert states(of) == [(0, State.HEALTHY), (CAP_MS, state)]


def test_a_leader_that_the_operator_no_longer_knows_is_offline_after_its_last_sample() -> None:
    of = series(
        *leading("1", at_each_second(3, 3)),
        merged("partition_leader_id", at_each_second(1, 1, -1, -1)),
        within=context(window_s=(0, 4)),
    )
    assert states(of) == [(0, State.HEALTHY), (2000, State.OFFLINE)]
    timeline = timeline_of(of)
    assert timeline.leader[-1] == NOBODY
    assert timeline.missing[-1] == {"1"}  # who led until then


def test_a_partition_without_any_sample_is_unobserved() -> None:
    assert states(series()) == [(0, State.UNOBSERVED)]


def test_a_timeline_begins_before_the_window_and_is_cut_at_a_border() -> None:
    of = series(*leading("1", at_each_second(2, 2, 3)), within=context(window_s=(1, 3)))
    whole = timeline_of(of)
    assert int(whole.borders_ms[0]) == 0
    cut = whole.since(1000)
    assert (int(cut.borders_ms[0]), int(cut.lengths_ms.sum())) == (1000, 2000)
    assert len(cut.state) == len(cut.missing) == len(cut.borders_ms) - 1


def test_kafkas_two_gauges_stand_for_the_minimum() -> None:
    """Under it, it is one more than are in sync; at it, the same; else one less."""
    family = "partition_min_in_sync_replicas"
    leader = [each for each in leading("1", at_each_second(3, 2, 1)) if each.key.family != family]
    of = series(
        *leader,
        merged("partition_under_min_isr", at_each_second(0, 0, 1), broker="1"),
        merged("partition_at_min_isr", at_each_second(0, 1, 0), broker="1"),
        within=context(window_s=(0, 3)),
    )
    assert timeline_of(of).min_in_sync[[0, -1]].tolist() == [2.0, 2.0]
    assert [state for _, state in states(of)] == [
        State.HEALTHY,
        State.DEGRADED,
        State.UNDER_MIN_ISR,
    ]
