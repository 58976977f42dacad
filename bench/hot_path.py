"""CPU microseconds of one produce with acks=all, by side and without sockets or other processes.

    python -m bench.hot_path [--batch 16384] [--depth 5] [--requests 3000]

One leader and two followers with their real listeners, logs and replication connections in one
process; bytes go from one to the other in memory. What is left out is what the kernel does for
sockets (about 10 us a message). `--depth` requests are under way at a time, as clients have.
"""

import argparse
import asyncio
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from tidemark_broker.coordinator.core.group_config import GroupSettings
from tidemark_broker.coordinator.group_coordinator_service import GroupCoordinatorService
from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.network.connection import KafkaConnection
from tidemark_broker.kafka.network.socket_server import SocketServer
from tidemark_broker.kafka_wire.messages.frames import PRODUCE, request_header
from tidemark_broker.kafka_wire.messages.primitives import INT32, compact_string, unsigned_varint
from tidemark_broker.kafka_wire.records.record_batch import NewRecord, build_batch
from tidemark_broker.log.disk import OsDisk
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.log.partition_log import LogSettings
from tidemark_broker.metadata.controller_channel import ControllerChannel, HttpTransport
from tidemark_broker.metadata.leader_changes import LeaderChanges
from tidemark_broker.metadata.producer_id_manager import ProducerIdManager
from tidemark_broker.metadata.topic_admin_client import TopicAdminClient
from tidemark_broker.quota_manager import ClientQuotaManager
from tidemark_broker.replication.follower_fetch import FollowerFetchHandler
from tidemark_broker.replication.leader_endpoint import LeaderEndpoint
from tidemark_broker.replication.partition_observer import PartitionObserver, nothing
from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_broker.security.authorizer import Authorizer
from tidemark_protocol.access_messages import Access, Principal, ReviewAccessResponse
from tidemark_protocol.controller_messages import BrokerState, Endpoints, MetadataPush, TopicPush
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

