"""The event log of one pool: order, bounds, listeners, and what a write is explained by."""

from dataclasses import replace

import pytest
from tidemark_operator.controller.core import timeline as module
from tidemark_operator.controller.core.observations import LeaderChange
from tidemark_operator.controller.core.timeline import (
    MAX_AGE_MS,
    BrokerChanged,
    BrokerTurn,
    Cause,
    Event,
    Grounds,
    PartitionChanged,
    PartitionsCreated,
    Timeline,
    TopicRetired,
)
from tidemark_protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch

from tests.support.command_player import slice_of
from tests.support.controller_values import TOPIC_ID, eligibility, partition

LED = partition("0@7 1@7", leader="0@7")
MOVED = partition("1@7", leader="1@7", leader_epoch=6, partition_epoch=10)
ALL = eligibility("0@7", "1@7", "2@7")


class Wall:
    ms = 1000

    def __call__(self) -> int:
        return self.ms


def turn(number: int, which: BrokerTurn = BrokerTurn.ACTIVE) -> BrokerChanged:
    return BrokerChanged(which, BrokerId(number), BrokerEpoch(7))


def facts(timeline: Timeline) -> list[object]:
    return [event.fact for event in timeline.after(0, 1000)]


def test_events_are_read_from_a_number_on_oldest_first() -> None:
    timeline = Timeline(Wall())
    assert (timeline.oldest, timeline.newest, timeline.after(0, 5)) == (0, 0, ())
    for number in range(4):
        timeline.record(turn(number))
    assert (timeline.oldest, timeline.newest) == (1, 4)
    assert [event.number for event in timeline.after(1, 2)] == [2, 3]
    assert timeline.after(4, 5) == timeline.after(99, 5) == ()


def test_the_oldest_events_are_dropped_by_count_and_by_age(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_EVENTS", 3)
    wall = Wall()
    timeline = Timeline(wall)
    for number in range(5):
        timeline.record(turn(number))
    assert [event.number for event in timeline.after(0, 9)] == [3, 4, 5]
    wall.ms += MAX_AGE_MS + 1
    timeline.record(turn(9))
    assert [event.number for event in timeline.after(0, 9)] == [6]


def test_the_latest_events_of_a_kind_come_newest_first() -> None:
    timeline = Timeline(Wall())
    for number in (1, 2, 1, 1):
        timeline.record(turn(number))
    found = timeline.latest(lambda event: event.broker_id == 1, 2)
    assert [event.number for event in found] == [4, 3]


def test_a_listener_hears_each_event_until_it_unsubscribes() -> None:
    timeline, heard = Timeline(Wall()), list[Event]()
    unsubscribe = timeline.subscribe(heard.append)
    timeline.record(turn(0))
    unsubscribe()
    timeline.record(turn(1))
    assert [event.number for event in heard] == [1]


def test_a_fence_is_remembered_until_the_broker_is_active_again() -> None:
    timeline = Timeline(Wall())
    timeline.record(turn(1, BrokerTurn.FENCED))
    timeline.record(turn(1, BrokerTurn.REGISTERED))
    assert timeline.fenced_at_ms(BrokerId(1)) == 1000
    timeline.record(turn(1, BrokerTurn.ACTIVE))
    assert timeline.fenced_at_ms(BrokerId(1)) is None


def test_a_partitions_change_carries_the_grounds_of_its_decision() -> None:
    timeline = Timeline(Wall())
    grounds = Grounds(MOVED, Cause.EVALUATION, ALL, (0, 1, 0))
    timeline.explain(TOPIC_ID, LED, grounds)
    elected = [LeaderChange(0, BrokerId(1), LeaderEpoch(6), BrokerId(0), "clean")]
    timeline.record_slice(slice_of(LED), slice_of(MOVED), elected)
    (fact,) = facts(timeline)
    assert isinstance(fact, PartitionChanged)
    assert (fact.before, fact.after, fact.grounds, fact.election) == (LED, MOVED, grounds, "clean")
    assert fact.broker_id == 1


def test_grounds_of_another_decision_than_the_stored_one_are_not_shown() -> None:
    timeline = Timeline(Wall())
    timeline.explain(TOPIC_ID, LED, Grounds(MOVED, Cause.BALANCE, ALL))
    stored = replace(MOVED, leader_epoch=LeaderEpoch(8))
    timeline.record_slice(slice_of(LED), slice_of(stored), [])
    timeline.record_slice(slice_of(LED), slice_of(MOVED), [])
    changes = [fact for fact in facts(timeline) if isinstance(fact, PartitionChanged)]
    assert [change.grounds for change in changes] == [None, None]


def test_what_did_not_change_is_no_event() -> None:
    timeline = Timeline(Wall())
    timeline.record_slice(slice_of(LED), slice_of(replace(LED)), [])
    timeline.explain(TOPIC_ID, LED, Grounds(LED, Cause.BALANCE, ALL))
    timeline.record_slice(slice_of(LED), slice_of(MOVED), [])
    (fact,) = facts(timeline)
    assert isinstance(fact, PartitionChanged) and fact.grounds is None


def test_new_partitions_and_the_end_of_service_are_events_of_the_topic() -> None:
    timeline, more = Timeline(Wall()), replace(LED, partition=1)
    timeline.record_slice(None, slice_of(LED), [])
    timeline.record_slice(slice_of(LED), slice_of(LED, more), [])
    resigned = partition("0@7 1@7", leader_epoch=6, partition_epoch=10)
    timeline.record_slice(slice_of(LED), slice_of(resigned, is_retained=True), [])
    first, second, last = facts(timeline)
    assert isinstance(first, PartitionsCreated) and first.partitions == (LED,)
    assert isinstance(second, PartitionsCreated) and second.partitions == (more,)
    assert isinstance(last, TopicRetired) and last.is_retained


def test_undone_decisions_are_forgotten_with_their_topic() -> None:
    timeline = Timeline(Wall())
    timeline.explain(TOPIC_ID, LED, Grounds(MOVED, Cause.BALANCE, ALL))
    timeline.forget_topic(TOPIC_ID)
    timeline.record_slice(slice_of(LED), slice_of(MOVED), [])
    (fact,) = facts(timeline)
    assert isinstance(fact, PartitionChanged) and fact.grounds is None


def test_an_event_concerns_its_topic_partition_and_broker() -> None:
    timeline = Timeline(Wall())
    timeline.record_slice(slice_of(LED), slice_of(MOVED), [])
    (event,) = timeline.after(0, 1)
    assert event.concerns("", -1, -1) and event.concerns("orders", 0, 1)
    assert not event.concerns("orders", 1, -1)
    assert not event.concerns("other", -1, -1)
    assert not event.concerns("", -1, 2)
