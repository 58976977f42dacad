"""Stretches of time by state and cause, cut to the window, and their sums."""

from dataclasses import replace

from tidemark_audit.analysis.context import Context, PlannedRestart
from tidemark_audit.analysis.intervals import intervals_of, planned_segments, sli_of
from tidemark_audit.analysis.partition_timeline import Series, timeline_of
from tidemark_audit.analysis.series import MergedSeries
from tidemark_audit.results import Interval, IntervalKind, SliRow

from tests.support.audit_series import CAP_MS, at_each_second, context, leading, merged, series

LENGTH_S = 20


def intervals(of: Series) -> list[Interval]:
    whole = timeline_of(of)
    return intervals_of(of, whole, planned_segments(of, whole))


def of_kind(of: Series, kind: IntervalKind) -> list[tuple[int, int, bool, str]]:
    return [
        (each.start_ms, each.end_ms, each.planned, each.cause)
        for each in intervals(of)
        if each.kind is kind
    ]


def sums(of: Series) -> SliRow:
    timeline = timeline_of(of)
    return sli_of(of, timeline, planned_segments(of, timeline))


def broker_3_out(since_s: int, until_s: int) -> list[MergedSeries]:
    """Leader 1 says so, of broker 3."""
    out = [since_s <= second < until_s for second in range(LENGTH_S)]
    return [
        *leading("1", at_each_second(*(3 - is_out for is_out in out))),
        merged(
            "follower_in_sync",
            at_each_second(*(not each for each in out)),
            broker="1",
            follower="3",
        ),
    ]


def announced(start_s: int, end_s: int) -> Context:
    start, end = 1000 * start_s, 1000 * end_s
    restart = PlannedRestart(start - 1000, start, end, end)
    return context(window_s=(0, LENGTH_S), planned={("", "", "3"): (restart,)})


def test_an_unplanned_absence_names_the_broker_that_is_missing() -> None:
    of = series(*broker_3_out(5, 9), within=context(window_s=(0, LENGTH_S)))
    assert of_kind(of, IntervalKind.UNDER_REPLICATED) == [
        (5000, 9000, False, "broker 3 out of sync")
    ]
    row = sums(of)
    assert (row.degraded_unplanned_ms, row.healthy_ms, row.total_ms) == (4000, 16_000, 20_000)


def test_an_absence_that_begins_when_it_is_announced_is_planned() -> None:
    of = series(*broker_3_out(5, 9), within=announced(4, 10))
    assert of_kind(of, IntervalKind.UNDER_REPLICATED) == [
        (5000, 9000, True, "planned restart of broker 3")
    ]
    assert sums(of).degraded_planned_ms == 4000


def test_an_announcement_that_comes_later_excuses_nothing() -> None:
    of = series(*broker_3_out(5, 15), within=announced(9, 15))
    assert [each[2] for each in of_kind(of, IntervalKind.UNDER_REPLICATED)] == [False]


def test_the_excuse_ends_some_scrapes_after_the_announcement() -> None:
    of = series(*broker_3_out(5, 20), within=announced(4, 6))
    excused_ms = 6000 + 2 * CAP_MS
    assert [each[:3] for each in of_kind(of, IntervalKind.UNDER_REPLICATED)] == [
        (excused_ms, 20_000, False),
        (5000, excused_ms, True),
    ]


def test_replicas_that_move_while_none_is_missing_are_planned() -> None:
    of = series(
        *leading("1", at_each_second(3, 3, 3), replicas=4),
        merged("partition_reassigning", at_each_second(1, 1, 1), broker="1"),
        within=context(window_s=(0, 3)),
    )
    assert of_kind(of, IntervalKind.UNDER_REPLICATED) == [(0, 3000, True, "planned move")]


def test_one_replica_in_sync_and_just_enough_lie_beside_the_states() -> None:
    of = series(*leading("1", at_each_second(3, 2, 1, 3)), within=context(window_s=(0, 4)))
    found = {(each.kind, each.start_ms, each.end_ms) for each in intervals(of)}
    assert found == {
        (IntervalKind.UNDER_REPLICATED, 1000, 2000),
        (IntervalKind.UNDER_MIN_ISR, 2000, 3000),
        (IntervalKind.ONE_FAILURE_FROM_STALL, 1000, 2000),
        (IntervalKind.ONE_FAILURE_FROM_LOSS, 2000, 3000),
    }
    row = sums(of)
    assert (row.one_failure_from_loss_ms, row.one_failure_from_stall_ms) == (1000, 1000)


def test_one_replica_is_not_one_failure_from_loss_where_there_is_only_one() -> None:
    of = series(
        *leading("1", at_each_second(1, 1), replicas=1, min_in_sync=1),
        within=context(window_s=(0, 2)),
    )
    assert intervals(of) == []


def test_what_began_before_the_window_says_for_how_long_it_had_lasted() -> None:
    of = series(*broker_3_out(5, 12), within=context(window_s=(10, LENGTH_S)))
    (found,) = [each for each in intervals(of) if each.kind is IntervalKind.UNDER_REPLICATED]
    assert (found.start_ms, found.end_ms, found.earlier_ms) == (10_000, 12_000, 5000)
    before = replace(of, context=context(window_s=(12, LENGTH_S)))
    assert of_kind(before, IntervalKind.UNDER_REPLICATED) == []


def test_time_without_a_sample_is_unobserved() -> None:
    of = series(*leading("1", at_each_second(3, 3)), within=context(window_s=(0, 10)))
    assert of_kind(of, IntervalKind.UNOBSERVED) == [
        (1000 + CAP_MS, 10_000, False, "no sample of its leader")
    ]
