"""Where simulated clients reach a broker: `ReplicaManager` behind length-prefixed frames.

It stands where HTTP and the Kafka listener stand, with as little of its own as can be: what is
refused before anything was written is told apart from what may have happened. Every acknowledgement
and every record shown is also told to the judge at the instant at which the broker says so, before
the network can lose it.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from tidemark_broker.replication.replica_manager import FetchResult, ProduceResult, ReplicaManager
from tidemark_broker.replication.results import LEADER_ONLY, Consumer
from tidemark_protocol.error_codes import ErrorCode

ANYWHERE = Consumer(rack="")
MAX_READ_BYTES = 64 * 1024
OVERDUE_SECONDS = 1.0  # an expiry is looked at by a tick, and a thawed process has much to do


class Metadata(msgspec.Struct, frozen=True, tag="metadata"):
    topic: str


class MetadataResponse(msgspec.Struct, frozen=True, tag="metadata-answer"):
    leaders: dict[int, int]  # partition -> broker id; absent: nobody


class Produce(msgspec.Struct, frozen=True, tag="produce"):
    topic: str
    partition: int
    acks: int
    timeout_ms: int
    batch: bytes


class ProduceResponse(msgspec.Struct, frozen=True, tag="produce-answer"):
    error: int
    base_offset: int
    is_rejected: bool  # certainly not written
    topic_id: str


class Fetch(msgspec.Struct, frozen=True, tag="fetch"):
    topic: str
    partition: int
    offset: int
    max_wait_ms: int
    is_in_rack: bool = False  # also from a follower (KIP-392)


class FetchResponse(msgspec.Struct, frozen=True, tag="fetch-answer"):
    error: int
    data: bytes
    high_watermark: int
    log_start_offset: int
    topic_id: str


class Offsets(msgspec.Struct, frozen=True, tag="offsets"):
    topic: str
    partition: int


class OffsetsResponse(msgspec.Struct, frozen=True, tag="offsets-answer"):
    error: int
    log_start_offset: int
    high_watermark: int


class InitProducer(msgspec.Struct, frozen=True, tag="init-producer"):
    producer_id: int  # -1: a new one; else its next epoch is wanted
    producer_epoch: int


class InitProducerResponse(msgspec.Struct, frozen=True, tag="init-producer-answer"):
    error: int
    producer_id: int
    producer_epoch: int


Question = Metadata | Produce | Fetch | Offsets | InitProducer
Reply = MetadataResponse | ProduceResponse | FetchResponse | OffsetsResponse | InitProducerResponse


class Requested(msgspec.Struct, frozen=True, array_like=True):
    number: int
    question: Question


class Responded(msgspec.Struct, frozen=True, array_like=True):
    number: int
    reply: Reply


_ENCODER = msgspec.msgpack.Encoder()
_REQUESTED = msgspec.msgpack.Decoder(Requested)
_RESPONDED = msgspec.msgpack.Decoder(Responded)

# It may have been written, whatever else it says (S8).
_DOUBTFUL = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class Checker(Protocol):
    """Hears what a broker says to clients, as it says it."""

    def on_requested(self, broker: Any, request: Produce) -> Callable[[], None]:
        """Before anything is done about it; what is returned is called right after."""
        ...

    def on_acknowledged(self, broker: Any, request: Produce, base_offset: int) -> None: ...
    def on_shown(self, broker: Any, request: Fetch, result: FetchResult) -> None: ...
    def on_out_of_order(self, broker: Any, request: Produce) -> None: ...
    def on_unknown_producer(self, broker: Any, request: Produce) -> None: ...
    def on_overdue(self, broker: Any, request: Produce) -> None: ...
    def on_producer_id(self, producer_id: int) -> None: ...


class Frames:
    """Length-prefixed frames out of a byte stream."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        buffer = self._buffer
        buffer += data
        found: list[bytes] = []
        start = 0
        while len(buffer) - start >= 4:
            size = int.from_bytes(buffer[start : start + 4], "big")
            if len(buffer) - start - 4 < size:
                break
            found.append(bytes(buffer[start + 4 : start + 4 + size]))
            start += 4 + size
        del buffer[:start]
        return found


def framed(message: Requested | Responded) -> bytes:
    body = _ENCODER.encode(message)
    return len(body).to_bytes(4, "big") + body


def read_response(frame: bytes) -> Responded:
    return _RESPONDED.decode(frame)


@dataclass(frozen=True, slots=True)
class ClientPort:
    """One broker's; `broker` is the production object, `checker` the simulator's."""

    broker: Any
    checker: Checker

    async def serve(
        self, stop: asyncio.Event, on_listening: Callable[[int], None], host: str, port: int
    ) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(self), host, port)
        on_listening(port)
        try:
            await stop.wait()
        finally:
            server.close()


