"""Thousands of partitions: one turn of the loop does so much, and what is idle costs nothing.

Counted in partitions, syncs and fetch entries: a machine's speed says little here.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    TopicResponse,
)
from tidemark_broker.metadata.metadata_cache import parts_of
from tidemark_broker.replication import follower_fetch, leader_endpoint
from tidemark_broker.replication.fetcher_manager import ReplicaFetcher, ReplicaFetcherManager
from tidemark_broker.replication.follower_session import FollowerSession
from tidemark_broker.replication.leader_endpoint import LeaderEndpoint
from tidemark_broker.replication.roles import ROLES_AT_A_TIME, STATES_AT_A_TIME
from tidemark_broker.server import lifecycle_manager
from tidemark_protocol.controller_messages import (
    HeartbeatResponse,
    MetadataPush,
    TopicPush,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import Member, PartitionState, TopicState

from tests.support.in_process_pool import InProcessPool, a_batch
from tests.support.waiting import eventually
from tests.unit.broker.session_harness import FakeController, Harness, polling, run

MANY = TopicState("many", TopicId("00000000-0000-0000-0000-00000000000a"), 24, 2)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[InProcessPool]:
    pool = InProcessPool(tmp_path, brokers=(1, 2))
    yield pool
    for number in tuple(pool.brokers):
        pool.kill(number)


def state_of(
    pool: InProcessPool, number: int, *, leader: int = 1, epoch: int = 0
) -> PartitionState:
    members = (pool.member(1), pool.member(2))
    return PartitionState(
        number,
        (BrokerId(1), BrokerId(2)),
        BrokerId(leader),
        pool.brokers[leader].broker_epoch,
        LeaderEpoch(epoch),
        members,
        (),
        PartitionEpoch(epoch),
        1,
    )


def push_of(pool: InProcessPool, *topics: TopicPush) -> MetadataPush:
    pool.image_version += 1
    return replace(pool.image(), image_version=pool.image_version, topics=topics)


def many(pool: InProcessPool, count: int = MANY.partition_count, *, epoch: int = 0) -> TopicPush:
    states = tuple(state_of(pool, number, epoch=epoch) for number in range(count))
    return TopicPush(MANY, states)


def fetch_all(
    pool: InProcessPool, link: FollowerSession, count: int
) -> list[tuple[TopicResponse, ...]]:
    """Broker 2 asks broker 1 for all of the topic, in one fetch of a new session."""
    requested = tuple(FetchPartition(number, 0, 0, -1, 0, 1_000_000) for number in range(count))
    request = FetchRequest(
        500,
        1,
        10_000_000,
        (FetchTopic(MANY.topic_id, requested),),
        replica_id=2,
        replica_epoch=pool.brokers[2].broker_epoch,
        session_id=0,
        session_epoch=0,
    )
    found: list[tuple[TopicResponse, ...]] = []
    pool.brokers[1].fetches.handle(request, link, found.append)
    return found


def lead_many(pool: InProcessPool, count: int = MANY.partition_count) -> None:
    for number in (1, 2):
        broker = pool.brokers[number]
        for work in broker.partitions.applying(push_of(pool, many(pool, count))):
            broker.directory.create_logs(work.make)


# ---- pushes


def test_parts_of_a_push_are_bounded_and_lose_nothing(pool: InProcessPool) -> None:
    other = TopicPush(replace(MANY, topic="other", topic_id=TopicId("id-b")), ())
    parts = list(parts_of((other, many(pool), other), partitions=16))
    assert [[len(entry.partitions) for entry in part] for part in parts] == [
        [0, 15],
        [9, 0],
    ]
    states = [state for part in parts for entry in part for state in entry.partitions]
    assert states == list(many(pool).partitions)


def test_a_push_is_applied_a_few_roles_at_a_time_and_counts_once_all_are(
    pool: InProcessPool,
) -> None:
    broker = pool.brokers[1].partitions
    pushed = push_of(pool, many(pool))
    taken = []
    for work in broker.applying(pushed):
        pool.brokers[1].directory.create_logs(work.make)
        taken.append(len(broker.replicas))
        assert broker.metadata.image_version < pushed.image_version
    steps = [after - before for before, after in pairwise(taken)]
    assert max(steps) <= ROLES_AT_A_TIME
    assert taken[-1] == MANY.partition_count
    assert broker.metadata.image_version == pushed.image_version


def turns_of(pool: InProcessPool, *entries: TopicPush) -> list[int]:
    """How many states each turn of the loop takes, of a push of these."""
    broker = pool.brokers[1]
    works = broker.partitions.applying(push_of(pool, *entries))
    taken, applied = [], 0
    kept = broker.partitions.metadata.apply_partition

    def counting(topic_id: TopicId, state: PartitionState) -> bool:
        nonlocal applied
        applied += 1
        return kept(topic_id, state)

    broker.partitions.metadata.apply_partition = counting  # type: ignore[method-assign]
    for work in works:
        broker.directory.create_logs(work.make)
        if applied:
            taken.append(applied)
        applied = 0
    broker.partitions.metadata.apply_partition = kept  # type: ignore[method-assign]
    return taken


def test_states_that_write_no_file_are_taken_by_more_than_new_leaders(pool: InProcessPool) -> None:
    """Ten thousand in steps of 16 are 625 turns, and after each of them all else has its turn."""
    count = STATES_AT_A_TIME + 20
    assert max(turns_of(pool, many(pool, count))) == ROLES_AT_A_TIME  # logs are new
    kept = tuple(
        replace(state_of(pool, number), partition_epoch=PartitionEpoch(1))
        for number in range(count)
    )
    assert sorted(turns_of(pool, TopicPush(MANY, kept)), reverse=True)[0] <= STATES_AT_A_TIME
    followed = tuple(state_of(pool, number, leader=2, epoch=2) for number in range(count))
    assert sum(turns := turns_of(pool, TopicPush(MANY, followed))) == count
    assert max(turns) > ROLES_AT_A_TIME
    led = tuple(state_of(pool, number, leader=1, epoch=3) for number in range(count))
    assert max(turns_of(pool, TopicPush(MANY, led))) == ROLES_AT_A_TIME


def test_a_turn_that_has_both_counts_a_new_leader_as_several_states(pool: InProcessPool) -> None:
    turns_of(pool, many(pool, 64))
    weight = STATES_AT_A_TIME // ROLES_AT_A_TIME
    mixed = tuple(
        state_of(pool, number, leader=1 if number % 2 else 2, epoch=1) for number in range(64)
    )
    turns = list(pool.brokers[1].partitions.roles.turns((TopicPush(MANY, mixed),)))
    states = [[state for entry in turn for state in entry.partitions] for turn in turns]
    assert [state for turn in states for state in turn] == list(mixed)
    for turn in states:
        leaders = sum(state.leader == 1 for state in turn)
        assert len(turn) - leaders + weight * leaders <= STATES_AT_A_TIME
    assert len(turns) == 3


def test_logs_of_a_push_are_made_together_before_any_role_needs_them(pool: InProcessPool) -> None:
    works = []
    for work in pool.brokers[1].partitions.applying(push_of(pool, many(pool))):
        pool.brokers[1].directory.create_logs(work.make)
        works.append(work)
    assert [len(work.make) for work in works if work.make] == [MANY.partition_count]
    assert works[[bool(work.make) for work in works].index(True)].make[0] == (
        "many",
        MANY.topic_id,
        0,
    )


def test_a_large_topic_is_let_go_of_a_few_replicas_at_a_time(pool: InProcessPool) -> None:
    lead_many(pool)
    broker = pool.brokers[1]
    removed = []
    for work in broker.partitions.applying(push_of(pool, TopicPush(MANY, (), is_deleted=True))):
        broker.directory.remove_logs(work.remove)
        removed.append(len(work.remove))
    assert max(removed) <= ROLES_AT_A_TIME
    assert sum(removed) == MANY.partition_count
    assert not broker.partitions.replicas
    assert not broker.directory.logs


def test_what_was_created_and_deleted_leaves_nothing_in_memory(pool: InProcessPool) -> None:
    lead_many(pool)
    link = FollowerSession()
    fetch_all(pool, link, MANY.partition_count)
    broker = pool.brokers[1].partitions
    broker.apply_push(push_of(pool, TopicPush(MANY, (), is_deleted=True)))
    pool.time.run(500)
    broker.on_tick()
    hosted, metadata = broker._hosted, broker.metadata
    assert (hosted.by_id, hosted.by_name, hosted._numbers, hosted._ids_by_topic) == ({}, {}, {}, {})
    assert (metadata.partitions, metadata.topics, metadata._numbers) == ({}, {}, {})
    assert broker.high_watermarks() == {}
    assert not broker.ticks._active
    assert (link.requested, link.watched, link.reported_positions) == ({}, {}, {})
    assert not pool.brokers[1].directory.high_watermarks


def test_a_name_that_a_push_frees_and_gives_again_has_an_empty_log(pool: InProcessPool) -> None:
    """S12, S23: what was deleted goes first, so that nothing is set aside in its place."""
    lead_many(pool, 2)
    broker = pool.brokers[1]
    broker.partitions.produce(
        "many", 0, memoryview(a_batch("a")), acks=1, timeout_ms=1000, done=lambda result: None
    )
    again = replace(MANY, topic_id=TopicId("00000000-0000-0000-0000-00000000000b"))
    made = TopicPush(again, (state_of(pool, 0), state_of(pool, 1)))
    pushed = push_of(pool, made, TopicPush(MANY, (), is_deleted=True))
    for work in broker.partitions.applying(pushed):
        broker.directory.create_logs(work.make)
        broker.directory.remove_logs(work.remove)
    replica = broker.partitions.hosted(again.topic_id, 0)
    assert replica is not None
    assert (replica.role, replica.log.log_end_offset) == ("leader", 0)
    assert broker.directory.strays == []


# ---- the session goes on


def test_heartbeats_go_on_while_logs_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker would be fenced for what it was told to make."""

    async def scenario(controller: FakeController, harness: Harness) -> None:
        go_on = asyncio.Event()
        loop = asyncio.get_running_loop()
        create_logs = harness.directory.create_logs

        def create_slowly(wanted: object) -> None:
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(30)
            create_logs(wanted)  # type: ignore[arg-type]

        monkeypatch.setattr(harness.directory, "create_logs", create_slowly)

        async def steps() -> None:
            monkeypatch.setattr(lifecycle_manager, "PATIENCE_SHARE", 100)  # 30 ms
            leader = Member(BrokerId(2), BrokerEpoch(3))
            state = PartitionState(
                0,
                (BrokerId(1), BrokerId(2)),
                leader.broker_id,
                leader.broker_epoch,
                LeaderEpoch(0),
                (leader,),
                (),
                PartitionEpoch(0),
                1,
            )
            topic = TopicPush(replace(MANY, partition_count=1), (state,))
            pushed = MetadataPush(ControllerEpoch(5), 12, True, (), (topic,))
            response = HeartbeatResponse(
                ErrorCode.NONE, controller_epoch=ControllerEpoch(5), push=pushed
            )
            controller.answer(0, response)
            await eventually(lambda: len(controller.polls) == 2)
            assert controller.polls[1][0].applied_image_version == -1  # nothing is, so far
            answered_at = loop.time()
            controller.answer(1, response)  # so it comes again, and is not applied twice
            await eventually(lambda: len(controller.polls) == 3)
            assert loop.time() - answered_at >= 0.03  # not at once: it may be megabytes each time
            go_on.set()
            await eventually(lambda: harness.partitions.metadata.image_version == 12)
            (replica,) = harness.partitions.replicas
            assert replica.role == "follower"

        await polling(controller, harness, steps)

    run(tmp_path, scenario)


