"""Fetch from one leader: all partitions that this broker follows there, in one fetch.

Driven by callbacks: an answer is appended and the next fetch sent in the same loop tick. A fetch
names only partitions whose position or log start changed (follower_session.py), so an idle
partition costs nothing. One fetch is under way; when there is something new to fetch meanwhile a
second one is sent immediately, and the leader answers the delayed first.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, cast

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, LeaderEpoch, Offset, TopicId

from tidemark_broker.clock import monotonic_ms
from tidemark_broker.kafka_wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionResponse,
    decode_fetch_response,
    encode_fetch_request,
)
from tidemark_broker.kafka_wire.messages.frames import FrameSplitter
from tidemark_broker.kafka_wire.messages.primitives import MalformedFrame
from tidemark_broker.kafka_wire.records.errors import StorageError
from tidemark_broker.log.errors import LocalLogCorrupt, is_storage_failure
from tidemark_broker.replication.core.effects import DivergingEpoch, LeaderResponse
from tidemark_broker.replication.core.follower import FollowerFetch, LeaderContact
from tidemark_broker.replication.follower_session import (
    FIRST_SESSION_EPOCH,
    REPLICA_SESSION_ID,
    Key,
    next_session_epoch,
)
from tidemark_broker.replication.partition import Partition
from tidemark_broker.replication.replica_manager import ReplicaManager

FETCH_WAIT_MS = 500
FETCH_MIN_BYTES = 1
PARTITION_MAX_BYTES = 1024 * 1024
MAX_RESPONSE_BYTES = 256 * 1024 * 1024  # a first batch is whole however large
MAX_IN_FLIGHT = 2
MAX_NAMED = 250  # in one fetch, some ten microseconds each for the leader; the next one follows
MAX_CORRELATION_ID = 0x7FFFFFFF
RESPONSE_TIMEOUT_SECONDS = 3.0  # beyond the wait: a silent leader's connection is made anew

_log = logging.getLogger(__name__)


class _OpenFetch(NamedTuple):
    """A partition's fetch as the leader knows it from the request of this number."""

    replica: Partition
    fetch: FollowerFetch
    log_start_offset: Offset
    number: int


@dataclass(slots=True)
class _SentFetch:
    number: int  # of all that this connection sent; what wraps is its correlation id
    named: dict[Key, _OpenFetch]


