"""A broker of a few partitions without replication, and a client that speaks ASGI to its app.

`FakePartitions` keeps real record batches in lists and answers as the seam says; a test holds back
an acknowledgement by `hold_acks` and completes it by hand.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from tidemark_broker.coordinator.core.requests import GroupsReport
from tidemark_broker.http.app import create_app
from tidemark_broker.http.authentication import ClientOf
from tidemark_broker.http.broker_view import BrokerView
from tidemark_broker.http.consumers.group_consumer import ConsumerSettings, GroupConsumer
from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.http.request import LISTENER, PRINCIPAL
from tidemark_broker.http.route_access import HttpAccess
from tidemark_broker.kafka_wire.records.record_batch import Record, read_records, split_batches
from tidemark_broker.log.disk import DiskSpace
from tidemark_broker.metadata.metadata_cache import MetadataCache
from tidemark_broker.metadata.producer_id_manager import AskForBlock, ProducerIdManager
from tidemark_broker.metrics.broker_metrics import MetricsProfile
from tidemark_broker.quota_manager import ClientQuotaManager
from tidemark_broker.replication.partition_snapshot import PartitionSnapshot
from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_broker.replication.results import (
    LEADER_ONLY,
    Consumer,
    FetchResult,
    OffsetsResult,
    ProduceResult,
    ReplicaView,
)
from tidemark_broker.security.authenticator import Authenticator
from tidemark_broker.security.authorizer import Authorizer
from tidemark_broker.security.client_connections import ClientConnections
from tidemark_protocol.access_messages import ANONYMOUS, Principal
from tidemark_protocol.controller_messages import (
    BrokerState,
    ClientQuota,
    Endpoints,
    ListenerAddress,
    MetadataPush,
    TopicPush,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import (
    NO_BROKER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import Member, PartitionState, TopicState

from tests.support.fake_controller import no_producer_ids

NOW_MS = 1_700_000_000_000
ORDERS = "orders"
ORDERS_ID = TopicId("0b8f8b2e-0000-4000-8000-000000000001")


def broker_state(broker_id: int, http_port: int = 8080) -> BrokerState:
    return BrokerState(
        broker_id=BrokerId(broker_id),
        broker_epoch=BrokerEpoch(10 + broker_id),
        is_fenced=False,
        is_stopping=False,
        endpoints=Endpoints(
            "127.0.0.1", 9092, http_port, f"http://broker-{broker_id}.example:8080"
        ),
    )


def partition_state(partition: int, leader: int) -> PartitionState:
    members = tuple(Member(BrokerId(i), BrokerEpoch(10 + i)) for i in range(3))
    return PartitionState(
        partition=partition,
        replicas=(BrokerId(0), BrokerId(1), BrokerId(2)),
        leader=BrokerId(leader) if leader >= 0 else NO_BROKER,
        leader_broker_epoch=BrokerEpoch(10 + leader),
        leader_epoch=LeaderEpoch(4),
        in_sync_replicas=members,
        eligible_leaders=(),
        partition_epoch=PartitionEpoch(7),
        min_insync_replicas=2,
    )


def metadata_of(
    leaders: tuple[int, ...],
    brokers: tuple[BrokerState, ...],
    config: dict[str, str] | None = None,
    partition_count: int | None = None,
    addresses: tuple[ListenerAddress, ...] = (),
) -> MetadataCache:
    count = len(leaders) if partition_count is None else partition_count
    topic = TopicState(ORDERS, ORDERS_ID, count, 3, config=config or {})
    states = tuple(partition_state(index, leader) for index, leader in enumerate(leaders))
    cache = MetadataCache()
    pushed = TopicPush(topic, states)
    cache.apply_push(
        MetadataPush(ControllerEpoch(1), 1, True, brokers, (pushed,), addresses=addresses)
    )
    return cache


@dataclass
class Produced:
    topic: str
    partition: int
    acks: int
    timeout_ms: int
    done: Callable[[ProduceResult], None]


class FakePartitions:
    def __init__(self, metadata: MetadataCache) -> None:
        self.metadata = metadata
        self.follower_ends: tuple[tuple[BrokerId, Offset], ...] = ()
        self.logs: dict[int, list[Record]] = {}
        self.batches: dict[int, list[tuple[int, bytes]]] = {}
        self.produced: list[Produced] = []
        self.reject_with: ProduceResult | None = None
        self.hold_acks = False
        self.delayed: list[Callable[[FetchResult], None]] = []
        self.cancelled = 0
        self.truncations: tuple[PartitionSnapshot, ...] = ()
        self.broker_epoch = BrokerEpoch(12)
        self.disk_space = DiskSpace(free_bytes=300, total_bytes=1000)

    def produce(
        self,
        topic: str,
        partition: int,
        batches: memoryview,
        *,
        acks: int,
        timeout_ms: int,
        done: Callable[[ProduceResult], None],
    ) -> None:
        self.produced.append(Produced(topic, partition, acks, timeout_ms, done))
        if self.reject_with is not None:
            done(self.reject_with)
            return
        base_offset = self.append(partition, bytes(batches))
        if not self.hold_acks:
            done(ProduceResult(ErrorCode.NONE, Offset(base_offset), Offset(0)))

    def append(self, partition: int, data: bytes) -> int:
        log = self.logs.setdefault(partition, [])
        base_offset = len(log)
        for batch in split_batches(memoryview(data), max_batch_bytes=1_048_588):
            start = len(log)
            stored = start.to_bytes(8, "big") + bytes(batch.data[8:])
            self.batches.setdefault(partition, []).append((start, stored))
            log.extend(read_records(memoryview(stored)))
        return base_offset

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        done: Callable[[FetchResult], None],
        consumer: Consumer = LEADER_ONLY,
    ) -> Callable[[], None]:
        end = Offset(len(self.logs.get(partition, [])))
        if offset > end:
            done(FetchResult(ErrorCode.OFFSET_OUT_OF_RANGE, b"", end, Offset(0), end))
        elif offset < end or max_wait_ms == 0:
            data = self.read(partition, offset, max_bytes)
            done(FetchResult(ErrorCode.NONE, data, end, Offset(0), end))
        else:
            self.delayed.append(done)
        return self._cancel

    def _cancel(self) -> None:
        self.cancelled += 1

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one with the offset on, one at least."""
        stored = self.batches.get(partition, [])
        if offset >= len(self.logs.get(partition, [])):
            return b""
        first = max(start for start, _ in stored if start <= offset)
        found = b""
        for start, data in stored:
            if start >= first and (not found or len(found) + len(data) <= max_bytes):
                found += data
        return found

    def offsets(self, topic: str, partition: int) -> OffsetsResult:
        end = Offset(len(self.logs.get(partition, [])))
        return OffsetsResult(ErrorCode.NONE, Offset(0), end, end, LeaderEpoch(4))

    def replica(self, topic: str, partition: int) -> ReplicaView | None:
        if partition not in self.logs:
            return None
        end = Offset(len(self.logs[partition]))
        return ReplicaView("follower", Offset(0), end, end, LeaderEpoch(4), self.follower_ends)

    async def replica_digest(self, topic: str, partition: int, to_offset: int) -> str:
        await asyncio.sleep(0)
        data = b"".join(data for start, data in self.batches[partition] if start < to_offset)
        return hashlib.sha256(data).hexdigest()

    def snapshots(self) -> Iterator[PartitionSnapshot]:
        return iter(self.truncations)


