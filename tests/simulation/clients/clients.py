"""Simulated clients: producers of each acks kind and consumers, each a process of its own.

They know what a client knows: some broker addresses, what a broker tells of leaders, and that an
answer that did not come says nothing. Each operation goes into the history as the client saw it;
values are unique over the whole run.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidemark_broker.kafka_wire.records.record_batch import (
    CorruptBatch,
    NewRecord,
    Record,
    build_batch,
    check_crc,
    read_header,
    read_records,
)
from tidemark_chaos.history_checker import Kind, Operation, Outcome
from tidemark_protocol.error_codes import ErrorCode

from tests.simulation.checks.read_positions import ReadPositions
from tests.simulation.checks.violations import Violation
from tests.simulation.clients.client_port import (
    Fetch,
    FetchResponse,
    Frames,
    Metadata,
    MetadataResponse,
    Offsets,
    OffsetsResponse,
    Produce,
    ProduceResponse,
    Question,
    Reply,
    Requested,
    Responded,
    framed,
    read_response,
)

CONNECT_TIMEOUT_SECONDS = 1.0
PAUSE_SECONDS = 0.05
POLL_MS = 200  # that a consumer waits for records
MOST_SHORT_READS = 50  # ten seconds of them


class NoResponse(Exception):
    """Nothing came back: the question may have had its effect or not."""


class NotSent(Exception):
    """Certainly never reached a broker."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the world gives to a client."""

    brokers: tuple[int, ...]
    partitions: Callable[[str], int]  # of the topic, as its user wants them now
    address_of: Callable[[int], tuple[str, int]]  # (host, client port) as the API server has it
    now_us: Callable[[], int]
    wall_ms: Callable[[], int]
    began: Callable[[Operation], None]  # a send, with the outcome INFO
    record: Callable[[Operation], None]
    next_value: Callable[[], int]
    is_over: Callable[[], bool]


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._frames = Frames()
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._number = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(NoResponse("connection lost"))
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            responded: Responded = read_response(frame)
            future = self._waiting.pop(responded.number, None)
            if future is not None and not future.done():
                future.set_result(responded.reply)

    async def ask(self, question: Question, timeout_ms: int) -> Reply:
        """Raises NoResponse, NotSent."""
        if self.transport is None or self.transport.is_closing():
            raise NotSent("connection closed")
        self._number += 1
        number = self._number
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self.transport.write(framed(Requested(number, question)))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await future
        except TimeoutError as error:
            raise NoResponse("timed out") from error
        finally:
            self._waiting.pop(number, None)

    def tell(self, question: Question) -> None:
        """Without waiting for an answer. Raises NotSent."""
        if self.transport is None or self.transport.is_closing():
            raise NotSent("connection closed")
        self._number += 1
        self.transport.write(framed(Requested(self._number, question)))


class Links:
    """Connections to brokers, opened when needed, and who is thought to lead."""

    def __init__(self, around: Surroundings, chance: random.Random) -> None:
        self._around = around
        self._chance = chance
        self._open: dict[int, Connection] = {}
        self._leaders: dict[tuple[str, int], int] = {}

    async def to(self, broker: int) -> Connection:
        """Raises NotSent."""
        known = self._open.get(broker)
        if known is not None and known.transport is not None and not known.transport.is_closing():
            return known
        host, port = self._around.address_of(broker)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                _, connection = await loop.create_connection(Connection, host, port)
        except (OSError, TimeoutError) as error:
            raise NotSent(f"broker {broker}: {error}") from error
        self._open[broker] = connection
        return connection

    async def leader(self, topic: str, partition: int) -> int:
        """As some live broker tells. Raises NotSent when nobody can say."""
        known = self._leaders.get((topic, partition))
        if known is not None:
            return known
        brokers = list(self._around.brokers)
        self._chance.shuffle(brokers)
        for broker in brokers:
            try:
                connection = await self.to(broker)
                reply = await connection.ask(Metadata(topic), timeout_ms=500)
            except (NotSent, NoResponse):
                self.drop(broker)
                continue
            assert isinstance(reply, MetadataResponse)
            for number, leader in reply.leaders.items():
                self._leaders[topic, number] = leader
            found = reply.leaders.get(partition)
            if found is not None:
                return found
        raise NotSent(f"nobody knows a leader of {topic}-{partition}")

    def forget_leader(self, topic: str, partition: int) -> None:
        self._leaders.pop((topic, partition), None)

    def connections(self) -> list[asyncio.Transport]:
        transports = (connection.transport for connection in self._open.values())
        return [transport for transport in transports if transport is not None]

    def drop(self, broker: int) -> None:
        connection = self._open.pop(broker, None)
        if connection is not None and connection.transport is not None:
            connection.transport.abort()


