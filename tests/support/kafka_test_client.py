"""A broker behind real loopback sockets that leads one partition alone, and bytes to send to it."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop
from tidemark_broker.coordinator.core.group_config import GroupSettings
from tidemark_broker.coordinator.group_coordinator_service import GroupCoordinatorService
from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.network.client_session import OPEN, ListenerRules
from tidemark_broker.kafka.network.limits import ListenerLimits
from tidemark_broker.kafka.network.socket_server import SocketServer
from tidemark_broker.kafka_wire.messages.primitives import INT16, INT32, INT64, nullable_string
from tidemark_broker.log.disk import OsDisk
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.log.partition_log import LogSettings
from tidemark_broker.metadata.leader_changes import LeaderChanges
from tidemark_broker.metadata.producer_id_manager import ProducerIdManager
from tidemark_broker.quota_manager import ClientQuotaManager
from tidemark_broker.replication.follower_fetch import FollowerFetchHandler
from tidemark_broker.replication.partition_observer import nothing
from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_broker.security.authenticator import AskController, Authenticator
from tidemark_broker.security.authorizer import Authorizer
from tidemark_protocol.access_messages import Principal
from tidemark_protocol.controller_messages import (
    BrokerState,
    ClientQuota,
    Endpoints,
    ListenerAddress,
    MetadataPush,
    TopicPush,
)
from tidemark_protocol.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import Member, PartitionState, TopicState
from tidemark_protocol.topic_messages import RequestingBroker
from tidemark_protocol.topic_names import OFFSETS_TOPIC

from tests.support.fake_controller import FakeController, no_producer_ids
from tests.support.in_process_pool import TOPIC, TOPIC_ID

PRODUCE, FETCH, API_VERSIONS = 0, 1, 18
ONLY = BrokerId(1)
OFFSETS_TOPIC_ID = TopicId("0b8f8b2e-0000-4000-8000-00000000000f")


def authenticator_by(ask: AskController) -> Authenticator:
    return Authenticator(
        ask,
        requesting=lambda: RequestingBroker("shop/default", ONLY, BrokerEpoch(11)),
        wall_clock_s=time.time,
        random_prefix=b"test",
    )


class KafkaTestClient:
    def __init__(
        self,
        path: Path,
        limits: ListenerLimits,
        rules: ListenerRules = OPEN,
        ask: AskController | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        """Create it; with an authorizer its listener is one whose clients have names."""
        loop = asyncio.get_running_loop()
        self.directory = LogManager.open(path, OsDisk(), broker_id=ONLY, settings=LogSettings())
        partitions = ReplicaManager(ONLY, scheduler=loop, wall_clock_s=time.time)
        partitions.set_broker_epoch(BrokerEpoch(11))
        self.partitions = partitions
        self.controller = FakeController()
        topic_admin = self.controller.topic_admin(partitions.metadata)
        groups = GroupCoordinatorService(
            partitions, topic_admin, GroupSettings(), scheduler=loop, wall_clock_s=time.time
        )
        partitions.open(self.directory, submit=nothing, observers=(groups,))
        self.context = HandlerContext(
            partitions,
            FollowerFetchHandler(partitions, scheduler=loop),
            groups,
            loop,
            uuid.uuid4,
            ClientQuotaManager(lambda: partitions.metadata.quotas),
            LeaderChanges(partitions.metadata, scheduler=loop),
            ProducerIdManager(no_producer_ids),
            topic_admin,
            limits=limits,
            processing_clock_s=time.perf_counter,
            authenticator=None if ask is None else authenticator_by(ask),
            authorizer=authorizer or Authorizer(),
            authenticated=frozenset({""} if authorizer else ()),
            optional=frozenset({""} if rules.may_authenticate else ()),
        )
        self._rules = rules
        self.listener = SocketServer(self.context)
        self.port = 0
        self._version = 0

    async def start(self) -> None:
        self.port = await self.listener.start("127.0.0.1", 0, rules=self._rules)

    def push(
        self,
        *,
        quotas: tuple[ClientQuota, ...] | None = None,
        addresses: tuple[ListenerAddress, ...] | None = None,
        has_groups: bool = False,
        config: dict[str, str] | None = None,
        partition_count: int = 1,  # of which the first one is told
        broker_epoch: int = 11,
        next_leader: BrokerState | None = None,  # leads instead, in epoch 2
        others: tuple[str, ...] = (),  # more topics of one partition
        retained: tuple[str, ...] = (),  # and of those whose Topic is gone and whose data is kept
    ) -> None:
        self._version += 1
        endpoints = Endpoints("127.0.0.1", self.port, 1, "http://b")
        broker = BrokerState(ONLY, BrokerEpoch(broker_epoch), False, False, endpoints)
        brokers = (broker,) if next_leader is None else (broker, next_leader)
        leader = brokers[-1]
        leader_epoch = BrokerEpoch(11) if next_leader is None else leader.broker_epoch
        state = PartitionState(
            0,
            tuple(each.broker_id for each in brokers),
            leader.broker_id,
            leader_epoch,
            LeaderEpoch(len(brokers)),
            (Member(leader.broker_id, leader_epoch),),
            (),
            PartitionEpoch(len(brokers)),
            1,
        )
        topic = TopicState(TOPIC, TOPIC_ID, partition_count, 1, config=config or {})
        topics = [TopicPush(topic, (state,))]
        for name in (*others, *retained):
            topic_id = TopicId(str(uuid.uuid5(uuid.NAMESPACE_DNS, name)))
            other = TopicState(name, topic_id, 1, 1)
            topics.append(TopicPush(other, (state,), is_retained=name in retained))
        if has_groups:
            topics.append(TopicPush(TopicState(OFFSETS_TOPIC, OFFSETS_TOPIC_ID, 1, 1), (state,)))
        self.partitions.apply_push(
            MetadataPush(
                ControllerEpoch(1),
                self._version,
                True,
                brokers,
                tuple(topics),
                quotas=quotas,
                addresses=addresses,
            )
        )

    def authenticate(self, principal: Principal) -> None:
        """Give the connections that are open now a principal, as SASL would."""
        for connection in self.listener.connections:
            connection._session.principal = principal

    async def stop(self) -> None:
        await self.listener.stop()
        await self.context.authorizer.close()
        self.directory.close()


def with_kafka_client(
    path: Path,
    scenario: Callable[[KafkaTestClient], Awaitable[None]],
    limits: ListenerLimits | None = None,
    *,
    has_metadata: bool = True,
    rules: ListenerRules = OPEN,
    ask: AskController | None = None,
    authorizer: Callable[[], Authorizer] | None = None,
) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            kafka_client = KafkaTestClient(
                path,
                limits or ListenerLimits(),
                rules,
                ask,
                authorizer() if authorizer else None,
            )
            await kafka_client.start()
            if has_metadata:
                kafka_client.push()
            try:
                await scenario(kafka_client)
            finally:
                await kafka_client.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


class Client:
    """One connection; answers are read in the order of the requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation_id = 0

    @classmethod
    async def connect(cls, kafka_client: KafkaTestClient) -> "Client":
        return cls(*await asyncio.open_connection("127.0.0.1", kafka_client.port, limit=2**26))

    def send(self, frame: bytes) -> None:
        self.writer.write(frame)

    async def answer(self) -> bytes:
        """From after the correlation id."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return (await self.reader.readexactly(size))[4:]

    async def ask(self, frame: bytes) -> bytes:
        self.send(frame)
        return await self.answer()

    async def is_closed(self) -> bool:
        """Once the broker has ended the connection, whatever came before."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            return True
        return True

    def close(self) -> None:
        self.writer.close()


