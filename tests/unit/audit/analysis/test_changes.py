"""Elections and changes of the in-sync set, seen in samples and counted by exporters."""

from tidemark_audit.analysis.changes import (
    Change,
    CounterChange,
    counted_of,
    elections_of,
    isr_changes_of,
)
from tidemark_audit.analysis.partition_timeline import Series, timeline_of
from tidemark_audit.results import Election, IsrChange, TopicPartition

from tests.support.audit_series import at_each_second, context, leading, merged, series

ORDERS = TopicPartition("orders", 0)
ELECTIONS = "partition_leader_elections_total"


def elections(of: Series) -> list[Election]:
    return elections_of(of, timeline_of(of))


def isr_changes(of: Series) -> list[IsrChange]:
    return isr_changes_of(of, timeline_of(of))


def handed_over(epoch: int) -> Series:
    return series(
        *leading("1", at_each_second(3, 3, 3)),
        *leading("2", at_each_second(3, 3, since_s=10), epoch=epoch),
        merged(ELECTIONS, [(0, 0.0), (20, 0.0)], detail="clean"),
        merged(ELECTIONS, [(9, 1.0), (10, 2.0)], detail="planned"),
    )


def test_a_leader_with_a_higher_epoch_was_elected_as_the_operator_counted_it() -> None:
    assert elections(handed_over(6)) == [Election(ORDERS, 2000, 10_000, "planned", "1", "2", 6)]


def test_a_leader_with_the_same_epoch_is_no_election() -> None:
    assert elections(handed_over(5)) == []


def test_an_election_may_be_counted_some_scrapes_before_it_is_seen() -> None:
    of = series(
        *leading("1", at_each_second(3, 3, 3)),
        *leading("2", at_each_second(3, since_s=3), epoch=6),
        merged(ELECTIONS, at_each_second(0, 1), detail="unclean"),
    )
    assert [each.kind for each in elections(of)] == ["unclean"]


def test_an_election_that_nobody_counted_is_of_unknown_kind() -> None:
    of = series(
        *leading("1", at_each_second(3)), *leading("2", at_each_second(3, since_s=1), epoch=6)
    )
    assert [each.kind for each in elections(of)] == ["unknown"]


def test_a_change_of_the_in_sync_set_has_the_reason_that_was_counted() -> None:
    of = series(
        *leading("1", at_each_second(3, 3, 2, 2, 3)),
        merged("partition_isr_shrinks_total", at_each_second(0, 0, 1), broker="1", detail="lag"),
        merged("partition_isr_shrinks_total", at_each_second(0, 0, 0), broker="1", detail="fenced"),
    )
    assert isr_changes(of) == [
        IsrChange(ORDERS, 1000, 2000, 3, 2, "lag"),
        IsrChange(ORDERS, 3000, 4000, 2, 3, "expand"),
    ]


def test_a_shrink_that_nobody_counted_has_no_reason() -> None:
    of = series(*leading("1", at_each_second(3, 2)))
    assert [each.reason for each in isr_changes(of)] == [""]


def test_a_shrink_while_replicas_move_is_the_moves() -> None:
    of = series(
        *leading("1", at_each_second(3, 2)),
        merged("partition_reassigning", at_each_second(1, 0), broker="1"),
    )
    assert [each.reason for each in isr_changes(of)] == ["move"]


def test_counted_changes_are_those_between_two_samples_of_the_window() -> None:
    of = series(
        merged(ELECTIONS, [(0, 1.0), (4, 2.0), (6, 2.0), (8, 5.0)], detail="planned"),
        merged("partition_isr_expands_total", [(0, 7.0), (8, 8.0)], broker="1"),
        within=context(window_s=(5, 60)),
    )
    assert counted_of(of) == [
        CounterChange(Change.ELECTION, 6000, 8000, 3, planned=True),
        CounterChange(Change.EXPAND, 0, 8000, 1),
    ]
