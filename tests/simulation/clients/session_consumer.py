"""A simulated consumer of the Kafka protocol that reads in fetch sessions (KIP-227).

One request for all partitions of a leader; after the first one it names only partitions whose
position has moved, and is answered only of those with news. What it is shown goes into the history
like every poll. Metadata, leaders and sessions are looked up anew whenever something is refused.
"""

import asyncio
import random
from dataclasses import dataclass, field

from tidemark_broker.http.consumers.peer_connections import BrokerConnection, BrokerUnavailable
from tidemark_broker.kafka_wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionResponse,
)
from tidemark_broker.kafka_wire.messages.metadata import METADATA_API
from tidemark_chaos.history_checker import Kind, Operation, Outcome
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import TopicId

from tests.simulation.checks.read_positions import ReadPositions
from tests.simulation.clients.clients import (
    PAUSE_SECONDS,
    Surroundings,
    end_of,
    history_name,
    records_shown,
)

WAIT_MS = 200
RESPONSE_MS = 1_500
MAX_BYTES = 64 * 1024


@dataclass
class _Session:
    """With one leader: what it was told of each partition, so that only changes are sent."""

    link: BrokerConnection
    session_id: int = 0
    epoch: int = 0
    sent: dict[int, int] = field(default_factory=dict)


@dataclass
class SessionConsumer:
    name: str
    topic: str
    kafka_port: int
    around: Surroundings
    chance: random.Random

    def __post_init__(self) -> None:
        self._topic_id = TopicId("")
        self._leaders: dict[int, tuple[str, int]] = {}  # of partitions: host, port
        self._sessions: dict[tuple[str, int], _Session] = {}
        self._positions = ReadPositions()
        self.incremental_fetches = 0

    async def run(self) -> None:
        while not self.around.is_over():
            try:
                if not self._leaders:
                    await self._look_up()
                for leader in dict.fromkeys(self._leaders.values()):
                    await self._fetch(leader)
            except BrokerUnavailable:
                self._forget()
            await asyncio.sleep(self.chance.uniform(0.0, 2 * PAUSE_SECONDS))

    def _forget(self) -> None:
        self._leaders.clear()
        for session in self._sessions.values():
            session.link.close()
        self._sessions.clear()

    async def _look_up(self) -> None:
        host, _ = self.around.address_of(self.chance.choice(self.around.brokers))
        link = await BrokerConnection.open(self.name, host, self.kafka_port)
        try:
            requested = {"topics": ({"topic": self.topic},), "allow_auto_topic_creation": False}
            found = await link.ask(METADATA_API, requested, RESPONSE_MS)
        finally:
            link.close()
        (topic,) = found["topics"]
        if topic["error"] != ErrorCode.NONE:
            raise BrokerUnavailable(ErrorCode(topic["error"]).name)
        if topic["topic_id"] != self._topic_id:  # recreated: another log
            self._topic_id = topic["topic_id"]
            for entry in topic["partitions"]:
                self._positions.begin_anew(entry["partition"])
        addresses = {each["broker_id"]: (each["host"], each["port"]) for each in found["brokers"]}
        self._leaders = {
            entry["partition"]: addresses[entry["leader"]]
            for entry in topic["partitions"]
            if entry["leader"] in addresses
        }

    # ---- one fetch of one leader

    async def _fetch(self, leader: tuple[str, int]) -> None:
        session = self._sessions.get(leader)
        if session is None or not session.link.is_open:
            session = _Session(await BrokerConnection.open(self.name, *leader))
            self._sessions[leader] = session
        positions = {
            partition: self._positions.offset(partition)
            for partition, at in self._leaders.items()
            if at == leader
        }
        changed = {p: offset for p, offset in positions.items() if session.sent.get(p) != offset}
        invoked_us = self.around.now_us()
        reply = await session.link.fetch(self._request(session, changed), RESPONSE_MS)
        if reply.error is not ErrorCode.NONE:  # the session is not known any more
            del self._sessions[leader]
            session.link.close()
            return
        self.incremental_fetches += session.epoch > 0
        session.session_id = reply.session_id
        session.epoch = session.epoch + 1 if reply.session_id else 0
        session.sent = {} if session.epoch == 0 else session.sent | changed
        for topic in reply.topics:
            for response in topic.partitions:
                self._take(response, positions.get(response.partition, 0), invoked_us)

    def _request(self, session: _Session, changed: dict[int, int]) -> FetchRequest:
        requested = tuple(
            FetchPartition(partition, -1, offset, -1, -1, MAX_BYTES)
            for partition, offset in changed.items()
        )
        return FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            topics=(FetchTopic(self._topic_id, requested),) if requested else (),
            session_id=session.session_id,
            session_epoch=session.epoch,
        )

    def _take(self, answer: PartitionResponse, offset: int, invoked_us: int) -> None:
        partition = answer.partition
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._positions.seek(partition, offset, answer.log_start_offset)
            return
        if answer.error is not ErrorCode.NONE:
            self._forget()
            return
        shown = records_shown(bytes(answer.records), offset)
        operation = Operation(
            process=self.name,
            kind=Kind.POLL,
            outcome=Outcome.OK,
            partition=history_name(self._topic_id, partition),
            values=tuple(value for _, value in shown),
            offsets=tuple(found for found, _ in shown),
            invoked_us=invoked_us,
            completed_us=self.around.now_us(),
            is_reset=self._positions.take_reset(partition),
            is_final=False,
            log_start_offset=self._positions.take_log_start(partition, answer.log_start_offset),
            high_watermark=answer.high_watermark,
        )
        self.around.record(operation)
        self._positions.read_to(partition, end_of(bytes(answer.records), offset))
