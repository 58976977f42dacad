"""Brokers in one process: real logs, real cores, real frames; a controller made of calls.

Nothing runs by itself: `pool.replicate()` lets every follower fetch once, `pool.time.run(ms)` lets
time pass. The controller elects whom the test says and judges proposals when asked to.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from tidemark_broker.kafka_wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    TopicResponse,
    decode_fetch_request,
    decode_fetch_response,
    encode_fetch_request,
    encode_fetch_response,
)
from tidemark_broker.kafka_wire.messages.frames import read_request_header
from tidemark_broker.kafka_wire.messages.primitives import Reader
from tidemark_broker.kafka_wire.records.errors import StorageError
from tidemark_broker.kafka_wire.records.record_batch import NewRecord, build_batch
from tidemark_broker.log.disk import Disk, OsDisk
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.log.partition_log import LogSettings
from tidemark_broker.replication.core.effects import DivergingEpoch, LeaderResponse
from tidemark_broker.replication.core.follower import FollowerFetch
from tidemark_broker.replication.follower_fetch import FollowerFetchHandler, FollowerSession
from tidemark_broker.replication.partition import Partition
from tidemark_broker.replication.partition_observer import PartitionObserver
from tidemark_broker.replication.replica_manager import FetchResult, ProduceResult, ReplicaManager
from tidemark_broker.replication.results import LEADER_ONLY, Consumer
from tidemark_protocol.controller_messages import (
    BrokerState,
    Endpoints,
    IsrProposal,
    IsrResult,
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

from tests.support.simulated_time import SimulatedTime

TOPIC = "orders"
TOPIC_ID = TopicId("00000000-0000-0000-0000-000000000001")
KEY = (TOPIC_ID, 0)
WALL_CLOCK_S = 1_750_000_000.0


def a_batch(*values: str) -> bytes:
    records = [NewRecord(None, value.encode(), ()) for value in values]
    return build_batch(records, timestamp_ms=1_700_000_000_000)


def a_produced_batch(
    sequence: int, *values: str, producer_id: int = 7, producer_epoch: int = 0
) -> bytes:
    """Of an idempotent producer."""
    return build_batch(
        [NewRecord(None, value.encode(), ()) for value in values],
        timestamp_ms=1_700_000_000_000,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
    )


class AddedObservers(PartitionObserver):
    """Hand events to the observers that a test adds later."""

    def __init__(self) -> None:
        self._added: list[PartitionObserver] = []

    def add(self, observer: PartitionObserver) -> None:
        self._added.append(observer)

    def on_role_change(self, replica: Partition) -> None:
        for observer in self._added:
            observer.on_role_change(replica)

    def on_flush_needed(self, replica: Partition) -> None:
        for observer in self._added:
            observer.on_flush_needed(replica)

    def on_truncate(self, replica: Partition) -> None:
        for observer in self._added:
            observer.on_truncate(replica)

    def on_roles_applied(self) -> None:
        for observer in self._added:
            observer.on_roles_applied()


class InProcessBroker(PartitionObserver):
    """One life of one broker."""

    def __init__(
        self,
        broker_id: int,
        broker_epoch: int,
        path: Path,
        time: SimulatedTime,
        disk: Disk | None = None,
    ) -> None:
        self.broker_id = BrokerId(broker_id)
        self.broker_epoch = BrokerEpoch(broker_epoch)
        self.directory = LogManager.open(
            path, disk or OsDisk(), broker_id=self.broker_id, settings=LogSettings()
        )
        self.partitions = ReplicaManager(
            self.broker_id, scheduler=time, clock=time.clock, wall_clock_s=lambda: WALL_CLOCK_S
        )
        self.fetches = FollowerFetchHandler(self.partitions, scheduler=time, clock=time.clock)
        self.proposals: list[IsrProposal] = []
        self.storage_errors: list[Exception] = []
        self.flush_requested: list[Partition] = []
        self.observers = AddedObservers()
        self.partitions.open(
            self.directory,
            submit=self.proposals.append,
            observers=(self.fetches, self, self.observers),
        )
        self.partitions.set_broker_epoch(self.broker_epoch)
        self.links: dict[BrokerId, FollowerSession] = {}

    def on_storage_failure(self, error: Exception) -> None:
        self.storage_errors.append(error)

    def on_flush_needed(self, replica: Partition) -> None:
        self.flush_requested.append(replica)

    def replica(self, key: tuple[TopicId, int] = KEY) -> Partition:
        replica = self.partitions.hosted(*key)
        assert replica is not None
        return replica

    def produce(self, *values: str, acks: int = -1, timeout_ms: int = 1000) -> list[ProduceResult]:
        """The list gets its one result when there is one."""
        return self.produce_bytes(a_batch(*values), acks=acks, timeout_ms=timeout_ms)

    def produce_bytes(
        self, data: bytes, *, acks: int = -1, timeout_ms: int = 1000, topic: str = TOPIC
    ) -> list[ProduceResult]:
        results: list[ProduceResult] = []
        self.partitions.produce(
            topic, 0, memoryview(data), acks=acks, timeout_ms=timeout_ms, done=results.append
        )
        return results

    def read(
        self,
        offset: int,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        consumer: Consumer = LEADER_ONLY,
    ) -> list[FetchResult]:
        results: list[FetchResult] = []
        self.partitions.fetch(
            TOPIC,
            0,
            offset,
            max_bytes=1_000_000,
            min_bytes=min_bytes,
            max_wait_ms=max_wait_ms,
            done=results.append,
            consumer=consumer,
        )
        return results

    def log_bytes(self) -> bytes:
        log = self.replica().log
        if log.log_end_offset == log.log_start_offset:
            return b""
        return log.read(log.log_start_offset, max_bytes=10_000_000, end_offset=log.log_end_offset)

    def close(self) -> None:
        self.directory.close()


@dataclass
class SentFetch:
    """A follower's fetch under way: `answer` once the leader gave one."""

    follower: InProcessBroker
    requested: dict[tuple[TopicId, int], tuple[Partition, FollowerFetch]]
    answer: FetchResponse | None = None
    refused: list[StorageError] = field(default_factory=list)

    def apply(self, now_ms: int) -> None:
        assert self.answer is not None
        silent = dict(self.requested)
        for topic in self.answer.topics:
            for found in topic.partitions:
                replica, fetch = silent.pop((topic.topic_id, found.partition))
                diverging = found.diverging_epoch
                response = LeaderResponse(
                    found.error,
                    Offset(found.high_watermark),
                    Offset(found.log_start_offset),
                    len(found.records) > 0,
                    None
                    if diverging is None
                    else DivergingEpoch(LeaderEpoch(diverging[0]), Offset(diverging[1])),
                )
                try:
                    replica.on_leader_response(fetch, response, memoryview(found.records), now_ms)
                except StorageError as error:
                    self.refused.append(error)
        for replica, fetch in silent.values():
            replica.on_nothing_new(fetch, now_ms)