# ---- idle partitions


def test_a_tick_visits_only_replicas_to_which_something_happened(pool: InProcessPool) -> None:
    lead_many(pool)
    fetch_all(pool, FollowerSession(), MANY.partition_count)
    pool.time.run(500)
    leader = pool.brokers[1].partitions
    leader.on_tick()
    visited = leader.ticks.visited
    leader.on_tick()
    assert leader.ticks.visited == visited
    results: list[object] = []
    leader.produce(
        "many", 7, memoryview(a_batch("a")), acks=-1, timeout_ms=1000, done=results.append
    )
    for _ in range(3):  # until its follower has it too
        leader.on_tick()
    assert leader.ticks.visited == visited + 3


def test_a_member_that_stops_fetching_is_judged_although_all_was_idle_before(
    pool: InProcessPool,
) -> None:
    lead_many(pool, 1)
    fetch_all(pool, FollowerSession(), 1)
    pool.time.run(500)
    broker = pool.brokers[1]
    broker.partitions.on_tick()
    pool.time.run(60_000)
    broker.partitions.produce(
        "many", 0, memoryview(a_batch("a")), acks=1, timeout_ms=1000, done=lambda result: None
    )
    for _ in range(80):
        pool.time.run(250)
        broker.partitions.on_tick()
    assert [
        [member.broker_id for member in proposal.new_in_sync_replicas]
        for proposal in broker.proposals
    ][:1] == [[1]]


