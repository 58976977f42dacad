"""Sends records in batches: of each partition one is on its way while the next one fills.

A batch leaves when it is full, or `linger_seconds` after its first record where none is on its way.
A batch that is rejected for what is in it is halved, so that one bad record costs its neighbours
nothing. Memory is bounded: who adds records waits for room.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidemark_client.client import TidemarkClient
from tidemark_client.idempotent_producer import IdempotentProducer
from tidemark_client.outcomes import Acknowledged, Outcome, OutgoingRecord, Rejected

BATCH_BYTES = 512 * 1024  # half of what topics take by default, before it is packed
BATCH_RECORDS = 5_000
PENDING_BYTES = 16 * 1024 * 1024  # of all partitions
RECORD_OVERHEAD_BYTES = 80
# Rejections that are for a record, not for the partition.
_FOR_A_RECORD = frozenset(
    {"MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP"}
)
MOST_HALVINGS = 256  # of one batch: where all records are bad, the rest is rejected together


class Numbered(NamedTuple):
    """`number`: which one of the input it is, from 1 on."""

    number: int
    record: OutgoingRecord
    size_bytes: int


class Settled(NamedTuple):
    """Hold the outcome of records of one partition, in their order."""

    partition: int
    numbers: Sequence[int]
    outcome: Outcome  # of the first one; acknowledged ones follow each other


class BatchingProducer:
    """`on_settled` is called once for each batch, or part of one. Close it in any case."""

    def __init__(
        self,
        client: TidemarkClient,
        topic: str,
        *,
        linger_seconds: float,
        on_settled: Callable[[Settled], None],
    ) -> None:
        self._client = client
        self._topic = topic
        self._linger_seconds = linger_seconds
        self._on_settled = on_settled
        self._queues: dict[int, _Queue] = {}
        self._senders: list[asyncio.Task[None]] = []
        self._pending_bytes = 0
        self._has_room = asyncio.Event()
        self._has_room.set()

    def add(self, partition: int, record: OutgoingRecord, number: int) -> None:
        """Call `wait_for_room` now and then."""
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = _Queue()
            name = f"produce-{self._topic}-{partition}"
            self._senders.append(asyncio.create_task(self._send(partition, queue), name=name))
        size_bytes = size_of(record) + RECORD_OVERHEAD_BYTES
        queue.put(Numbered(number, record, size_bytes))
        self._pending_bytes += size_bytes
        if self._pending_bytes >= PENDING_BYTES:
            self._has_room.clear()

    @property
    def has_room(self) -> bool:
        return self._pending_bytes < PENDING_BYTES

    async def wait_for_room(self) -> None:
        """Wait until the queue has room.

        Raises what ended a sender.
        """
        if not self._has_room.is_set():
            await self._or_failure(asyncio.create_task(self._has_room.wait(), name="room"))

    async def finish(self) -> None:
        """Send all that was added.

        Raises what ended a sender.
        """
        for queue in self._queues.values():
            queue.end()
        await asyncio.gather(*self._senders)

    async def close(self) -> None:
        for sender in self._senders:
            sender.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)

    async def _or_failure(self, room: "asyncio.Task[object]") -> None:
        await asyncio.wait({room, *self._senders}, return_when=asyncio.FIRST_COMPLETED)
        if not room.done():
            room.cancel()
            await asyncio.gather(*(sender for sender in self._senders if sender.done()))

    async def _send(self, partition: int, queue: "_Queue") -> None:
        producer = IdempotentProducer(self._client, self._topic, partition)
        while batch := await queue.next_batch(self._linger_seconds):
            await self._send_batch(producer, partition, batch)
            self._pending_bytes -= sum(entry.size_bytes for entry in batch)
            if self._pending_bytes < PENDING_BYTES:
                self._has_room.set()

    async def _send_batch(
        self, producer: IdempotentProducer, partition: int, batch: list[Numbered]
    ) -> None:
        parts = [batch]
        halvings = 0
        while parts:
            part = parts.pop()
            outcome = await producer.produce([entry.record for entry in part])
            is_for_a_record = isinstance(outcome, Rejected) and outcome.error in _FOR_A_RECORD
            if is_for_a_record and len(part) > 1 and halvings < MOST_HALVINGS:
                halvings += 1
                middle = len(part) // 2
                parts += (part[middle:], part[:middle])
                continue
            self._on_settled(Settled(partition, [entry.number for entry in part], outcome))


class _Queue:
    """Hold the records of one partition that are not yet sent."""

    def __init__(self) -> None:
        self._records: deque[Numbered] = deque()
        self._size_bytes = 0
        self._is_ended = False
        self._changed = asyncio.Event()
        self._is_worth_sending = asyncio.Event()

    def put(self, entry: Numbered) -> None:
        """Most calls wake nobody: one wakes at the first record, and where a batch is full."""
        is_first = not self._records
        self._records.append(entry)
        self._size_bytes += entry.size_bytes
        if is_first:
            self._changed.set()
        if self._size_bytes >= BATCH_BYTES or len(self._records) >= BATCH_RECORDS:
            self._is_worth_sending.set()

    def end(self) -> None:
        self._is_ended = True
        self._changed.set()
        self._is_worth_sending.set()

    async def next_batch(self, linger_seconds: float) -> list[Numbered]:
        """Empty once it is ended and all was taken."""
        while not self._records:
            if self._is_ended:
                return []
            self._changed.clear()
            await self._changed.wait()
        if not self._is_worth_sending.is_set():
            try:
                async with asyncio.timeout(linger_seconds):
                    await self._is_worth_sending.wait()
            except TimeoutError:
                pass
        return self._take()

    def _take(self) -> list[Numbered]:
        batch = [self._records.popleft()]
        size_bytes = batch[0].size_bytes
        while self._records and len(batch) < BATCH_RECORDS:
            if size_bytes + self._records[0].size_bytes > BATCH_BYTES:
                break
            batch.append(self._records.popleft())
            size_bytes += batch[-1].size_bytes
        self._size_bytes -= size_bytes
        is_full = self._size_bytes >= BATCH_BYTES or len(self._records) >= BATCH_RECORDS
        if not is_full and not self._is_ended:
            self._is_worth_sending.clear()
        return batch


def size_of(record: OutgoingRecord) -> int:
    """Return the size in bytes of a record's key, value and headers."""
    size_bytes = len(record.value or b"") + len(record.key or b"")
    for header in record.headers:
        size_bytes += len(header.key) + len(header.value or b"")
    return size_bytes


def offsets_of(settled: Settled) -> Sequence[int]:
    """Return the offsets of acknowledged records; empty with acks=0."""
    assert isinstance(settled.outcome, Acknowledged)
    first = settled.outcome.offset
    return () if first < 0 else range(first, first + len(settled.numbers))