@dataclass
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """Sends one request into the app. `disconnect` is what a client that goes away sets."""

    app: Any
    disconnect: asyncio.Event = field(default_factory=asyncio.Event)
    listener: str = ""  # that it comes in by
    principal: Principal = ANONYMOUS

    async def request(
        self,
        method: str,
        target: str,
        body: bytes | list[bytes] = b"",
        headers: dict[str, str] | None = None,
        raw_path: str = "",
    ) -> Response | None:
        """None when the app sent no answer."""
        path, _, query = target.partition("?")
        chunks = body if isinstance(body, list) else [body]
        inbox = [
            {"type": "http.request", "body": chunk, "more_body": index < len(chunks) - 1}
            for index, chunk in enumerate(chunks)
        ]
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            if inbox:
                return inbox.pop(0)
            await self.disconnect.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": (raw_path or path).encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8080),
            "state": {},
        }
        if self.listener:
            scope[LISTENER] = self.listener
        if self.principal is not ANONYMOUS:
            scope[PRINCIPAL] = self.principal
        await self.app(scope, receive, send)
        if not sent:
            return None
        found = {name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]}
        assert len(sent) == 2 or sent[0]["status"] < 600
        return Response(
            sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:])
        )

    async def post(
        self, target: str, body: Any, content_type: str = "application/vnd.kafka.json.v2+json",
        **headers: str,
    ) -> Response:  # fmt: skip
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"content-type": content_type, "content-length": str(len(data))}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        response = await self.request("POST", target, data, given)
        assert response is not None
        return response

    async def get(self, target: str, **headers: str) -> Response:
        response = await self.request("GET", target, headers=dict(headers))
        assert response is not None
        return response


