"""The Kafka listener and a follower's connection over real loopback sockets."""

import asyncio
import struct
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tidemark_broker.coordinator.core.group_config import GroupSettings
from tidemark_broker.coordinator.group_coordinator_service import GroupCoordinatorService
from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.network.socket_server import SocketServer
from tidemark_broker.kafka_wire.messages.fetch import FetchRequest, encode_fetch_request
from tidemark_broker.kafka_wire.messages.primitives import INT32
from tidemark_broker.log.disk import OsDisk
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.log.partition_log import LogSettings
from tidemark_broker.metadata.leader_changes import LeaderChanges
from tidemark_broker.metadata.producer_id_manager import ProducerIdManager
from tidemark_broker.quota_manager import ClientQuotaManager
from tidemark_broker.replication.core.reassignment_throttle import ReassignmentThrottle
from tidemark_broker.replication.fetcher_manager import ReplicaFetcher, ReplicaFetcherManager
from tidemark_broker.replication.follower_fetch import FollowerFetchHandler
from tidemark_broker.replication.partition_observer import nothing
from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_protocol.controller_messages import (
    BrokerState,
    Endpoints,
    MetadataPush,
    TopicPush,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
)
from tidemark_protocol.partition_state import Member, PartitionState, TopicState

from tests.support.fake_controller import FakeController, no_producer_ids
from tests.support.in_process_pool import KEY, TOPIC, TOPIC_ID, a_batch
from tests.support.waiting import HANG_SECONDS, eventually

ORDERS = TopicState(TOPIC, TOPIC_ID, 1, 2)