def serve_clients(
    checker: Checker, address_of: Callable[[Any], tuple[str, int]]
) -> Callable[[Any, asyncio.Event, Callable[[int], None]], Coroutine[Any, Any, None]]:
    """`ServeHttp` of a simulated broker."""

    async def serve(broker: Any, stop: asyncio.Event, on_listening: Callable[[int], None]) -> None:
        await ClientPort(broker, checker).serve(stop, on_listening, *address_of(broker))

    return serve


class _Connection(asyncio.Protocol):
    def __init__(self, port: ClientPort) -> None:
        self._broker = port.broker
        self._checker = port.checker
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._cancels: dict[int, Callable[[], None]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        for cancel in self._cancels.values():
            cancel()
        self._cancels.clear()
        for task in tuple(self._tasks):
            task.cancel()

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            requested = _REQUESTED.decode(frame)
            match requested.question:
                case Metadata():
                    self._reply(requested.number, self._metadata(requested.question))
                case Produce():
                    self._produce(requested.number, requested.question)
                case Fetch():
                    self._fetch(requested.number, requested.question)
                case Offsets():
                    self._reply(requested.number, self._offsets(requested.question))
                case InitProducer():
                    task = asyncio.get_running_loop().create_task(
                        self._init_producer(requested.number, requested.question)
                    )
                    self._tasks[task] = None
                    task.add_done_callback(lambda done: self._tasks.pop(done))

    def _reply(self, number: int, reply: Reply) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(framed(Responded(number, reply)))

    @property
    def _partitions(self) -> ReplicaManager:
        partitions = self._broker.partitions
        assert isinstance(partitions, ReplicaManager)
        return partitions

    def _topic_id(self, question: Produce | Fetch) -> str:
        replica = self._partitions._hosted.by_name.get((question.topic, question.partition))
        return "" if replica is None else replica.topic_id

    def _metadata(self, question: Metadata) -> MetadataResponse:
        metadata = self._partitions.metadata
        topic = metadata.topics.get(question.topic)
        if topic is None:
            return MetadataResponse({})
        return MetadataResponse(
            {
                number: int(state.leader)
                for (topic_id, number), state in sorted(metadata.partitions.items())
                if topic_id == topic.topic_id and state.has_leader
            }
        )

    def _offsets(self, question: Offsets) -> OffsetsResponse:
        found = self._partitions.offsets(question.topic, question.partition)
        return OffsetsResponse(int(found.error), found.log_start_offset, found.high_watermark)

    async def _init_producer(self, number: int, question: InitProducer) -> None:
        found = await self._broker.producer_ids.init(question.producer_id, question.producer_epoch)
        if question.producer_id < 0 and found.error is ErrorCode.NONE:
            self._checker.on_producer_id(found.producer_id)
        response = InitProducerResponse(int(found.error), found.producer_id, found.producer_epoch)
        self._reply(number, response)

    def _produce(self, number: int, question: Produce) -> None:
        has_returned = False
        topic_id = self._topic_id(question)
        # By the process's own clock, which stands still for nobody: after a freeze the earlier
        # timers come first.
        overdue = asyncio.get_running_loop().call_later(
            question.timeout_ms / 1000 + OVERDUE_SECONDS,
            self._checker.on_overdue,
            self._broker,
            question,
        )

        def done(result: ProduceResult) -> None:
            overdue.cancel()
            is_rejected = (
                not has_returned
                and result.error is not ErrorCode.NONE
                and result.error not in _DOUBTFUL
            )
            if result.error is ErrorCode.NONE:
                self._checker.on_acknowledged(self._broker, question, result.base_offset)
            elif result.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                self._checker.on_out_of_order(self._broker, question)
            elif result.error is ErrorCode.UNKNOWN_PRODUCER_ID:
                self._checker.on_unknown_producer(self._broker, question)
            if question.acks != 0:
                response = ProduceResponse(
                    int(result.error), result.base_offset, is_rejected, topic_id
                )
                self._reply(number, response)

        taken = self._checker.on_requested(self._broker, question)
        self._partitions.produce(
            question.topic,
            question.partition,
            memoryview(question.batch),
            acks=question.acks,
            timeout_ms=question.timeout_ms,
            done=done,
        )
        has_returned = True
        taken()

    def _fetch(self, number: int, question: Fetch) -> None:
        topic_id = self._topic_id(question)

        def done(result: FetchResult) -> None:
            self._cancels.pop(number, None)
            self._checker.on_shown(self._broker, question, result)
            self._reply(
                number,
                FetchResponse(
                    int(result.error),
                    bytes(result.data),
                    result.high_watermark,
                    result.log_start_offset,
                    topic_id,
                ),
            )

        self._cancels[number] = lambda: None
        cancel = self._partitions.fetch(
            question.topic,
            question.partition,
            question.offset,
            max_bytes=MAX_READ_BYTES,
            min_bytes=1,
            max_wait_ms=question.max_wait_ms,
            done=done,
            consumer=ANYWHERE if question.is_in_rack else LEADER_ONLY,
        )
        if number in self._cancels:
            self._cancels[number] = cancel