TOPIC = "bench"
AUTHENTICATED = "clients"  # a listener
TOPIC_ID = TopicId("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
PARTITIONS = 8  # the first is written to, the others are idle
LEADER, FOLLOWERS = 1, (2, 3)
WARM_SECONDS = 0.05  # the first fetches are answered and wait for records


class Meter:
    """CPU time by side: what runs in a callback of a side is the side's."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def run(self, side: str, work: Callable[..., object], *arguments: object) -> None:
        started = time.thread_time()
        work(*arguments)
        spent = time.thread_time() - started
        self.seconds[side] = self.seconds.get(side, 0.0) + spent


class MemoryTransport:
    """What is written here another protocol receives in the next loop tick, in one piece."""

    def __init__(self, meter: Meter, side: str) -> None:
        self._meter = meter
        self._side = side  # of the receiver
        self._receiver: Any = None
        self._parts: list[bytes | bytearray | memoryview] = []

    def connect(self, receiver: Any) -> None:
        self._receiver = receiver

    def write(self, data: bytes) -> None:
        self.writelines([data])

    def writelines(self, parts: list[bytes | bytearray | memoryview]) -> None:
        if not self._parts:
            asyncio.get_running_loop().call_soon(self._deliver)
        self._parts += parts

    def _deliver(self) -> None:
        data = b"".join(self._parts)
        self._parts = []
        self._meter.run(self._side, self._receiver.data_received, data)

    def is_closing(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return True

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return ("127.0.0.1", 1) if name == "peername" else None

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class MeteredScheduler:
    """The loop's, charged to one side."""

    def __init__(self, meter: Meter, side: str) -> None:
        self._meter = meter
        self._side = side
        self._loop = asyncio.get_running_loop()

    def call_soon(self, callback: Callable[[], object]) -> Any:
        return self._loop.call_soon(self._meter.run, self._side, callback)

    def call_later(self, delay: float, callback: Callable[[], object]) -> Any:
        return self._loop.call_later(delay, self._meter.run, self._side, callback)


class Producer:
    """Keeps so many requests under way; done when all are answered."""

    def __init__(self, frames: list[bytes], depth: int, transport: MemoryTransport) -> None:
        self._frames = frames
        self._depth = depth
        self._transport = transport
        self._sent = 0
        self._responded = 0
        self.done = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        while self._sent < min(len(self._frames), self._responded + self._depth):
            self._sent += 1
            self._transport.write(self._frames[self._sent - 1])

    def data_received(self, data: bytes) -> None:
        position = 0
        while position < len(data):
            position += 4 + int.from_bytes(data[position : position + 4], "big")
            self._responded += 1
        if self._responded == len(self._frames):
            self.done.set_result(None)
        self.start()


def broker(number: int, scheduler: Any) -> ReplicaManager:
    return ReplicaManager(BrokerId(number), scheduler=scheduler, wall_clock_s=time.time)


def open_broker(path: Path, partitions: ReplicaManager, *observers: PartitionObserver) -> None:
    number = partitions.broker_id
    directory = LogManager.open(
        path / str(number), OsDisk(), broker_id=number, settings=LogSettings()
    )
    partitions.open(directory, submit=nothing, observers=observers)
    partitions.set_broker_epoch(BrokerEpoch(number))
    partitions.apply_push(metadata())


def metadata() -> MetadataPush:
    numbers = (LEADER, *FOLLOWERS)
    states = tuple(
        PartitionState(
            partition,
            tuple(BrokerId(number) for number in numbers),
            BrokerId(LEADER),
            BrokerEpoch(LEADER),
            LeaderEpoch(1),
            tuple(Member(BrokerId(number), BrokerEpoch(number)) for number in numbers),
            (),
            PartitionEpoch(1),
            2,
        )
        for partition in range(PARTITIONS)
    )
    brokers = tuple(
        BrokerState(
            BrokerId(number),
            BrokerEpoch(number),
            False,
            False,
            Endpoints("127.0.0.1", 1, 1, "http://b"),
        )
        for number in numbers
    )
    topic = TopicState(TOPIC, TOPIC_ID, PARTITIONS, len(numbers))
    return MetadataPush(ControllerEpoch(1), 1, True, brokers, (TopicPush(topic, states),))


def produce_frame(number: int, batch_bytes: int) -> bytes:
    records = [NewRecord(None, bytes(1000))] * max(1, batch_bytes // 1010)
    batch = build_batch(
        records,
        timestamp_ms=1,
        producer_id=7,
        producer_epoch=0,
        base_sequence=number * len(records),
    )
    body = request_header(PRODUCE, 11, number, "producer-1")
    body += compact_string(None) + (-1).to_bytes(2, "big", signed=True) + INT32.pack(30_000)
    body += unsigned_varint(2) + compact_string(TOPIC) + unsigned_varint(2) + INT32.pack(0)
    body += unsigned_varint(len(batch) + 1) + batch + b"\x00\x00\x00"
    return INT32.pack(len(body)) + body


async def allow_all(principal: Principal, accesses: tuple[Access, ...]) -> ReviewAccessResponse:
    return ReviewAccessResponse(ErrorCode.NONE, allowed=(True,) * len(accesses))


async def measure(
    path: Path, batch_bytes: int, depth: int, requests: int, *, listener_name: str
) -> dict[str, float]:
    meter = Meter()
    leader = broker(LEADER, MeteredScheduler(meter, "leader"))
    fetches = FollowerFetchHandler(leader, scheduler=MeteredScheduler(meter, "leader"))
    loop = asyncio.get_running_loop()
    channel = ControllerChannel((), HttpTransport, pool="bench", broker_id=BrokerId(LEADER))
    topic_admin = TopicAdminClient(
        leader.metadata, ask=channel.request_topics, requesting=channel.requesting_broker
    )
    groups = GroupCoordinatorService(
        leader, topic_admin, GroupSettings(), scheduler=loop, wall_clock_s=time.time
    )
    listener = SocketServer(
        HandlerContext(
            leader,
            fetches,
            groups,
            loop,
            uuid.uuid4,
            ClientQuotaManager(tuple),
            LeaderChanges(leader.metadata, scheduler=loop),
            ProducerIdManager(channel.request_producer_ids),
            topic_admin,
            cluster_id=lambda: "bench",
            authorizer=Authorizer(allow_all),
            authenticated=frozenset({AUTHENTICATED}),
        )
    )
    open_broker(path, leader, fetches)
    for number in FOLLOWERS:
        follower = broker(number, MeteredScheduler(meter, f"follower {number}"))
        open_broker(path, follower)
        served = KafkaConnection(listener)
        following = LeaderEndpoint(BrokerId(LEADER), follower)
        to_leader, to_follower = (
            MemoryTransport(meter, "leader"),
            MemoryTransport(meter, f"follower {number}"),
        )
        to_leader.connect(served)
        to_follower.connect(following)
        served.connection_made(cast(asyncio.BaseTransport, to_follower))
        following.connection_made(cast(asyncio.BaseTransport, to_leader))
        following.follow(list(follower.replicas))
    await asyncio.sleep(WARM_SECONDS)
    served = KafkaConnection(listener, listener_name)
    to_leader, to_producer = MemoryTransport(meter, "leader"), MemoryTransport(meter, "producer")
    producer = Producer(
        [produce_frame(number, batch_bytes) for number in range(requests)], depth, to_leader
    )
    to_leader.connect(served)
    to_producer.connect(producer)
    served.connection_made(cast(asyncio.BaseTransport, to_producer))
    meter.seconds.clear()
    producer.start()
    await producer.done
    return {side: seconds / requests * 1e6 for side, seconds in meter.seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.hot_path", description=__doc__)
    parser.add_argument("--batch", type=int, action="append", help="bytes, repeatable")
    parser.add_argument("--depth", type=int, action="append", help="repeatable")
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3, help="the best one is shown")
    parser.add_argument(
        "--authenticated", action="store_true", help="the producer's accesses are checked"
    )
    options = parser.parse_args()
    listener_name = AUTHENTICATED if options.authenticated else ""
    print(f"{'batch':>8} {'depth':>6} {'leader us':>10} {'follower us':>12}")
    for batch_bytes in options.batch or [1024, 16384, 131072]:
        for depth in options.depth or [1, 15]:
            best: dict[str, float] = {}
            for _ in range(options.rounds):
                path = Path(tempfile.mkdtemp())
                requests = min(options.requests, 200_000_000 // batch_bytes)
                try:
                    measuring = measure(
                        path, batch_bytes, depth, requests, listener_name=listener_name
                    )
                    found = asyncio.run(measuring)
                finally:
                    shutil.rmtree(path)
                if not best or found["leader"] < best["leader"]:
                    best = found
            print(
                f"{batch_bytes:>8} {depth:>6} {best['leader']:>10.1f} {best['follower 2']:>12.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