def framed(body: bytes) -> bytes:
    return INT32.pack(len(body)) + body


def request(api_key: int, version: int, body: bytes = b"", client_id: str = "test") -> bytes:
    head = INT16.pack(api_key) + INT16.pack(version) + INT32.pack(7)
    return framed(head + nullable_string(client_id) + body)


def produce(batch: bytes, *, acks: int = 1, client_id: str = "test", times: int = 1) -> bytes:
    """v3: one batch for partition 0; `times`: so often."""
    body = INT16.pack(-1) + INT16.pack(acks) + INT32.pack(5000) + INT32.pack(1)
    body += nullable_string(TOPIC) + INT32.pack(times)
    body += (INT32.pack(0) + INT32.pack(len(batch)) + batch) * times
    return request(PRODUCE, 3, body, client_id)


def fetch(
    *,
    offset: int = 0,
    max_bytes: int = 50 * 2**20,
    partition_max_bytes: int | None = None,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    client_id: str = "test",
    times: int = 1,
) -> bytes:
    """v4; `times`: asks for the partition so often. `partition_max_bytes` None: as many."""
    most = max_bytes if partition_max_bytes is None else partition_max_bytes
    body = INT32.pack(-1) + INT32.pack(max_wait_ms) + INT32.pack(min_bytes) + INT32.pack(max_bytes)
    body += b"\x00" + INT32.pack(1) + nullable_string(TOPIC) + INT32.pack(times)
    body += (INT32.pack(0) + INT64.pack(offset) + INT32.pack(most)) * times
    return request(FETCH, 4, body, client_id)


API_VERSIONS_REQUEST = request(API_VERSIONS, 0)


async def responded_beside(kafka_client: KafkaTestClient, frame: bytes) -> tuple[int, bytes]:
    """How often another client was answered while the broker was at `frame`; and its answer."""
    busy, other = await Client.connect(kafka_client), await Client.connect(kafka_client)
    busy.send(frame)
    waits = asyncio.ensure_future(busy.answer())
    times = 0
    while not waits.done():
        await other.ask(API_VERSIONS_REQUEST)
        times += 1
    return times, await waits