class LeaderEndpoint(asyncio.Protocol):
    """A connection to a leader, until it is lost."""

    def __init__(self, leader_id: BrokerId, partitions: ReplicaManager) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.responded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leader_id = leader_id
        self._partitions = partitions
        self._transport: asyncio.Transport | None = None
        self._splitter = FrameSplitter(max_frame_bytes=MAX_RESPONSE_BYTES)
        self._in_flight: deque[_SentFetch] = deque()
        self._questions: dict[Key, _OpenFetch] = {}  # open ones, asked without being named again
        self._unsure: dict[Key, Partition] = {}  # to be looked at before the next fetch
        self._contact = LeaderContact()
        self._session_epoch = FIRST_SESSION_EPOCH
        self._requests = 0
        self._has_more = False  # to name than one fetch may
        self._retry_timer: asyncio.TimerHandle | None = None
        self._response_timer: asyncio.TimerHandle | None = None
        self._response_due_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio's by class, only by what they do.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        for timer in (self._retry_timer, self._response_timer):
            if timer is not None:
                timer.cancel()
        if not self.lost.done():
            self.lost.set_result(None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def follow(self, replicas: list[Partition]) -> None:
        """Follow these replicas, whose roles or settings may have changed."""
        self._unsure = {(replica.topic_id, replica.partition): replica for replica in replicas}
        for key, open_fetch in self._questions.items():
            self._unsure.setdefault(key, open_fetch.replica)
        self._send_if_free()

    def check_replicas(self, replicas: Iterable[Partition]) -> None:
        """Check these replicas for a new fetch, without waiting for the one under way."""
        for replica in replicas:
            self._unsure[replica.topic_id, replica.partition] = replica
        self._send_if_free()

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._splitter.feed(data):
                self._on_response(frame)
        except MalformedFrame as error:
            _log.error(
                "malformed response from leader, reconnecting",
                extra={"leader": self._leader_id, "error": str(error)},
            )
            self.close()
            return
        self._send_if_free()

    # ---- asking

    def _send_if_free(self) -> None:
        if len(self._in_flight) < MAX_IN_FLIGHT:
            self._send()

    def _send(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        forgotten: list[Key] = []
        self._has_more = False
        topics: dict[TopicId, list[FetchPartition]] = {}
        named: dict[Key, _OpenFetch] = {}
        for key, replica, fetch, max_bytes in self._changes(forgotten):
            log_start_offset = replica.log.log_start_offset
            open_fetch = _OpenFetch(replica, fetch, log_start_offset, self._requests + 1)
            named[key] = self._questions[key] = open_fetch
            topics.setdefault(key[0], []).append(
                FetchPartition(
                    key[1],
                    fetch.leader_epoch,
                    fetch.fetch_offset,
                    fetch.last_fetched_epoch,
                    log_start_offset,
                    max_bytes,
                )
            )
        if not named and not forgotten and (self._in_flight or not self._questions):
            return
        self._requests += 1
        self._in_flight.append(_SentFetch(self._requests, named))
        is_first = self._session_epoch == FIRST_SESSION_EPOCH
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=FETCH_MIN_BYTES,
            max_bytes=self._partitions.replica_fetch_max_bytes,
            topics=tuple(
                FetchTopic(topic_id, tuple(requested)) for topic_id, requested in topics.items()
            ),
            replica_id=self._partitions.broker_id,
            replica_epoch=self._partitions.broker_epoch,
            session_id=0 if is_first else REPLICA_SESSION_ID,
            session_epoch=self._session_epoch,
            forgotten=tuple(("", topic_id, (partition,)) for topic_id, partition in forgotten),
        )
        self._session_epoch = next_session_epoch(self._session_epoch)
        transport.write(
            encode_fetch_request(
                request,
                correlation_id=self._requests & MAX_CORRELATION_ID,
                client_id="tidemark-replica",
            )
        )
        self._expect_response()
        if self._has_more:
            asyncio.get_running_loop().call_soon(self._send_if_free)

    def _changes(self, forgotten: list[Key]) -> list[tuple[Key, Partition, FollowerFetch, int]]:
        """Return fetches that differ from what the leader knows: (key, replica, fetch, max bytes).

        Partitions that are no longer fetched go into `forgotten`.
        """
        now_ms = monotonic_ms()
        throttle = self._partitions.join_throttle
        may_join_bytes = throttle.allowance_bytes(
            now_ms, at_most=self._partitions.replica_fetch_max_bytes
        )
        found: list[tuple[Key, Partition, FollowerFetch, int]] = []
        wake_at_ms: int | None = None
        for key, replica in tuple(self._unsure.items()):
            if len(found) + len(forgotten) >= MAX_NAMED:
                self._has_more = True
                break
            follower = replica.follower
            if follower is None or follower.leader != self._leader_id:
                del self._unsure[key]
                self._forget(key, forgotten)
                continue
            max_bytes = PARTITION_MAX_BYTES
            if self._partitions.is_adding(replica):
                max_bytes = min(max_bytes, may_join_bytes)
                if max_bytes == 0:
                    later_ms = throttle.wake_at_ms(now_ms)
                    wake_at_ms = min(wake_at_ms or later_ms, later_ms)
                    continue
                may_join_bytes -= max_bytes
            fetch = replica.next_fetch(now_ms)
            if fetch is None:
                self._forget(key, forgotten)
                if follower.wake_at_ms > now_ms:
                    wake_at_ms = min(wake_at_ms or follower.wake_at_ms, follower.wake_at_ms)
                continue
            del self._unsure[key]
            known = self._questions.get(key)
            if known is None or not _is_known(known, replica, fetch):
                found.append((key, replica, fetch, max_bytes))
        if wake_at_ms is not None:
            self._retry_at(wake_at_ms - now_ms)
        return found

    def _forget(self, key: Key, forgotten: list[Key]) -> None:
        open_fetch = self._questions.pop(key, None)
        if open_fetch is not None:
            open_fetch.replica.on_leader_contact_ended()
            forgotten.append(key)

    # ---- answers

    def _on_response(self, frame: bytes | bytearray | memoryview) -> None:
        response = decode_fetch_response(frame)
        requested = self._in_flight.popleft() if self._in_flight else None
        if requested is None or requested.number & MAX_CORRELATION_ID != response.correlation_id:
            raise MalformedFrame(
                f"response to request {response.correlation_id}, which was not sent"
            )
        self._expect_response()
        if response.error is not ErrorCode.NONE:
            raise MalformedFrame(f"the leader rejected the fetch: {response.error.name}")
        if not self.responded.done():
            self.responded.set_result(None)
        now_ms = monotonic_ms()
        for topic in response.topics:
            for answer in topic.partitions:
                self._on_partition((topic.topic_id, answer.partition), answer, requested, now_ms)
        self._contact.last_response_ms = now_ms
        for key, open_fetch in requested.named.items():
            if self._questions.get(key) is open_fetch:
                open_fetch.replica.on_nothing_new(open_fetch.fetch, now_ms, self._contact)

    def _on_partition(
        self, key: Key, answer: PartitionResponse, requested: _SentFetch, now_ms: int
    ) -> None:
        open_fetch = self._questions.get(key)
        if open_fetch is None or open_fetch.number > requested.number:
            return  # it was asked anew, or no more, since
        is_closed = (
            answer.error is not ErrorCode.NONE
            or answer.diverging_epoch is not None
            or len(answer.records) > 0
        )
        if is_closed:
            del self._questions[key]
            open_fetch.replica.on_leader_contact_ended()
            self._unsure[key] = open_fetch.replica
        self._apply(open_fetch, answer, now_ms)
        if open_fetch.replica.log.log_start_offset != open_fetch.log_start_offset:
            self._unsure[key] = (
                open_fetch.replica
            )  # the leader is to know (delayed_delete_records.py)

    def _apply(self, open_fetch: _OpenFetch, answer: PartitionResponse, now_ms: int) -> None:
        """Apply one partition's answer; its errors do not stop the others."""
        replica, fetch = open_fetch.replica, open_fetch.fetch
        if answer.records and self._partitions.is_adding(replica):
            self._partitions.join_throttle.spend(len(answer.records), now_ms)
        diverging = answer.diverging_epoch
        if diverging is not None:
            _log.info(
                "log diverges from leader",
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
            replica.on_leader_response(
                fetch,
                LeaderResponse(
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
        except LocalLogCorrupt as error:
            self._partitions.corrupt.note(replica, Offset(error.offset), error, "replica")
        except (StorageError, OSError) as error:
            if is_storage_failure(error):
                self._partitions.fail_storage(error)
                return
            _log.error(
                "records of leader rejected",
                extra={
                    "topic": replica.topic,
                    "partition": replica.partition,
                    "leader": self._leader_id,
                    "error": str(error),
                },
            )

    # ---- timers

    def _retry_at(self, delay_ms: int) -> None:
        if self._retry_timer is None:
            loop = asyncio.get_running_loop()
            self._retry_timer = loop.call_later(max(1, delay_ms) / 1000, self._retry)

    def _retry(self) -> None:
        self._retry_timer = None
        self._send_if_free()

    def _expect_response(self) -> None:
        """Keep one timer for all answers; it is set again when it ends, not with each answer."""
        limit_s = FETCH_WAIT_MS / 1000 + RESPONSE_TIMEOUT_SECONDS
        loop = asyncio.get_running_loop()
        self._response_due_s = loop.time() + limit_s
        if self._response_timer is None:
            self._response_timer = loop.call_later(limit_s, self._check_response)

    def _check_response(self) -> None:
        self._response_timer = None
        loop = asyncio.get_running_loop()
        left_s = self._response_due_s - loop.time()
        if left_s > 0:
            self._response_timer = loop.call_later(left_s, self._check_response)
        elif self._in_flight and self._transport is not None:
            _log.warning("leader does not respond, reconnecting", extra={"leader": self._leader_id})
            self._transport.abort()


def _is_known(known: _OpenFetch, replica: Partition, fetch: FollowerFetch) -> bool:
    """Return whether the fetch would tell the leader nothing new."""
    return (
        known.replica is replica
        and known.fetch == fetch
        and known.log_start_offset == replica.log.log_start_offset
    )