class InProcessPool:
    def __init__(
        self,
        path: Path,
        *,
        brokers: Iterable[int] = (1, 2, 3),
        min_insync: int = 2,
        topic: TopicState | None = None,
    ) -> None:
        self.path = path
        self.time = SimulatedTime()
        self.brokers: dict[int, InProcessBroker] = {}
        self.fenced: set[int] = set()
        self.racks: dict[int, str] = {}
        self.topic = topic or TopicState(TOPIC, TOPIC_ID, 1, len(tuple(brokers)))
        self.is_retained = False  # its Topic is deleted, and its data is kept
        self.controller_epoch = ControllerEpoch(1)
        self.image_version = 0
        self._next_epoch = 10
        for number in brokers:
            self.start(number)
        in_sync = tuple(self.member(number) for number in self.brokers)
        self.state = PartitionState(
            partition=0,
            replicas=tuple(BrokerId(number) for number in self.brokers),
            leader=NO_BROKER,
            leader_broker_epoch=BrokerEpoch(-1),
            leader_epoch=LeaderEpoch(0),
            in_sync_replicas=in_sync,
            eligible_leaders=(),
            partition_epoch=PartitionEpoch(0),
            min_insync_replicas=min_insync,
        )

    # ---- brokers

    def start(self, number: int, disk: Disk | None = None) -> InProcessBroker:
        self._next_epoch += 1
        broker = InProcessBroker(
            number, self._next_epoch, self.path / f"broker-{number}", self.time, disk
        )
        self.brokers[number] = broker
        return broker

    def kill(self, number: int) -> None:
        """The process is gone; what it wrote is in its directory."""
        broker = self.brokers.pop(number)
        broker.partitions.stop("killed")
        broker.close()

    def member(self, number: int) -> Member:
        return Member(BrokerId(number), self.brokers[number].broker_epoch)

    # ---- the controller

    def lead(self, number: int, in_sync: Iterable[int] | None = None) -> None:
        """Elect, and tell everybody."""
        members = self.state.in_sync_replicas
        if in_sync is not None:
            members = tuple(self.member(entry) for entry in in_sync)
        self.state = replace(
            self.state,
            leader=BrokerId(number),
            leader_broker_epoch=self.brokers[number].broker_epoch,
            leader_epoch=LeaderEpoch(self.state.leader_epoch + 1),
            partition_epoch=PartitionEpoch(self.state.partition_epoch + 1),
            in_sync_replicas=members,
        )
        self.push()

    def lead_nobody(self) -> None:
        """No member is left; tell everybody."""
        self.state = replace(
            self.state,
            leader=NO_BROKER,
            leader_broker_epoch=BrokerEpoch(-1),
            leader_epoch=LeaderEpoch(self.state.leader_epoch + 1),
            partition_epoch=PartitionEpoch(self.state.partition_epoch + 1),
            in_sync_replicas=(),
        )
        self.push()

    def acknowledge_failures(self, number: int) -> None:
        """As the controller answers that broker's heartbeat, all it decided then pushed before."""
        partitions = self.brokers[number].partitions
        partitions.record_failures_acknowledged(tuple(partitions.failed_replicas))

    def push(self, *numbers: int) -> None:
        self.image_version += 1
        for number, broker in self.brokers.items():
            if not numbers or number in numbers:
                broker.partitions.apply_push(self.image())

    def image(self) -> MetadataPush:
        return MetadataPush(
            self.controller_epoch,
            self.image_version,
            is_full=True,
            brokers=tuple(self.broker_state(number) for number in self.brokers),
            topics=(TopicPush(self.topic, (self.state,), is_retained=self.is_retained),),
        )

    def broker_state(self, number: int) -> BrokerState:
        return BrokerState(
            BrokerId(number),
            self.brokers[number].broker_epoch,
            is_fenced=number in self.fenced,
            is_stopping=False,
            endpoints=Endpoints("127.0.0.1", 9092 + number, 8080 + number, f"http://b{number}"),
            rack=self.racks.get(number, ""),
        )

    def checker(self, number: int, *, reject: ErrorCode | None = None) -> IsrProposal:
        """Answer the oldest proposal of a leader; a refusal raises the partition epoch (S3)."""
        broker = self.brokers[number]
        proposal = broker.proposals.pop(0)
        error = ErrorCode.NONE if reject is None else reject
        if reject is None and proposal.partition_epoch != self.state.partition_epoch:
            error = ErrorCode.INVALID_UPDATE_VERSION
        elif reject is None:
            self.state = replace(self.state, in_sync_replicas=proposal.new_in_sync_replicas)
        if error is not ErrorCode.INVALID_UPDATE_VERSION:
            self.state = replace(
                self.state, partition_epoch=PartitionEpoch(self.state.partition_epoch + 1)
            )
        response = IsrResult(proposal.topic_id, proposal.partition, error, self.state)
        broker.partitions.on_in_sync_responses([(proposal, response)])
        return proposal

    # ---- replication

    def send_fetch(self, number: int) -> SentFetch | None:
        """A follower asks its leader, through real frames; None: it has nothing to ask."""
        follower = self.brokers[number]
        requested: dict[tuple[TopicId, int], tuple[Partition, FollowerFetch]] = {}
        leader_id: BrokerId | None = None
        for replica in follower.partitions.replicas:
            fetch = replica.next_fetch(self.time.now_ms)
            if fetch is not None and replica.follower is not None:
                requested[replica.topic_id, replica.partition] = (replica, fetch)
                leader_id = replica.follower.leader
        if not requested or leader_id is None or leader_id not in self.brokers:
            return None
        topics = tuple(
            FetchTopic(
                key[0],
                (
                    FetchPartition(
                        key[1],
                        fetch.leader_epoch,
                        fetch.fetch_offset,
                        fetch.last_fetched_epoch,
                        replica.log.log_start_offset,
                        1_000_000,
                    ),
                ),
            )
            for key, (replica, fetch) in requested.items()
        )
        request = FetchRequest(
            500, 1, 10_000_000, topics, follower.broker_id, follower.broker_epoch
        )
        sent = SentFetch(follower, requested)
        frame = encode_fetch_request(request, correlation_id=1, client_id="test")
        reader = Reader(memoryview(frame)[4:])
        version = read_request_header(reader).api_version

        def respond(found: tuple[TopicResponse, ...]) -> None:
            assert sent.answer is None, "answered twice"
            data = b"".join(encode_fetch_response(FetchResponse(1, ErrorCode.NONE, found)))
            sent.answer = decode_fetch_response(data[4:])

        leader = self.brokers[leader_id]
        link = leader.links.setdefault(follower.broker_id, FollowerSession())
        leader.fetches.handle(decode_fetch_request(reader, version), link, respond)
        return sent

    def replicate(self, *numbers: int, rounds: int = 1) -> None:
        """Every follower (or those named) fetches and applies the answer, so many times."""
        for _ in range(rounds):
            for number in numbers or tuple(self.brokers):
                sent = self.send_fetch(number)
                if sent is None:
                    continue
                if sent.answer is None:
                    self.time.run(500)
                sent.apply(self.time.now_ms)
            self.time.run(0)