PARTITIONS_AT_FIRST = 2
NUMBER = "number"


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    name: str
    topic: str
    partition: int  # and each second one of those that the topic grew by
    acks: int
    pause_ms: int  # mean, between sends
    timeout_ms: int
    max_records: int = 3  # in one batch
    is_idempotent: bool = False
    give_up_seconds: float = 6.0  # an idempotent one
    record_bytes: int = 0  # at least so many in each record's value
    has_keys: bool = False
    rest_seconds: float = 0.0  # of an idempotent one, after each few batches; 0: it never rests


def new_record(plan: ProducerPlan, value: int) -> NewRecord:
    """Who reads it takes blanks for nothing. Each fifth record with a key is a tombstone, which
    says its number in a header."""
    number = (b"%d" % value).ljust(plan.record_bytes)
    if not plan.has_keys:
        return NewRecord(None, number)
    if value % 5 == 2:
        return NewRecord(_key_of(value), None, ((NUMBER, number),))
    return NewRecord(_key_of(value), number)


def _key_of(value: int) -> bytes:
    """A few keys are written all the time, the others for a while only: their last record stays."""
    return b"%d" % (value % 7) if value % 3 == 0 else b"%d of %d" % (value % 4, value // 50)


def number_of(record: Record) -> int:
    return int(dict(record.headers)[NUMBER] or 0) if record.value is None else int(record.value)


def next_partition(plan: ProducerPlan, around: Surroundings, chance: random.Random) -> int:
    """Nothing is drawn of a topic that did not grow."""
    own = range(plan.partition, around.partitions(plan.topic), PARTITIONS_AT_FIRST)
    return chance.choice(own) if len(own) > 1 else plan.partition


def send_of(plan: ProducerPlan, partition: int, values: tuple[int, ...], now_us: int) -> Operation:
    """As long as nothing is known of its outcome."""
    return Operation(
        process=plan.name,
        kind=Kind.SEND,
        outcome=Outcome.INFO,
        partition=history_name("", partition),
        values=values,
        offsets=(),
        invoked_us=now_us,
        completed_us=now_us,
        acks=plan.acks,
        is_idempotent=plan.is_idempotent,
    )


def ended(
    send: Operation, outcome: Outcome, base_offset: int, topic_id: str, now_us: int
) -> Operation:
    end_offset = base_offset + len(send.values)
    return Operation(
        process=send.process,
        kind=send.kind,
        outcome=outcome,
        partition=history_name(topic_id, int(send.partition.rpartition("/")[2])),
        values=send.values,
        offsets=tuple(range(base_offset, end_offset)) if base_offset >= 0 else (),
        invoked_us=send.invoked_us,
        completed_us=now_us,
        acks=send.acks,
        is_idempotent=send.is_idempotent,
    )


class Producer:
    """One send after the other; one whose outcome is unknown is never sent again."""

    def __init__(self, plan: ProducerPlan, around: Surroundings, chance: random.Random) -> None:
        self._plan = plan
        self._around = around
        self._chance = chance
        self._links = Links(around, chance)

    async def run(self) -> None:
        mean_seconds = self._plan.pause_ms / 1000
        while not self._around.is_over():
            await self._send_once()
            await asyncio.sleep(self._chance.expovariate(1 / mean_seconds))

    async def _send_once(self) -> None:
        plan, around = self._plan, self._around
        partition = next_partition(plan, around, self._chance)
        count = self._chance.randint(1, plan.max_records)
        values = tuple(around.next_value() for _ in range(count))
        batch = build_batch(
            [new_record(plan, value) for value in values],
            timestamp_ms=around.wall_ms(),
        )
        send = send_of(plan, partition, values, around.now_us())
        around.began(send)
        outcome, base_offset, topic_id = await self._outcome(partition, batch)
        around.record(ended(send, outcome, base_offset, topic_id, around.now_us()))

    async def _outcome(self, partition: int, batch: bytes) -> tuple[Outcome, int, str]:
        """Outcome, first offset (-1: not told), and the topic id ("": not told)."""
        plan = self._plan
        question = Produce(plan.topic, partition, plan.acks, plan.timeout_ms, batch)
        broker = -1
        try:
            broker = await self._links.leader(plan.topic, partition)
            connection = await self._links.to(broker)
            if plan.acks == 0:
                connection.tell(question)
                return Outcome.INFO, -1, ""
            reply = await connection.ask(question, plan.timeout_ms + 500)
        except NotSent:
            self._links.forget_leader(plan.topic, partition)
            return Outcome.FAIL, -1, ""
        except NoResponse:
            self._links.forget_leader(plan.topic, partition)
            self._links.drop(broker)
            return Outcome.INFO, -1, ""
        assert isinstance(reply, ProduceResponse)
        if reply.error == ErrorCode.NONE:
            return Outcome.OK, reply.base_offset, reply.topic_id
        self._links.forget_leader(plan.topic, partition)
        return (Outcome.FAIL if reply.is_rejected else Outcome.INFO), -1, ""


@dataclass(frozen=True, slots=True)
class ConsumerPlan:
    name: str
    topic: str
    pause_ms: int
    follower_share: float = 0.0  # of polls that go to some other broker than the leader


class Consumer:
    """Reads each partition from its start, in order, from its leader or from a follower."""

    def __init__(self, plan: ConsumerPlan, around: Surroundings, chance: random.Random) -> None:
        self._plan = plan
        self._around = around
        self._chance = chance
        self._links = Links(around, chance)
        self._positions = ReadPositions()
        self._topic_ids: dict[int, str] = {}

    async def run(self) -> None:
        mean_seconds = self._plan.pause_ms / 1000
        while not self._around.is_over():
            for partition in range(self._around.partitions(self._plan.topic)):
                try:
                    await self.poll(partition)
                except (NotSent, NoResponse):
                    self._links.forget_leader(self._plan.topic, partition)
            await asyncio.sleep(self._chance.expovariate(1 / mean_seconds))

    async def poll(self, partition: int, *, is_final: bool = False) -> int | None:
        """The offset after the last record shown when that is the high watermark, else None.
        Raises NotSent, NoResponse."""
        plan, around = self._plan, self._around
        offset = self._positions.offset(partition)
        invoked_us = around.now_us()
        broker = await self._links.leader(plan.topic, partition)
        is_in_rack = not is_final and self._chance.random() < plan.follower_share
        if is_in_rack:
            others = [other for other in around.brokers if other != broker]
            broker = self._chance.choice(others or [broker])
        try:
            connection = await self._links.to(broker)
            question = Fetch(plan.topic, partition, offset, POLL_MS, is_in_rack)
            reply = await connection.ask(question, 1500)
        except (NotSent, NoResponse):
            self._links.drop(broker)
            raise
        assert isinstance(reply, FetchResponse)
        if reply.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            if not is_in_rack:  # a follower may only be behind
                self._positions.seek(partition, offset, reply.log_start_offset)
            return None
        if reply.error != ErrorCode.NONE:
            self._links.forget_leader(plan.topic, partition)
            await asyncio.sleep(PAUSE_SECONDS)
            return None
        if reply.topic_id != self._topic_ids.setdefault(partition, reply.topic_id):
            self._topic_ids[partition] = reply.topic_id  # recreated: another log
            self._positions.begin_anew(partition)
            return None
        shown = records_shown(reply.data, offset)
        around.record(
            Operation(
                process=plan.name,
                kind=Kind.POLL,
                outcome=Outcome.OK,
                partition=history_name(reply.topic_id, partition),
                values=tuple(value for _, value in shown),
                offsets=tuple(found for found, _ in shown),
                invoked_us=invoked_us,
                completed_us=around.now_us(),
                is_reset=self._positions.take_reset(partition),
                is_final=is_final,
                log_start_offset=self._positions.take_log_start(partition, reply.log_start_offset),
                high_watermark=reply.high_watermark,
            )
        )
        position = end_of(reply.data, offset)
        self._positions.read_to(partition, position)
        return position if position >= reply.high_watermark else None

    async def first_offset(self, partition: int) -> OffsetsResponse:
        """Raises NotSent, NoResponse."""
        broker = await self._links.leader(self._plan.topic, partition)
        connection = await self._links.to(broker)
        reply = await connection.ask(Offsets(self._plan.topic, partition), 1000)
        assert isinstance(reply, OffsetsResponse)
        return reply

    async def read_all(
        self, partition: int, tries: int, is_whole: Callable[[str, int], bool]
    ) -> int | None:
        """From the log start to the high watermark; the offset reached, None if it was not. That
        of a leader just elected may be lower than what is committed until its ISR is large enough:
        `is_whole` (partition of the history, offset) says whether, and it is waited for."""
        self._positions.begin_anew(partition)
        short_reads = 0
        for _ in range(tries):
            try:
                end = await self.poll(partition, is_final=True)
            except (NotSent, NoResponse):
                self._links.forget_leader(self._plan.topic, partition)
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if end is None:
                continue
            name = history_name(self._topic_ids[partition], partition)
            if short_reads == MOST_SHORT_READS or is_whole(name, end):
                return end
            short_reads += 1
        return None


class PassingReader:
    """Asks one broker, leader or follower, for one offset, a few times, and goes."""

    def __init__(
        self,
        around: Surroundings,
        chance: random.Random,
        broker: int,
        partition: int,
        offset: int,
    ) -> None:
        self._links = Links(around, chance)
        self._broker = broker
        self._question = Fetch("orders", partition, offset, 0, is_in_rack=True)

    async def run(self) -> None:
        for _ in range(3):
            with contextlib.suppress(NotSent, NoResponse):
                connection = await self._links.to(self._broker)
                await connection.ask(self._question, 500)
            await asyncio.sleep(PAUSE_SECONDS)


def history_name(topic_id: str, partition: int) -> str:
    """A partition in the history; with topic id "" it is not known yet which one of that name."""
    return f"{topic_id[:8]}/{partition}"


def records_shown(data: bytes, from_offset: int) -> Sequence[tuple[int, int]]:
    """(offset, value) of the records at and after `from_offset`. Raises Violation for a damaged
    batch: nothing on the way from the broker's disk harms bytes (I10)."""
    found: list[tuple[int, int]] = []
    view = memoryview(data)
    position = 0
    while position < len(data):
        try:
            header = read_header(view, position)
            batch = view[position : position + header.size_bytes]
            check_crc(header, batch)
        except CorruptBatch as error:
            raise Violation("I10", f"a reader was shown {error}") from error
        for record in read_records(batch):
            if record.offset >= from_offset:
                found.append((record.offset, number_of(record)))
        position += header.size_bytes
    return found


def end_of(data: bytes, from_offset: int) -> int:
    """Where a reader goes on: batches that compaction left without records move it on too."""
    position, end_offset = 0, from_offset
    while position < len(data):
        header = read_header(data, position)
        position += header.size_bytes
        end_offset = header.next_offset
    return end_offset
