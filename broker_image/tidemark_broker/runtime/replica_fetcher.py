"""Following: one connection to each broker that leads what we follow, all partitions in one fetch.

Driven by callbacks: an answer is appended and the next fetch sent in the same loop tick. Normally
one fetch is under way; when partitions join or end their back-off a second one is sent at once,
and the leader ends the parked first. A connection that breaks or is refused makes its broker a
suspect at once: that is how a killed leader is noticed within milliseconds. Peers are dialled at
the addresses of the metadata, never by name.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from tidemark_protocol.controller_messages import Endpoints
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, LeaderEpoch, Offset, TopicId

from tidemark_broker.replication.effects import DivergingEpoch, LeaderAnswer
from tidemark_broker.replication.follower import FollowerFetch
from tidemark_broker.runtime.hosted_replica import HostedReplica, is_storage_failure
from tidemark_broker.runtime.partitions import Partitions
from tidemark_broker.runtime.scheduling import monotonic_ms
from tidemark_broker.storage.errors import StorageError
from tidemark_broker.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionAnswer,
    decode_fetch_response,
    encode_fetch_request,
)
from tidemark_broker.wire.frames import FrameSplitter
from tidemark_broker.wire.primitives import MalformedFrame

FETCH_WAIT_MS = 500
FETCH_MIN_BYTES = 1
FETCH_MAX_BYTES = 10 * 1024 * 1024
PARTITION_MAX_BYTES = 1024 * 1024
MAX_RESPONSE_BYTES = 256 * 1024 * 1024  # a first batch is whole however large
MAX_IN_FLIGHT = 2
ANSWER_TIMEOUT_SECONDS = 3.0  # beyond the wait: a silent leader's connection is made anew
CONNECT_TIMEOUT_SECONDS = 1.0
FIRST_RECONNECT_SECONDS = 0.02
MAX_RECONNECT_SECONDS = 1.0

_log = logging.getLogger(__name__)

Key = tuple[TopicId, int]
Suspect = Callable[[BrokerId], None]


@dataclass(frozen=True, slots=True)
class _Asked:
    correlation_id: int
    fetches: dict[Key, tuple[HostedReplica, FollowerFetch]]


class LeaderConnection(asyncio.Protocol):
    """One connection to one leader; lives until it is lost."""

    def __init__(self, leader_id: BrokerId, partitions: Partitions) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.replicas: list[HostedReplica] = []
        self._leader_id = leader_id
        self._partitions = partitions
        self._transport: asyncio.Transport | None = None
        self._splitter = FrameSplitter(max_frame_bytes=MAX_RESPONSE_BYTES)
        self._in_flight: deque[_Asked] = deque()
        self._correlation_id = 0
        self._rotation = 0
        self._retry_timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio's by class, only by what they do.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        for timer in (self._retry_timer, self._answer_timer):
            if timer is not None:
                timer.cancel()
        if not self.lost.done():
            self.lost.set_result(None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def kick(self) -> None:
        """There may be something new to ask: do not wait for the fetch under way."""
        if len(self._in_flight) < MAX_IN_FLIGHT:
            self._send()

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._splitter.feed(data):
                self._on_answer(frame)
        except MalformedFrame as error:
            _log.error(
                "bad answer from a leader, reconnecting",
                extra={"leader": self._leader_id, "error": str(error)},
            )
            self.close()
            return
        if not self._in_flight:
            self._send()

    def _send(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        now_ms = monotonic_ms()
        fetches: dict[Key, tuple[HostedReplica, FollowerFetch]] = {}
        topics: dict[TopicId, list[FetchPartition]] = {}
        wake_at_ms: int | None = None
        throttle = self._partitions.join_throttle
        may_join_bytes = throttle.allowance_bytes(now_ms, at_most=FETCH_MAX_BYTES)
        for replica in self._rotated():
            follower = replica.follower
            if follower is None or follower.leader != self._leader_id:
                continue
            max_bytes = PARTITION_MAX_BYTES
            if self._partitions.is_joining(replica):
                max_bytes = min(max_bytes, may_join_bytes)
                if max_bytes == 0:
                    later_ms = throttle.wake_at_ms(now_ms)
                    wake_at_ms = min(wake_at_ms or later_ms, later_ms)
                    continue
                may_join_bytes -= max_bytes
            fetch = replica.next_fetch(now_ms)
            if fetch is None:
                if follower.wake_at_ms > now_ms:
                    wake_at_ms = min(wake_at_ms or follower.wake_at_ms, follower.wake_at_ms)
                continue
            fetches[replica.topic_id, replica.partition] = (replica, fetch)
            topics.setdefault(replica.topic_id, []).append(
                FetchPartition(
                    replica.partition,
                    fetch.leader_epoch,
                    fetch.fetch_offset,
                    fetch.last_fetched_epoch,
                    replica.log.log_start_offset,
                    max_bytes,
                )
            )
        if wake_at_ms is not None:
            self._retry_at(wake_at_ms - now_ms)
        if not fetches:
            return
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        self._in_flight.append(_Asked(self._correlation_id, fetches))
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=FETCH_MIN_BYTES,
            max_bytes=FETCH_MAX_BYTES,
            topics=tuple(FetchTopic(topic_id, tuple(asked)) for topic_id, asked in topics.items()),
            replica_id=self._partitions.broker_id,
            replica_epoch=self._partitions.broker_epoch,
        )
        transport.write(
            encode_fetch_request(
                request, correlation_id=self._correlation_id, client_id="tidemark-replica"
            )
        )
        self._expect_answer()

    def _rotated(self) -> list[HostedReplica]:
        """Another partition first each time: the byte limit must not starve the last."""
        if len(self.replicas) < 2:
            return self.replicas
        self._rotation = (self._rotation + 1) % len(self.replicas)
        return self.replicas[self._rotation :] + self.replicas[: self._rotation]

    def _on_answer(self, frame: bytes | bytearray | memoryview) -> None:
        response = decode_fetch_response(frame)
        if not self._in_flight or self._in_flight[0].correlation_id != response.correlation_id:
            raise MalformedFrame(f"an answer to request {response.correlation_id}: not asked")
        asked = self._in_flight.popleft()
        self._expect_answer()
        if response.error is not ErrorCode.NONE:
            raise MalformedFrame(f"the whole fetch was refused: {response.error.name}")
        now_ms = monotonic_ms()
        for topic in response.topics:
            for answer in topic.partitions:
                found = asked.fetches.pop((topic.topic_id, answer.partition), None)
                if found is not None:
                    self._apply(found[0], found[1], answer, now_ms)
        for replica, fetch in asked.fetches.values():
            replica.on_nothing_new(fetch, now_ms)

    def _apply(
        self, replica: HostedReplica, fetch: FollowerFetch, answer: PartitionAnswer, now_ms: int
    ) -> None:
        """One partition's trouble does not stop the others."""
        if self._partitions.is_joining(replica):
            self._partitions.join_throttle.spend(len(answer.records), now_ms)
        diverging = answer.diverging_epoch
        if diverging is not None:
            _log.info(
                "diverging log",
                extra={
                    "topic": replica.topic,
                    "partition": replica.partition,
                    "fetch_offset": fetch.fetch_offset,
                    "last_fetched_epoch": fetch.last_fetched_epoch,
                    "diverging_epoch": diverging[0],
                    "end_offset": diverging[1],
                },
            )
        try:
            replica.on_leader_answer(
                fetch,
                LeaderAnswer(
                    answer.error,
                    Offset(answer.high_watermark),
                    Offset(answer.log_start_offset),
                    has_records=len(answer.records) > 0,
                    diverging_epoch=(
                        None
                        if diverging is None
                        else DivergingEpoch(LeaderEpoch(diverging[0]), Offset(diverging[1]))
                    ),
                ),
                memoryview(answer.records),
                now_ms,
            )
        except (StorageError, OSError) as error:
            if is_storage_failure(error):
                self._partitions.fail_storage(error)
                return
            _log.error(
                "records of a leader were refused",
                extra={
                    "topic": replica.topic,
                    "partition": replica.partition,
                    "leader": self._leader_id,
                    "error": str(error),
                },
            )

    def _retry_at(self, delay_ms: int) -> None:
        if self._retry_timer is None:
            loop = asyncio.get_running_loop()
            self._retry_timer = loop.call_later(max(1, delay_ms) / 1000, self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        self.kick()

    def _expect_answer(self) -> None:
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None
        if self._in_flight:
            limit = FETCH_WAIT_MS / 1000 + ANSWER_TIMEOUT_SECONDS
            loop = asyncio.get_running_loop()
            self._answer_timer = loop.call_later(limit, self._give_up)

    def _give_up(self) -> None:
        _log.warning("a leader does not answer, reconnecting", extra={"leader": self._leader_id})
        if self._transport is not None:
            self._transport.abort()


class LeaderFetcher:
    """Keeps a connection to one leader for as long as there is something to follow there."""

    def __init__(self, leader_id: BrokerId, partitions: Partitions, suspect: Suspect) -> None:
        self.leader_id = leader_id
        self._partitions = partitions
        self._suspect = suspect
        self._replicas: list[HostedReplica] = []
        self._connection: LeaderConnection | None = None
        self._endpoints: Endpoints | None = None
        self._changed = asyncio.Event()

    def follow(self, replicas: list[HostedReplica], endpoints: Endpoints | None) -> None:
        """From now on these; the address too may have changed."""
        self._replicas = replicas
        if endpoints != self._endpoints:
            self._endpoints = endpoints
            self._changed.set()
            if self._connection is not None:
                self._connection.close()
        elif self._connection is not None:
            self._connection.replicas = replicas
            self._connection.kick()

    def kick(self) -> None:
        if self._connection is not None:
            self._connection.kick()

    def retire(self) -> None:
        """Nothing is followed there any more: no suspicion when the connection ends now."""
        self._replicas = []

    async def run(self) -> None:
        """Until cancelled."""
        delay = FIRST_RECONNECT_SECONDS
        try:
            while True:
                self._changed.clear()
                if await self._connect_once():
                    delay = FIRST_RECONNECT_SECONDS
                try:
                    # Not wait_for: in Python 3.11 it swallows a cancellation that comes together
                    # with the event.
                    async with asyncio.timeout(delay):
                        await self._changed.wait()
                except TimeoutError:
                    delay = min(2 * delay, MAX_RECONNECT_SECONDS)
        finally:
            if self._connection is not None:
                self._connection.close()

    async def _connect_once(self) -> bool:
        """True if a connection was made, and is lost again."""
        endpoints = self._endpoints
        if endpoints is None:
            return False
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                _, connection = await loop.create_connection(
                    lambda: LeaderConnection(self.leader_id, self._partitions),
                    endpoints.host,
                    endpoints.kafka_port,
                )
        except TimeoutError:
            return False
        except OSError:
            self._report(endpoints)
            return False
        self._connection = connection
        connection.replicas = self._replicas
        connection.kick()
        try:
            await connection.lost
        finally:
            self._connection = None
            connection.close()
        self._report(endpoints)
        return True

    def _report(self, endpoints: Endpoints) -> None:
        """Not when we left ourselves, or when the leader is known to be elsewhere by now."""
        if self._replicas and endpoints == self._endpoints:
            self._suspect(self.leader_id)


class ReplicaFetchers:
    """Which leaders are followed, from the roles that metadata gave."""

    def __init__(
        self, partitions: Partitions, *, suspect: Suspect, tasks: asyncio.TaskGroup
    ) -> None:
        self._partitions = partitions
        self._suspect = suspect
        self._tasks = tasks
        self._fetchers: dict[BrokerId, tuple[LeaderFetcher, asyncio.Task[None]]] = {}

    def refresh(self) -> None:
        """After metadata: roles, leaders or addresses may have changed."""
        following: dict[BrokerId, list[HostedReplica]] = {}
        for replica in self._partitions.replicas:
            if replica.follower is not None:
                following.setdefault(replica.follower.leader, []).append(replica)
        for leader_id in tuple(self._fetchers):
            if leader_id not in following:
                fetcher, task = self._fetchers.pop(leader_id)
                fetcher.retire()
                task.cancel()
        for leader_id, replicas in following.items():
            if leader_id not in self._fetchers:
                fetcher = LeaderFetcher(leader_id, self._partitions, self._suspect)
                task = self._tasks.create_task(fetcher.run(), name=f"follow-{leader_id}")
                self._fetchers[leader_id] = (fetcher, task)
            broker = self._partitions.metadata.brokers.get(leader_id)
            endpoints = None if broker is None else broker.endpoints
            self._fetchers[leader_id][0].follow(replicas, endpoints)

    def kick(self, replica: HostedReplica) -> None:
        """A follower that was held back (flush: Always) may fetch again."""
        if replica.follower is not None and replica.follower.leader in self._fetchers:
            self._fetchers[replica.follower.leader][0].kick()

    def stop(self) -> None:
        for fetcher, task in self._fetchers.values():
            fetcher.retire()
            task.cancel()
        self._fetchers.clear()
