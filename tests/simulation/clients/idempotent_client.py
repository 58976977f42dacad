"""An idempotent producer as Kafka has them: several batches in flight, each sent until it is in.

Every batch carries (producer id, epoch, sequence) and is sent again, unchanged, as long as its
outcome is unknown. When one is given up, the rest is waited for and the epoch is bumped (KIP-360),
so that what may still arrive of it cannot be taken for something else. With acks=0 nobody ever
knows, so each batch has an epoch of its own.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass

from tidemark_broker.kafka_wire.records.record_batch import build_batch
from tidemark_chaos.history_checker import Outcome
from tidemark_protocol.error_codes import ErrorCode

from tests.simulation.clients.client_port import (
    InitProducer,
    InitProducerResponse,
    Produce,
    ProduceResponse,
)
from tests.simulation.clients.clients import (
    PAUSE_SECONDS,
    Links,
    NoResponse,
    NotSent,
    ProducerPlan,
    Surroundings,
    ended,
    new_record,
    next_partition,
    send_of,
)

MAX_IN_FLIGHT = 4
BATCHES_BETWEEN_RESTS = 12


@dataclass(frozen=True, slots=True)
class _Ended:
    outcome: Outcome
    base_offset: int = -1
    topic_id: str = ""


class IdempotentProducer:
    def __init__(self, plan: ProducerPlan, around: Surroundings, chance: random.Random) -> None:
        self._plan = plan
        self._around = around
        self._chance = chance
        self._links = Links(around, chance)
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequences: dict[int, int] = {}  # the next one of each partition
        self._in_flight: dict[asyncio.Task[None], None] = {}
        self._has_given_up = True  # also before the first id
        self._batches = 0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        mean_seconds = self._plan.pause_ms / 1000
        while not self._around.is_over():
            if self._has_given_up:
                await self._all_ended()
                await self._begin_epoch(self._chance.choice(self._around.brokers))
            elif len(self._in_flight) < MAX_IN_FLIGHT:
                await self._rest_now_and_then()
                task = loop.create_task(self._send(*self._next_batch()))
                self._in_flight[task] = None
                task.add_done_callback(lambda done: self._in_flight.pop(done))
            await asyncio.sleep(self._chance.expovariate(1 / mean_seconds))

    async def _rest_now_and_then(self) -> None:
        self._batches += 1
        if self._plan.rest_seconds and self._batches % BATCHES_BETWEEN_RESTS == 0:
            await asyncio.sleep(self._plan.rest_seconds)

    async def _all_ended(self) -> None:
        while self._in_flight:
            await asyncio.wait(tuple(self._in_flight))

    async def _begin_epoch(self, broker: int) -> None:
        """Any broker can say; asked again until one does."""
        question = InitProducer(self._producer_id, self._producer_epoch)
        try:
            connection = await self._links.to(broker)
            reply = await connection.ask(question, timeout_ms=2000)
        except (NotSent, NoResponse):
            self._links.drop(broker)
            return
        assert isinstance(reply, InitProducerResponse)
        if reply.error == ErrorCode.NONE:
            self._producer_id, self._producer_epoch = reply.producer_id, reply.producer_epoch
            self._sequences.clear()
            self._has_given_up = False

    def _next_batch(self) -> tuple[int, tuple[int, ...], bytes]:
        partition = next_partition(self._plan, self._around, self._chance)
        sequence = self._sequences.get(partition, 0)
        count = self._chance.randint(1, self._plan.max_records)
        values = tuple(self._around.next_value() for _ in range(count))
        batch = build_batch(
            [new_record(self._plan, value) for value in values],
            timestamp_ms=self._around.wall_ms(),
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=sequence,
        )
        self._sequences[partition] = sequence + count
        return partition, values, batch

    async def _send(self, partition: int, values: tuple[int, ...], batch: bytes) -> None:
        around = self._around
        send = send_of(self._plan, partition, values, around.now_us())
        around.began(send)
        found = await self._until_known(partition, batch)
        if found.outcome is not Outcome.OK:
            self._has_given_up = True
        around.record(
            ended(send, found.outcome, found.base_offset, found.topic_id, around.now_us())
        )

    async def _until_known(self, partition: int, batch: bytes) -> _Ended:
        plan = self._plan
        question = Produce(plan.topic, partition, plan.acks, plan.timeout_ms, batch)
        give_up_us = self._around.now_us() + int(plan.give_up_seconds * 1e6)
        is_doubtful = False
        while True:
            broker = -1
            try:
                broker = await self._links.leader(plan.topic, partition)
                connection = await self._links.to(broker)
                if plan.acks == 0:
                    connection.tell(question)
                    return _Ended(Outcome.INFO)
                reply = await connection.ask(question, plan.timeout_ms + 500)
            except NotSent:
                pass
            except NoResponse:
                self._links.drop(broker)
                is_doubtful = True
            else:
                assert isinstance(reply, ProduceResponse)
                if reply.error == ErrorCode.NONE and reply.base_offset >= 0:
                    return _Ended(Outcome.OK, reply.base_offset, reply.topic_id)
                is_doubtful = is_doubtful or not reply.is_rejected
            self._links.forget_leader(plan.topic, partition)
            if self._around.now_us() >= give_up_us:
                return _Ended(Outcome.INFO if is_doubtful else Outcome.FAIL)
            await asyncio.sleep(PAUSE_SECONDS)


class PassingProducer(IdempotentProducer):
    """One that comes, asks for an id, writes so many batches, one after the other, and goes."""

    def __init__(
        self,
        plan: ProducerPlan,
        around: Surroundings,
        chance: random.Random,
        *,
        broker: int | None,
        batches: int,
        on_first_epoch: Callable[[list[asyncio.Transport]], None] = lambda connections: None,
    ) -> None:
        """It asks `broker` for its id, None: who leads its partition. `on_first_epoch`: with its
        open connections, before it writes."""
        super().__init__(plan, around, chance)
        self._broker = broker
        self._batches = batches
        self._on_first_epoch = on_first_epoch

    async def run(self) -> None:
        while self._has_given_up and not self._around.is_over():
            with contextlib.suppress(NotSent):
                await self._begin_epoch(await self._whom_it_requests())
            await asyncio.sleep(PAUSE_SECONDS)
        self._on_first_epoch(self._links.connections())
        for _ in range(self._batches):
            while self._has_given_up and not self._around.is_over():
                await self._begin_epoch(self._chance.choice(self._around.brokers))
                await asyncio.sleep(PAUSE_SECONDS)
            await self._send(*self._next_batch())

    async def _whom_it_requests(self) -> int:
        if self._broker is not None:
            return self._broker
        return await self._links.leader(self._plan.topic, self._plan.partition)