def test_watermarks_are_looked_at_where_they_moved(pool: InProcessPool) -> None:
    lead_many(pool, 3)
    broker = pool.brokers[1].partitions
    assert set(broker.high_watermarks().values()) == {0}
    fetch_all(pool, FollowerSession(), 3)
    broker.produce(
        "many", 1, memoryview(a_batch("a")), acks=1, timeout_ms=1000, done=lambda result: None
    )
    assert not broker._watermarks._moved
    replica = broker.hosted(MANY.topic_id, 1)
    assert replica is not None
    replica._on_high_watermark(replica.high_watermark)
    assert list(broker._watermarks._moved) == [(MANY.topic_id, 1)]


# ---- fetches


def test_a_fetch_names_so_many_partitions_and_the_next_ones_the_others(
    pool: InProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_endpoint, "MAX_NAMED", 9)
    lead_many(pool)

    async def scenario() -> None:
        written: list[list[int]] = []
        connection = LeaderEndpoint(BrokerId(1), pool.brokers[2].partitions)
        connection.connection_made(Counting(written, connection))
        connection.follow(list(pool.brokers[2].partitions.replicas))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert written == [list(range(9)), list(range(9, 18))]
        connection._in_flight.popleft()  # as with an answer
        connection._send_if_free()
        assert written[2:] == [list(range(18, 24))]
        connection.connection_lost(None)

    asyncio.run(scenario())