@dataclass
class FakeBroker:
    partitions: FakePartitions
    app: Any
    client: Client


def no_consumer(settings: ConsumerSettings) -> GroupConsumer:
    raise AssertionError(f"nobody asked for the consumer {settings.name}")


def fake_broker(
    leaders: tuple[int, ...] = (0, 0, 0),
    *,
    broker_id: int = 0,
    brokers: tuple[BrokerState, ...] | None = None,
    limits: HttpLimits | None = None,
    config: dict[str, str] | None = None,
    partition_count: int | None = None,
    is_ready: tuple[bool, str] = (True, ""),
    metrics_profile: MetricsProfile = MetricsProfile.AUDIT,
    quotas: tuple[ClientQuota, ...] = (),
    new_consumer: Callable[[ConsumerSettings], GroupConsumer] = no_consumer,
    addresses: tuple[ListenerAddress, ...] = (),
    groups: Callable[[], GroupsReport] = GroupsReport,
    allocate: AskForBlock = no_producer_ids,
    authenticator: Authenticator | None = None,
    authorizer: Authorizer | None = None,  # of its listener, whose clients have names
    is_optional: bool = False,  # whether they need none
    client_connections: ClientConnections | None = None,
    client_of: ClientOf = lambda _: None,
    ends_s: tuple[float, float] = (0.0, 0.0),  # of its certificate and of authorities of clients
) -> FakeBroker:
    """`leaders`: the leader of each partition of the topic `orders` (-1: none); states of others,
    up to `partition_count`, are hidden."""
    known = brokers if brokers is not None else tuple(broker_state(i) for i in range(3))
    partitions = FakePartitions(metadata_of(leaders, known, config, partition_count, addresses))
    view = BrokerView(
        partitions=cast(ReplicaManager, partitions),
        broker_id=BrokerId(broker_id),
        pool="shop/default",
        incarnation="5f3c",
        is_ready=lambda: is_ready,
        new_consumer=new_consumer,
        quotas=ClientQuotaManager(lambda: quotas),
        producer_ids=ProducerIdManager(allocate),
        rack="rack-0",
        metrics_profile=metrics_profile,
        fsyncs=lambda: 17,
        groups=groups,
        authenticator=authenticator,
        requires_authentication=lambda listener: listener != "open" and not is_optional,
        may_authenticate=lambda listener: listener != "open" and is_optional,
        client_connections=client_connections or ClientConnections(),
        client_of=client_of,
        certificate_end_s=lambda: ends_s[0],
        client_authorities_end_s=lambda: ends_s[1],
        access=HttpAccess(
            authorizer or Authorizer(),
            partitions.metadata,
            checked={""} if authorizer else (),
            optional={""} if is_optional else (),
        ),
    )
    app = create_app(view, limits=limits or HttpLimits(), clock_ms=lambda: NOW_MS)
    return FakeBroker(partitions, app, Client(app))
