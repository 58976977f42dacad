"""Keep incremental fetch sessions of consumers (KIP-227): requested partitions and last answers.

A request of epoch 0 opens a session, one of epoch -1 wants none, the others name theirs and must
come in order. Sessions and their partitions are bounded in number. Without room the longest idle
session is dropped if it was idle for a while, else the client gets no session and sends full
requests. A session that grows beyond the bound is dropped.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import TopicId

from tidemark_broker.kafka_wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    PartitionResponse,
)

MAX_SESSIONS = 1000
MAX_PARTITIONS_OF_SESSIONS = 200_000  # some 300 bytes each
MIN_IDLE_MS = 120_000
NO_SESSION = 0
FIRST_EPOCH, NO_SESSION_EPOCH = 0, -1
MAX_EPOCH = 2**31 - 1
MAX_SESSION_ID = 2**31 - 1

Key = tuple[str, TopicId, int]  # topic or topic id, as the client asks, and partition


@dataclass(slots=True)
class FetchSession:
    """A session; `requested` is in the order in which partitions get their share of the answer."""

    session_id: int
    is_by_id: bool
    requested: dict[Key, FetchPartition] = field(default_factory=dict)
    reported: dict[Key, tuple[int, int]] = field(default_factory=dict)  # watermark, log start
    next_epoch: int = 1
    used_ms: int = 0

    def take(self, request: FetchRequest) -> None:
        for topic, topic_id, partitions in request.forgotten:
            for partition in partitions:
                self.requested.pop((topic, topic_id, partition), None)
                self.reported.pop((topic, topic_id, partition), None)
        self.requested.update(requested_of(request))

    def is_change(self, key: Key, answer: PartitionResponse) -> bool:
        """Return whether the answer differs from the last one sent.

        Records, an error, another broker to ask, or other positions.
        """
        if answer.error is not ErrorCode.NONE or answer.records or answer.preferred_replica >= 0:
            return True
        return self.reported.get(key) != (answer.high_watermark, answer.log_start_offset)

    def record_reported(self, key: Key, answer: PartitionResponse) -> None:
        if answer.error is not ErrorCode.NONE:
            self.reported.pop(key, None)  # whatever comes next is news
            return
        self.reported[key] = (answer.high_watermark, answer.log_start_offset)
        if answer.records and key in self.requested:
            self.requested[key] = self.requested.pop(key)  # the others come first next time


class FetchSessions:
    def __init__(self, first_session_id: int) -> None:
        self._sessions: dict[int, FetchSession] = {}  # longest idle first
        self._partitions = 0  # of all of them
        self._next_id = first_session_id

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, request: FetchRequest, now_ms: int) -> FetchSession | ErrorCode | None:
        """Return the request's session, or None for a full request without one."""
        if request.session_epoch in (FIRST_EPOCH, NO_SESSION_EPOCH):
            self._drop(request.session_id)
            return self._open(request, now_ms) if request.session_epoch == FIRST_EPOCH else None
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.next_epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if request.topics and session.is_by_id != is_by_id(request):
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.next_epoch = 1 if session.next_epoch == MAX_EPOCH else session.next_epoch + 1
        session.used_ms = now_ms
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        self._take(session, request)
        if self._partitions > MAX_PARTITIONS_OF_SESSIONS:
            self._drop(session.session_id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND  # it comes again with a full request
        return session

    def _open(self, request: FetchRequest, now_ms: int) -> FetchSession | None:
        more = sum(len(topic.partitions) for topic in request.topics)
        if not more or not self._has_room(more, now_ms):
            return None
        while self._next_id in self._sessions or not 0 < self._next_id <= MAX_SESSION_ID:
            self._next_id = self._next_id % MAX_SESSION_ID + 1
        session = FetchSession(self._next_id, is_by_id(request), used_ms=now_ms)
        self._next_id += 1
        self._sessions[session.session_id] = session
        self._take(session, request)
        return session

    def _has_room(self, more: int, now_ms: int) -> bool:
        while (
            len(self._sessions) >= MAX_SESSIONS
            or self._partitions + more > MAX_PARTITIONS_OF_SESSIONS
        ):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms < MIN_IDLE_MS:
                return False
            self._drop(oldest.session_id)
        return True

    def _take(self, session: FetchSession, request: FetchRequest) -> None:
        before = len(session.requested)
        session.take(request)
        self._partitions += len(session.requested) - before

    def _drop(self, session_id: int) -> None:
        dropped = self._sessions.pop(session_id, None)
        if dropped is not None:
            self._partitions -= len(dropped.requested)


def is_by_id(request: FetchRequest) -> bool:
    return bool(request.topics) and not request.topics[0].topic


def requested_of(request: FetchRequest) -> dict[Key, FetchPartition]:
    return dict(_entries(request))


def _entries(request: FetchRequest) -> Iterable[tuple[Key, FetchPartition]]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield (topic.topic, topic.topic_id, partition.partition), partition