class Counting(asyncio.Transport):
    """Notes which partitions each fetch names."""

    def __init__(self, written: list[list[int]], connection: LeaderEndpoint) -> None:
        super().__init__()
        self._written, self._connection = written, connection

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written.append([key[1] for key in self._connection._in_flight[-1].named])


def test_an_answer_has_records_of_so_many_partitions_and_the_next_one_the_others(
    pool: InProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_fetch, "MAX_RESPONDED", 9)
    lead_many(pool)
    link = FollowerSession()
    fetch_all(pool, link, MANY.partition_count)
    pool.time.run(500)
    leader = pool.brokers[1].partitions
    for number in range(MANY.partition_count):
        leader.produce(
            "many", number, memoryview(a_batch("a")), acks=1, timeout_ms=1000, done=lambda _: None
        )
    responses: list[tuple[TopicResponse, ...]] = []
    for epoch in (1, 2, 3):
        following = FetchRequest(
            500,
            1,
            10_000_000,
            (),
            replica_id=2,
            replica_epoch=pool.brokers[2].broker_epoch,
            session_id=1,
            session_epoch=epoch,
        )
        pool.brokers[1].fetches.handle(following, link, responses.append)
    reported = [[response.partition for response in topic.partitions] for (topic,) in responses]
    assert reported == [list(range(9)), list(range(9, 18)), list(range(18, 24))]


