"""What the brokers of an Apache Kafka cluster say of it (Metadata v7), as a `ClusterStatus`.

Every broker is asked over a connection of its own, forty times a second, because each answers from
its own copy of the metadata log. Of a partition the answer with the highest leader epoch counts,
the leader's own first; a broker is active if every broker that answers names it.
"""

import asyncio
import contextlib
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark_cli.kafka_requests import KafkaFailed, Reader, listing, text
from tidemark_client.cluster_status import BrokerRow, ClusterStatus
from tidemark_client.metadata import NO_LEADER, PartitionView, TopicView

HOST = "127.0.0.1"
METADATA, VERSION = 3, 7
EVERY_SECONDS = 0.025
ANSWER_SECONDS = 0.5
FRESH_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Answer:
    at: float
    alive: frozenset[int]
    partitions: Mapping[int, PartitionView]


@dataclass(slots=True)
class MetadataWatch:
    topic: str
    ports: Mapping[int, int]  # of brokers
    answers: dict[int, Answer] = field(default_factory=dict)
    _watching: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        self._watching = [
            asyncio.create_task(self._watch(broker_id), name=f"metadata-{broker_id}")
            for broker_id in self.ports
        ]

    async def stop(self) -> None:
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)

    def status(self, running: frozenset[int], epochs: Mapping[int, int]) -> ClusterStatus | None:
        """None while no broker answers. `running`: brokers with a process; `epochs`: of brokers."""
        now = time.monotonic()
        fresh = {key: each for key, each in self.answers.items() if now - each.at < FRESH_SECONDS}
        if not fresh:
            return None
        alive = frozenset.intersection(*(each.alive for each in fresh.values()))
        numbers = sorted({number for each in fresh.values() for number in each.partitions})
        views = tuple(_newest(number, fresh) for number in numbers)
        rows = tuple(
            BrokerRow(
                broker_id,
                _state(broker_id, alive, running),
                epochs.get(broker_id, -1),
            )
            for broker_id in sorted(self.ports)
        )
        topics = (TopicView(self.topic, views),) if views else ()
        return ClusterStatus(rows, topics)

    async def _watch(self, broker_id: int) -> None:
        while True:
            with contextlib.suppress(
                OSError, TimeoutError, asyncio.IncompleteReadError, KafkaFailed
            ):
                await self._ask(broker_id)
            await asyncio.sleep(EVERY_SECONDS)

    async def _ask(self, broker_id: int) -> None:
        """Ask over one connection until it breaks."""
        reader, writer = await asyncio.open_connection(HOST, self.ports[broker_id])
        try:
            while True:
                began = time.monotonic()
                async with asyncio.timeout(ANSWER_SECONDS):
                    writer.write(_request(self.topic))
                    (size,) = struct.unpack(">i", await reader.readexactly(4))
                    data = await reader.readexactly(size)
                self.answers[broker_id] = parse(data[4:], self.topic, time.monotonic())
                await asyncio.sleep(max(0.0, began + EVERY_SECONDS - time.monotonic()))
        finally:
            writer.close()


def _request(topic: str) -> bytes:
    body = listing([text(topic)]) + b"\0"  # creates no topic
    frame = struct.pack(">hhi", METADATA, VERSION, 1) + text("chaos") + body
    return struct.pack(">i", len(frame)) + frame


def parse(data: bytes, topic: str, at: float) -> Answer:
    reader = Reader(data)
    reader.number("i")  # throttle time
    alive = set()
    for _ in range(reader.count()):
        alive.add(reader.number("i"))
        reader.text()  # host
        reader.number("i")  # port
        reader.text()  # rack
    reader.text()  # cluster id
    reader.number("i")  # controller
    partitions: dict[int, PartitionView] = {}
    for _ in range(reader.count()):
        reader.number("h")
        name = reader.text()
        reader.number("b")  # is internal
        for _ in range(reader.count()):
            view = _partition(reader)
            if name == topic:
                partitions[view.partition] = view
    return Answer(at, frozenset(alive), partitions)


def _partition(reader: Reader) -> PartitionView:
    reader.number("h")  # error
    number, leader, epoch = reader.number("i"), reader.number("i"), reader.number("i")
    replicas, in_sync, _offline = (
        tuple(reader.number("i") for _ in range(reader.count())) for _ in range(3)
    )
    return PartitionView(number, leader if leader >= 0 else NO_LEADER, epoch, replicas, in_sync)


def _newest(number: int, fresh: Mapping[int, Answer]) -> PartitionView:
    found = [
        (view.leader_epoch, view.leader == broker_id, view)
        for broker_id, answer in fresh.items()
        if (view := answer.partitions.get(number)) is not None
    ]
    return max(found, key=lambda entry: entry[:2])[2]


def _state(broker_id: int, alive: frozenset[int], running: frozenset[int]) -> str:
    if broker_id in alive:
        return "Active"
    return "Fenced" if broker_id in running else "Gone"
