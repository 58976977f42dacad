"""Replicas that catch up are known by what changes, read by bound, and timed by readings."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark_operator.manager.web.broker_reads import BrokerReads, Follower, Replica
from tidemark_operator.manager.web.catching_up import (
    MAX_PARTITIONS,
    OutOfSync,
    Progress,
    ProgressTracker,
)
from tidemark_operator.manager.web.catching_up_reads import FRESH_SECONDS, CatchingUp
from tidemark_operator.manager.web.pool_feed import Message, PoolFeed
from tidemark_protocol.ids import NO_BROKER, BrokerEpoch, BrokerId, TopicId
from tidemark_protocol.partition_state import Member, PartitionState

from tests.support.waiting import run
from tests.unit.operator.manager.web.test_pool_feed import broker, partition, put, remove, topic

T = TopicId("id-orders")
ONE = BrokerId(1)


def in_sync(number: int) -> PartitionState:
    state = partition(number)
    return replace(state, in_sync_replicas=(*state.in_sync_replicas, Member(ONE, BrokerEpoch(1))))


def test_only_replicas_that_are_not_in_sync_are_kept() -> None:
    replicas = OutOfSync()
    for number in range(1000):
        replicas.set(T, in_sync(number))
    assert len(replicas) == 0
    replicas.set(T, partition(7))
    assert replicas.catching_up([BrokerId(0), ONE]) == {(T, 7): partition(7)}
    assert replicas.catching_up([BrokerId(0)]) == {}  # broker 1 is down
    replicas.set(T, in_sync(7))
    assert replicas.catching_up([ONE]) == {}


def test_partition_without_a_leader_catches_up_with_nobody() -> None:
    replicas = OutOfSync()
    replicas.set(T, replace(partition(0), leader=NO_BROKER))
    assert replicas.catching_up([ONE]) == {}


def test_each_broker_has_its_share_of_the_bound() -> None:
    replicas = OutOfSync()
    brokers = tuple(map(BrokerId, range(3)))
    for number in range(10_000):
        late = BrokerId(1 if number < 9_990 else 2)
        state = replace(
            partition(number),
            replicas=brokers,
            in_sync_replicas=tuple(Member(b, BrokerEpoch(1)) for b in brokers if b != late),
        )
        replicas.set(T, state)
    found = replicas.catching_up(brokers)
    assert len(found) <= MAX_PARTITIONS
    late = [number for _, number in found if number >= 9_990]
    assert len(late) == 10  # the few of broker 2 do not wait for the many of broker 1


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["behind", "in sync", "gone"]))))
def test_kept_replicas_are_those_of_the_last_states(steps: list[tuple[int, str]]) -> None:
    replicas, last = OutOfSync(), {}
    for number, step in steps:
        last[number] = step
        if step == "gone":
            replicas.forget(T, number)
        else:
            replicas.set(T, partition(number) if step == "behind" else in_sync(number))
    found = replicas.catching_up([ONE])
    assert {number for _, number in found} == {n for n, step in last.items() if step == "behind"}


def test_progress_has_rate_and_time_to_go() -> None:
    tracker, key = ProgressTracker(), (T, 0, ONE)
    assert tracker.record(key, 0.0, 1000, 0) == Progress(1000, None, None)
    # The leader takes 100 records a second, the follower copies 300 of them.
    assert tracker.record(key, 1.0, 1100, 300) == Progress(800, 300.0, 4000)
    assert tracker.record(key, 2.0, 1200, 600) == Progress(600, 300.0, 3000)


def test_replica_that_falls_behind_has_no_time_to_go() -> None:
    tracker, key = ProgressTracker(), (T, 0, ONE)
    tracker.record(key, 0.0, 1000, 0)
    assert tracker.record(key, 1.0, 2000, 500) == Progress(1500, 500.0, None)


def test_truncated_replica_starts_again() -> None:
    tracker, key = ProgressTracker(), (T, 0, ONE)
    tracker.record(key, 0.0, 1000, 900)
    assert tracker.record(key, 1.0, 1000, 10) == Progress(990, None, None)


def test_readings_are_forgotten_after_a_while_and_with_their_replica() -> None:
    tracker, key = ProgressTracker(), (T, 0, ONE)
    for second in range(100):
        progress = tracker.record(key, float(second), 10_000, second * (10 if second < 50 else 20))
    assert progress.records_per_second == 20.0
    tracker.keep(set())
    assert tracker.record(key, 101.0, 10_000, 5).records_per_second is None


class FakeReads(BrokerReads):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.end = 100

    async def leaders(self, pool: str, partitions: Any, brokers: Any) -> list[Replica | None]:
        self.asked.append(len(partitions))
        self.end += 100
        return [Replica(0, 0, 1000, [Follower(1, self.end)]) for _ in partitions]


@pytest.fixture
def feed() -> Iterator[PoolFeed]:
    made = PoolFeed("shop/default", 1)
    made.set_brokers((broker(0), broker(1)))
    yield made


def reading(feed: PoolFeed, reads: FakeReads) -> tuple[CatchingUp, list[Message]]:
    sent: list[Message] = []
    return CatchingUp(feed, reads, sent.append), sent


def test_pool_in_sync_is_not_read(feed: PoolFeed) -> None:
    async def scenario() -> None:
        put(feed, topic("orders", *map(in_sync, range(10_000))))
        reads = FakeReads()
        catching_up, sent = reading(feed, reads)
        await catching_up.refresh()
        assert (reads.asked, sent) == ([], [])

    run(scenario)


def test_lagging_replicas_are_read_until_they_are_in_sync(feed: PoolFeed) -> None:
    async def scenario() -> None:
        put(feed, topic("orders", *map(in_sync, range(500)), *map(partition, range(500, 503))))
        reads = FakeReads()
        catching_up, sent = reading(feed, reads)
        await catching_up.refresh()
        assert reads.asked == [3]
        assert b'["id-orders",500,1,800,null,null]' in sent[-1].body
        assert catching_up.documents()[0] == {
            "topic": "orders",
            "partition": 500,
            "brokerId": 1,
            "lagRecords": 800,
            "recordsPerSecond": None,
            "toGoMs": None,
        }
        put(feed, topic("orders", *map(in_sync, range(503))))
        await catching_up.refresh()
        assert reads.asked == [3]  # it is fresh
        await asyncio.sleep(FRESH_SECONDS)
        await catching_up.refresh()
        assert sent[-1].body.endswith(b'data: {"replicas":[]}\n\n')  # pages forget them
        await asyncio.sleep(FRESH_SECONDS)
        await catching_up.refresh()
        assert reads.asked == [3, 0]

    run(scenario)


def test_readings_are_bounded_and_one_at_a_time(feed: PoolFeed) -> None:
    async def scenario() -> None:
        put(feed, topic("orders", *map(partition, range(10_000))))
        reads = FakeReads()
        catching_up, _ = reading(feed, reads)
        for _ in range(10):
            catching_up.begin()
        await asyncio.gather(*(catching_up.refresh() for _ in range(10)))
        assert reads.asked == [MAX_PARTITIONS]

    run(scenario)


@pytest.mark.parametrize("leave", ["fenced", "retained", "deleted"])
def test_what_is_down_or_not_served_does_not_catch_up(feed: PoolFeed, leave: str) -> None:
    view = topic("orders", partition(0))
    put(feed, view)
    assert feed.catching_up() == {(T, 0): ("orders", partition(0))}
    if leave == "fenced":
        feed.set_brokers((broker(0), broker(1, "Fenced")))
    elif leave == "retained":
        put(feed, replace(view, is_retained=True))
    else:
        remove(feed, "orders")
    assert feed.catching_up() == {}
