"""Produce and consume for the demo and kill tests, and record what was promised, and when.

One record is sent to each partition every interval, with acks=all unless the settings differ. Each
partition has a pipeline of its own with many records in flight, so a stalled record neither hides
nor lengthens the gap of those after it. A record whose outcome is unknown is sent again only by
idempotent producers: several of them share a partition, since each has one record in flight.
Consumers read along and check that offsets rise without holes; what they read is recorded for the
comparison at the end (I7).
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from tidemark_client.client import TidemarkClient
from tidemark_client.idempotent_producer import IdempotentProducer
from tidemark_client.metadata import UnreadableResponse
from tidemark_client.outcomes import (
    Acknowledged,
    BrokerError,
    Outcome,
    OutgoingRecord,
    RecordPage,
    Rejected,
    Unknown,
)

from tidemark_chaos.group_workload import GroupWorkload
from tidemark_chaos.workload_log import (
    ACKNOWLEDGED,
    REFUSED,
    UNKNOWN,
    Event,
    Finished,
    Produced,
    Read,
    Stalled,
    Started,
    Violation,
    record_value,
    sequence_of,
)

READ_PAUSE_SECONDS = 0.1  # so that a page holds several records: reading along stays cheap
REJECTED_PAUSE_SECONDS = 0.05
STALL_SECONDS = 0.02  # waking later than this after a due time is worth telling
LAST_READ_SECONDS = 5.0
STOP_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    topic: str
    partitions: int
    run_id: str  # no colon in it
    interval_ms: float = 10.0
    timeout_ms: int = 5000
    in_flight: int = 256  # of one partition: 2.5 s of records at the default interval
    producers: int = 0  # idempotent ones of each partition, one record each at a time; 0: none
    acks: str = "all"  # "1" promises nothing; MIXED: each record in turn with another kind
    group_consumers: int = 0  # members of a group of this run

    @property
    def group(self) -> str:
        return f"chaos-{self.run_id}" if self.group_consumers else ""


MIXED = "mixed"
MIXED_ACKS = ("all", "all", "1", "0")  # in turn; only the first one by an idempotent producer


class SteadyClock:
    """Unix time in ms that never jumps: read once, then carried on by the monotonic clock."""

    def __init__(self) -> None:
        self._difference_ms = time.time() * 1000 - time.monotonic() * 1000

    def now_ms(self) -> float:
        return round(time.monotonic() * 1000 + self._difference_ms, 3)


class _Producers:
    """Hold the idempotent producers of one partition.

    The one that became idle last is taken first, so in quiet times few are used.
    """

    def __init__(self, client: TidemarkClient, settings: WorkloadSettings, partition: int) -> None:
        self.free = asyncio.Semaphore(settings.producers)
        self.idle = [
            (number, IdempotentProducer(client, settings.topic, partition))
            for number in reversed(range(settings.producers))
        ]


class WorkloadRun:
    """Run a workload; `write` receives every event in the order in which it became known."""

    def __init__(
        self,
        client: TidemarkClient,
        settings: WorkloadSettings,
        write: Callable[[Event], None],
        *,
        near_clients: Mapping[str, TidemarkClient] | None = None,
        clock: SteadyClock | None = None,
    ) -> None:
        """`near_clients`, by rack: consumers that read from followers where they are sent to."""
        self._client = client
        self._near_clients = dict(near_clients or {})
        self._settings = settings
        self._write = write
        self._clock = clock or SteadyClock()
        self._counts: Counter[str] = Counter()
        self._stop = asyncio.Event()
        self._producers: dict[int, _Producers] = {}
        self._read_to: dict[tuple[str, int], int] = {}  # by rack and partition

    def stop(self) -> None:
        """Stop sending; records in flight are waited for."""
        self._stop.set()

    async def run(self) -> Finished:
        settings = self._settings
        partitions = range(settings.partitions)
        readers = [("", self._client), *self._near_clients.items()]
        for partition in partitions:
            if settings.producers:
                self._producers[partition] = _Producers(self._client, settings, partition)
            offsets = await self._client.offsets(settings.topic, partition)
            for rack, _ in readers:
                self._read_to[rack, partition] = offsets.high_watermark
        self._write(
            Started(
                self._clock.now_ms(),
                settings.run_id,
                settings.topic,
                settings.partitions,
                settings.interval_ms,
                settings.acks,
                settings.group,
            )
        )
        group = self._group()
        group.start()
        try:
            return await self._load(readers, group)
        finally:
            await group.stop()

    def _group(self) -> GroupWorkload:
        settings = self._settings
        return GroupWorkload(
            self._client,
            group=settings.group,
            topic=settings.topic,
            members=settings.group_consumers,
            write=self._write,
            now_ms=self._clock.now_ms,
        )

    async def _load(
        self, readers: Sequence[tuple[str, TidemarkClient]], group: GroupWorkload
    ) -> Finished:
        """Produce until `stop`, then read the rest."""
        partitions = range(self._settings.partitions)
        places = [(rack, partition) for rack, _ in readers for partition in partitions]
        async with asyncio.TaskGroup() as tasks:
            reading = [tasks.create_task(self._read_along(*place)) for place in places]
            async with asyncio.TaskGroup() as writers:
                for partition in partitions:
                    writers.create_task(self._produce(partition), name=f"produce-{partition}")
            for task in reading:
                task.cancel()
        await asyncio.gather(*(self._read_the_rest(*place) for place in places))
        if self._settings.group_consumers:
            ends = {partition: self._read_to["", partition] for partition in partitions}
            for partition, position in (await group.drain(ends)).items():
                text = f"the group's position stays at {position}, expected {ends[partition]}"
                self._complain(partition, text)
            await group.stop()
        finished = Finished(
            self._clock.now_ms(),
            acknowledged=self._counts[ACKNOWLEDGED],
            refused=self._counts[REFUSED],
            unknown=self._counts[UNKNOWN],
            read=self._counts["read"],
            complaints=self._counts["complaints"],
        )
        self._write(finished)
        return finished

    async def _produce(self, partition: int) -> None:
        """Send each record at its due time.

        When late, the next one is sent at once, but without a burst.
        """
        loop = asyncio.get_running_loop()
        interval = self._settings.interval_ms / 1000
        free = asyncio.Semaphore(self._settings.in_flight)
        due = loop.time() + interval * partition / self._settings.partitions
        sequence = 0
        async with asyncio.TaskGroup() as in_flight:
            while not self._stop.is_set():
                if (early := due - loop.time()) > 0:
                    await asyncio.sleep(early)
                    if (late := loop.time() - due) > STALL_SECONDS:
                        self._write(Stalled(self._clock.now_ms(), round(late * 1000, 1)))
                due = max(due + interval, loop.time())
                await free.acquire()
                in_flight.create_task(self._send(partition, sequence, free))
                sequence += 1

    async def _send(self, partition: int, sequence: int, free: asyncio.Semaphore) -> None:
        record = OutgoingRecord(record_value(self._settings.run_id, partition, sequence))
        due_ms = self._clock.now_ms()
        try:
            acks, is_plain = self._acks_of(sequence)
            producer, outcome = await self._outcome(partition, record, acks, is_plain=is_plain)
        finally:
            free.release()
        now_ms = self._clock.now_ms()
        produced = _produced(partition, sequence, outcome, now_ms, round(now_ms - due_ms, 3))
        if producer >= 0:
            produced = msgspec.structs.replace(produced, producer=producer)
        if self._settings.acks == MIXED:
            produced = msgspec.structs.replace(produced, acks=acks)
        self._counts[produced.outcome] += 1
        self._write(produced)

    def _acks_of(self, sequence: int) -> tuple[str, bool]:
        """Return the acks of a record, and whether its producer is not idempotent."""
        if self._settings.acks != MIXED:
            return self._settings.acks, False
        place = sequence % len(MIXED_ACKS)
        return MIXED_ACKS[place], place > 0

    async def _outcome(
        self, partition: int, record: OutgoingRecord, acks: str, *, is_plain: bool
    ) -> tuple[int, Outcome]:
        """Send a record; return the producer's number (-1 without one) and the outcome."""
        settings = self._settings
        producers = self._producers.get(partition)
        if producers is None or is_plain:
            outcome = await self._client.produce(
                settings.topic, partition, [record], acks=acks, timeout_ms=settings.timeout_ms
            )
            if acks == "0" and isinstance(outcome, Acknowledged):
                outcome = Unknown("NO_RESPONSE", "acks=0 waits for none")
            return -1, outcome
        async with producers.free:  # in the order in which the records were due
            number, producer = producers.idle.pop()
            try:
                return number, await producer.produce(
                    [record], acks=acks, timeout_ms=settings.timeout_ms
                )
            finally:
                producers.idle.append((number, producer))

    async def _read_along(self, rack: str, partition: int) -> None:
        while True:
            try:
                await self._read_page(rack, partition, max_wait_ms=500)
            except (BrokerError, UnreadableResponse):
                await asyncio.sleep(REJECTED_PAUSE_SECONDS)  # a change of leader: it goes on
            await asyncio.sleep(READ_PAUSE_SECONDS)

    async def _read_the_rest(self, rack: str, partition: int) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_READ_SECONDS):
                while True:
                    try:
                        page = await self._read_page(rack, partition, max_wait_ms=0)
                    except (BrokerError, UnreadableResponse):
                        await asyncio.sleep(REJECTED_PAUSE_SECONDS)
                        continue
                    if self._read_to[rack, partition] >= page.high_watermark:
                        return

    async def _read_page(self, rack: str, partition: int, *, max_wait_ms: int) -> RecordPage:
        settings = self._settings
        expected = self._read_to[rack, partition]
        client = self._near_clients.get(rack, self._client)
        requested_ms = self._clock.now_ms()
        page = await client.fetch(settings.topic, partition, expected, max_wait_ms=max_wait_ms)
        offsets = [record.offset for record in page.records]
        if offsets != list(range(expected, expected + len(offsets))):  # I4
            self._complain(partition, f"expected offsets from {expected} on, found {offsets[:20]}")
        if page.records:
            sequences = [
                sequence_of(settings.run_id, partition, record.value) for record in page.records
            ]
            self._counts["read"] += len(sequences)
            now_ms = self._clock.now_ms()
            self._write(
                Read(
                    now_ms,
                    partition,
                    offsets[0],
                    sequences,
                    took_ms=round(now_ms - requested_ms, 3),
                    high_watermark=page.high_watermark,
                    rack=rack,
                )
            )
        self._read_to[rack, partition] = max(page.next_offset, expected)
        return page

    def _complain(self, partition: int, text: str) -> None:
        self._counts["complaints"] += 1
        self._write(Violation(self._clock.now_ms(), partition, text))


async def stop_when(run: WorkloadRun, *, seconds: float | None, file: Path | None) -> None:
    """Stop the run after a time or when a file appears; never, if neither is given."""
    loop = asyncio.get_running_loop()
    deadline = None if seconds is None else loop.time() + seconds
    while True:
        if deadline is not None and loop.time() >= deadline:
            break
        if file is not None and await asyncio.to_thread(file.exists):
            break
        await asyncio.sleep(STOP_POLL_SECONDS)
    run.stop()


def _produced(
    partition: int, sequence: int, outcome: Outcome, now_ms: float, latency_ms: float
) -> Produced:
    match outcome:
        case Acknowledged(offset=offset):
            return Produced(now_ms, partition, sequence, ACKNOWLEDGED, latency_ms, offset)
        case Rejected():
            return Produced(now_ms, partition, sequence, REFUSED, latency_ms, error=outcome.error)
        case _:
            return Produced(now_ms, partition, sequence, UNKNOWN, latency_ms, error=outcome.error)