class Link:
    """Broker 1 leads, broker 2 follows it over a socket."""

    def __init__(self, path: Path, tasks: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        self.suspects: list[BrokerId] = []
        self.responded: list[BrokerId] = []
        self.directories = {}
        self.partitions: dict[int, ReplicaManager] = {}
        for number in (1, 2):
            directory = LogManager.open(
                path / str(number), OsDisk(), broker_id=BrokerId(number), settings=LogSettings()
            )
            partitions = ReplicaManager(BrokerId(number), scheduler=loop, wall_clock_s=time.time)
            partitions.set_broker_epoch(BrokerEpoch(number + 10))
            self.directories[number] = directory
            self.partitions[number] = partitions
        fetches = FollowerFetchHandler(self.partitions[1], scheduler=loop)
        self.partitions[1].open(self.directories[1], submit=nothing, observers=(fetches,))
        self.controller = FakeController()
        topic_admin = self.controller.topic_admin(self.partitions[1].metadata)
        self.listener = SocketServer(
            HandlerContext(
                self.partitions[1],
                fetches,
                GroupCoordinatorService(
                    self.partitions[1],
                    topic_admin,
                    GroupSettings(),
                    scheduler=loop,
                    wall_clock_s=time.time,
                ),
                loop,
                uuid.uuid4,
                ClientQuotaManager(tuple),
                LeaderChanges(self.partitions[1].metadata, scheduler=loop),
                ProducerIdManager(no_producer_ids),
                topic_admin,
                cluster_id=lambda: "mine",
            )
        )
        self.fetchers = ReplicaFetcherManager(
            self.partitions[2],
            suspect=self.suspects.append,
            responded=self.responded.append,
            tasks=tasks,
        )
        self.partitions[2].open(self.directories[2], submit=nothing, observers=(self.fetchers,))
        self.port = 0
        self.version = 0

    async def start(self) -> None:
        self.port = await self.listener.start("127.0.0.1", 0)

    def push(
        self,
        *,
        leader: int = 1,
        port: int | None = None,
        adding: bool = False,
        partition_count: int = 1,
    ) -> None:
        """`adding`: broker 2 is being moved in, and not in sync yet. The first one of
        `partition_count` partitions is told."""
        self.version += 1
        members = (Member(BrokerId(1), BrokerEpoch(11)), Member(BrokerId(2), BrokerEpoch(12)))
        state = PartitionState(
            0,
            (BrokerId(1), BrokerId(2)),
            BrokerId(leader),
            BrokerEpoch(leader + 10),
            LeaderEpoch(self.version),
            members[:1] if adding else members,
            (),
            PartitionEpoch(self.version),
            1 if adding else 2,
            adding_replicas=(BrokerId(2),) if adding else (),
        )
        endpoints = Endpoints("127.0.0.1", self.port if port is None else port, 1, "http://b")
        brokers = tuple(
            BrokerState(member.broker_id, member.broker_epoch, False, False, endpoints)
            for member in members
        )
        push = MetadataPush(
            ControllerEpoch(1),
            self.version,
            True,
            brokers,
            (TopicPush(replace(ORDERS, partition_count=partition_count), (state,)),),
        )
        for partitions in self.partitions.values():
            partitions.apply_push(push)

    async def stop(self) -> None:
        self.fetchers.stop()
        await self.listener.stop()
        for directory in self.directories.values():
            directory.close()


def run(path: Path, scenario: Callable[[Link], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(HANG_SECONDS), asyncio.TaskGroup() as tasks:
            link = Link(path, tasks)
            await link.start()
            try:
                await scenario(link)
            finally:
                await link.stop()

    asyncio.run(main())


def test_records_reach_the_follower_and_come_back_as_acknowledgements(tmp_path: Path) -> None:
    async def scenario(link: Link) -> None:
        link.push()
        results: list[object] = []
        for value in ("a", "b", "c"):
            link.partitions[1].produce(
                TOPIC, 0, memoryview(a_batch(value)), acks=-1, timeout_ms=1000, done=results.append
            )
        await eventually(lambda: len(results) == 3)
        follower = link.partitions[2].hosted(*KEY)
        assert follower is not None
        assert follower.log.log_end_offset == 3
        await eventually(lambda: follower.high_watermark == 3)
        assert link.suspects == []

    run(tmp_path, scenario)


def test_a_log_start_that_a_follower_raised_itself_is_told_while_nothing_else_happens(
    tmp_path: Path,
) -> None:
    """Else its leader would send it readers of records that it has deleted."""

    async def scenario(link: Link) -> None:
        link.push()
        link.partitions[1].produce(
            TOPIC, 0, memoryview(a_batch("a")), acks=-1, timeout_ms=1000, done=lambda _: None
        )
        leader, follower = link.partitions[1].hosted(*KEY), link.partitions[2].hosted(*KEY)
        assert leader is not None
        assert leader.leader is not None
        assert follower is not None
        await eventually(lambda: follower.high_watermark == 1)
        known = leader.leader.follower(BrokerId(2))
        assert known is not None
        assert known.log_start_offset == 0
        follower.advance_log_start(Offset(1))
        await eventually(lambda: known.log_start_offset == 1)
        assert leader.log.log_start_offset == 0

    run(tmp_path, scenario)


class CountingThrottle(ReassignmentThrottle):
    """Slows nobody and knows what it was told."""

    spent_bytes = 0

    def spend(self, size_bytes: int, now_ms: int) -> None:
        self.spent_bytes += size_bytes


def test_what_is_moved_in_is_paid_for_and_what_is_in_sync_is_not(tmp_path: Path) -> None:
    async def scenario(link: Link) -> None:
        throttle = link.partitions[2].join_throttle = CountingThrottle()
        link.push(adding=True)
        batch = a_batch("a")
        follower = link.partitions[2].hosted(*KEY)
        assert follower is not None
        log = follower.log
        for end in (1, 2):
            link.partitions[1].produce(
                TOPIC, 0, memoryview(batch), acks=1, timeout_ms=1000, done=lambda _: None
            )
            await eventually(lambda end=end: log.log_end_offset == end)
            assert throttle.spent_bytes == len(batch)
            link.push()  # in sync from here on

    run(tmp_path, scenario)


class EmptyThrottle(ReassignmentThrottle):
    def allowance_bytes(self, now_ms: int, *, at_most: int) -> int:
        return 0


def test_nothing_is_asked_for_while_nothing_may_be_and_others_go_on(tmp_path: Path) -> None:
    async def scenario(link: Link) -> None:
        link.partitions[2].join_throttle = EmptyThrottle()
        link.push(adding=True)
        link.partitions[1].produce(
            TOPIC, 0, memoryview(a_batch("a")), acks=1, timeout_ms=1000, done=lambda _: None
        )
        await eventually(lambda: link.listener.connections)
        follower = link.partitions[2].hosted(*KEY)
        assert follower is not None
        assert follower.log.log_end_offset == 0
        link.push()  # a member of the ISR is never slowed down
        await eventually(lambda: follower.log.log_end_offset == 1)

    run(tmp_path, scenario)


def test_a_lost_connection_makes_the_leader_a_suspect_and_is_made_anew(tmp_path: Path) -> None:
    async def scenario(link: Link) -> None:
        link.push()
        await eventually(lambda: link.listener.connections)
        for connection in tuple(link.listener.connections):
            connection.close()
        await eventually(lambda: link.suspects == [BrokerId(1)])
        await eventually(lambda: link.listener.connections)

    run(tmp_path, scenario)


def test_a_refused_connection_makes_the_leader_a_suspect(tmp_path: Path) -> None:
    async def scenario(link: Link) -> None:
        link.push(port=1)
        await eventually(lambda: link.suspects)
        assert set(link.suspects) == {BrokerId(1)}

    run(tmp_path, scenario)


def test_a_new_address_is_dialled_at_once(tmp_path: Path) -> None:
    async def scenario(link: Link) -> None:
        link.push(port=1)
        await eventually(lambda: link.suspects)
        link.push()
        await eventually(lambda: link.listener.connections)

    run(tmp_path, scenario)


def test_who_leads_itself_follows_nobody_and_suspects_nobody(tmp_path: Path) -> None:
    async def scenario(link: Link) -> None:
        link.push()
        await eventually(lambda: link.listener.connections)
        link.push(leader=2)
        await eventually(lambda: not link.listener.connections)
        assert link.suspects == []

    run(tmp_path, scenario)


def test_only_an_answer_says_that_a_leader_is_there_not_that_it_was_connected_to(
    tmp_path: Path,
) -> None:
    """The kernel accepts connections for a process that stands still."""

    async def scenario(link: Link) -> None:
        requested = asyncio.Event()

        async def stand_still(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
            await reader.read(1)
            requested.set()

        server = await asyncio.start_server(stand_still, "127.0.0.1", 0)
        link.push(port=server.sockets[0].getsockname()[1])
        await requested.wait()
        assert link.responded == []
        link.push()
        await eventually(lambda: link.responded == [1])
        server.close()

    run(tmp_path, scenario)


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 20, 100])
def test_a_cancelled_fetcher_ends_even_when_its_address_changed_just_then(
    tmp_path: Path, turns: int
) -> None:
    async def scenario(link: Link) -> None:
        endpoints = Endpoints("127.0.0.1", 1, 1, "")
        fetcher = ReplicaFetcher(
            BrokerId(1),
            link.partitions[2],
            suspect=link.suspects.append,
            responded=link.responded.append,
        )
        fetcher.dial(endpoints)
        task = asyncio.ensure_future(fetcher.run())
        for _ in range(turns):  # it connects, is refused, waits to connect again
            await asyncio.sleep(0)
        fetcher.dial(replace(endpoints, kafka_port=2))
        task.cancel()
        async with asyncio.timeout(30):
            await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    run(tmp_path, scenario)


async def exchange(port: int, data: bytes) -> bytes:
    """What the listener answers until it closes; its first answer if it does not."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        async with asyncio.timeout(30):
            return await reader.read(4096)
    finally:
        writer.close()


def framed(body: bytes) -> bytes:
    return INT32.pack(len(body)) + body


@pytest.mark.parametrize(
    "data",
    [
        framed(b"\x00\x00\x00\x09\x00\x00\x00\x01\xff\xff\x00"),  # Produce
        framed(b"\x00\x03\x00\x0c\x00\x00\x00\x01\xff\xff\x00"),  # Metadata
        framed(b"\x00\x01\x00\x03\x00\x00\x00\x01\xff\xff"),  # Fetch v3
        framed(b"\x00\x01\x00\x0b\x00\x00\x00\x01\xff\xff"),  # Fetch v11, cut
        framed(b"\x00\x18\x00\x00\x00\x00\x00\x01\xff\xff"),  # AddPartitionsToTxn
        framed(b""),
        framed(b"\x00"),
        INT32.pack(-1),
        INT32.pack(2**31 - 1),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=[
        *("produce", "metadata", "old", "cut-fetch", "transactions", "empty", "cut", "negative"),
        *("huge", "http", "tls"),
    ],
)
def test_what_is_not_served_here_closes_the_connection(tmp_path: Path, data: bytes) -> None:
    async def scenario(link: Link) -> None:
        link.push()  # without metadata most of it would not be looked at yet
        assert await exchange(link.port, data) == b""

    run(tmp_path, scenario)


def test_api_versions_names_what_is_served(tmp_path: Path) -> None:
    async def scenario(link: Link) -> None:
        request = framed(b"\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff")
        response = await exchange(link.port, request)
        size, correlation_id, error, count = struct.unpack_from(">iihi", response)
        assert (size, correlation_id, error) == (len(response) - 4, 7, 0)
        served = [tuple(api) for api in struct.iter_unpack(">hhh", response[14:])]
        assert len(served) == count
        assert served[:2] == [(0, 0, 13), (1, 4, 18)] and (18, 0, 5) in served

    run(tmp_path, scenario)


def test_a_replica_of_another_cluster_is_told_so(tmp_path: Path) -> None:
    async def scenario(link: Link) -> None:
        foreign = FetchRequest(0, 1, 1, (), replica_id=2, replica_epoch=12, cluster_id="another")
        frame = encode_fetch_request(foreign, correlation_id=1, client_id="c")
        response = await exchange(link.port, frame)
        assert int.from_bytes(response[13:15], "big") == ErrorCode.INCONSISTENT_CLUSTER_ID

    run(tmp_path, scenario)