def test_the_end_of_a_connection_is_taken_in_slices(
    pool: InProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed follower asked for thousands of partitions on one connection."""
    monkeypatch.setattr(follower_fetch, "FORGOTTEN_AT_A_TIME", 10)
    lead_many(pool)
    link = FollowerSession()
    fetch_all(pool, link, MANY.partition_count)
    assert len(link.watched) == MANY.partition_count
    left = []

    def next_turn() -> None:
        left.append(len(link.watched))
        if link.watched:
            pool.time.call_soon(next_turn)

    pool.brokers[1].fetches.cancel(link)
    next_turn()
    pool.time.run(0)
    assert left == [14, 4, 0]
    assert pool.brokers[1].fetches._watching == {}


def test_a_push_makes_fetchers_look_at_what_changed_only(pool: InProcessPool) -> None:
    lead_many(pool)
    follower = pool.brokers[2].partitions
    looked_at: list[list[int]] = []

    class Looking(ReplicaFetcher):
        def check_replicas(self, replicas: object) -> None:
            assert isinstance(replicas, list)
            looked_at.append([replica.partition for replica in replicas])

    async def scenario() -> None:
        async with asyncio.TaskGroup() as tasks:
            fetchers = ReplicaFetcherManager(
                follower, suspect=lambda _: None, responded=lambda _: None, tasks=tasks
            )
            fetchers.on_roles_applied()
            ((fetcher, _),) = fetchers._fetchers.values()
            fetcher.__class__ = Looking
            changed = TopicPush(MANY, (state_of(pool, 3, epoch=1), state_of(pool, 5, epoch=1)))
            follower.apply_push(push_of(pool, changed))
            fetchers.on_roles_applied()
            fetchers.on_roles_applied()
            gone = TopicPush(MANY, (state_of(pool, 8, leader=2, epoch=1),))
            follower.apply_push(push_of(pool, gone))
            fetchers.on_roles_applied()
            fetchers.stop()

    asyncio.run(scenario())
    assert looked_at == [[3, 5], [8]]


def test_a_broker_that_stops_follows_nothing_more_whatever_it_is_told(pool: InProcessPool) -> None:
    lead_many(pool)
    follower = pool.brokers[2].partitions

    async def scenario() -> None:
        async with asyncio.TaskGroup() as tasks:
            fetchers = ReplicaFetcherManager(
                follower, suspect=lambda _: None, responded=lambda _: None, tasks=tasks
            )
            pool.brokers[2].observers.add(fetchers)
            fetchers.on_roles_applied()
            follower.stop("the test stops it")
            fetchers.stop()
            fetchers.on_roles_applied()
            follower.record_failures_acknowledged(list(follower.failed_replicas))
            assert fetchers._fetchers == {}

    asyncio.run(scenario())


# ---- what is told of it


def test_roles_of_one_step_are_logged_in_one_line(
    pool: InProcessPool, caplog: pytest.LogCaptureFixture
) -> None:
    """A line costs more than the role: ten thousand of them hold up the loop after a kill."""
    lead_many(pool)
    caplog.set_level("INFO")
    broker = pool.brokers[1].partitions
    broker.apply_push(push_of(pool, many(pool, epoch=1)))
    reported = [getattr(record, "partitions", None) for record in caplog.records]
    lines = [line for line in reported if line is not None]
    assert [len(line) for line in lines] == [
        ROLES_AT_A_TIME,
        MANY.partition_count - ROLES_AT_A_TIME,
    ]
    states = [
        (each["partition"], each["role"], each["leader_epoch"]) for line in lines for each in line
    ]
    assert states == [(number, "leader", 1) for number in range(MANY.partition_count)]
    caplog.clear()
    broker.apply_push(push_of(pool, TopicPush(MANY, (state_of(pool, 3, epoch=2),))))
    assert [record.getMessage() for record in caplog.records] == ["partition state applied"]
