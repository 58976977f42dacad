"""Answer followers' fetches: all partitions of one request together.

A fetch without news is delayed and woken once per loop tick by appends, and, coalesced, by the high
watermark, so that followers learn it without asking all the time (Kafka lets them wait 500 ms,
KAFKA-9952). Only partitions with news are in an answer: records, an error, a divergence, or a
watermark that this follower has not received. An idle partition costs nothing: neither the fetch
names it (follower_session.py) nor is it checked before something happened to it.
"""

import logging
from collections.abc import Callable
from itertools import islice

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId

from tidemark_broker.clock import Clock, Scheduler, monotonic_ms
from tidemark_broker.kafka_wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    PartitionResponse,
    TopicResponse,
)
from tidemark_broker.kafka_wire.records.errors import CorruptBatch, StorageError
from tidemark_broker.log.errors import is_storage_failure
from tidemark_broker.replication.core.effects import DivergingEpoch, RejectFetch, ReplicaFetch
from tidemark_broker.replication.follower_session import (
    FIRST_SESSION_EPOCH,
    DelayedFollowerFetch,
    FollowerSession,
    Key,
    Respond,
    next_session_epoch,
)
from tidemark_broker.replication.partition import Partition
from tidemark_broker.replication.partition_observer import PartitionObserver
from tidemark_broker.replication.replica_manager import ReplicaManager

__all__ = ["FollowerFetchHandler", "FollowerSession"]

MAX_WAIT_MS = 500
WATERMARK_DELAY_SECONDS = 0.01  # rises within this are told together
MAX_RESPONSE_BYTES = 16 * 1024 * 1024  # whatever the follower asks for
# Of one turn of the loop, and of an answer: each is read here, and appended there in one turn too.
MAX_LOOKED_AT = 250
MAX_RESPONDED = 100
MAX_POSITIONS = 500
FORGOTTEN_AT_A_TIME = 500  # of a connection that is gone, some three microseconds each

_log = logging.getLogger(__name__)

Found = dict[Key, PartitionResponse]


class FollowerFetchHandler(PartitionObserver):
    def __init__(
        self, partitions: ReplicaManager, *, scheduler: Scheduler, clock: Clock = monotonic_ms
    ) -> None:
        self._partitions = partitions
        self._scheduler = scheduler
        self._clock = clock
        # Inner dicts keep the order of arrival.
        self._watching: dict[Key, dict[FollowerSession, None]] = {}
        self._to_wake: dict[FollowerSession, None] = {}
        # By follower and its life: the newest connection that it asked on.
        self._newest: dict[BrokerId, tuple[int, int]] = {}  # (broker epoch, number of the link)
        self._is_flush_scheduled = False
        # While several followers are answered at once: what was read for the first of them, by
        # replica, offset and limit.
        self._shared: dict[tuple[Partition, int, int], bytes] | None = None
        self.listeners: dict[Callable[[], None], None] = {}  # told of each fetch

    def is_left(self, link: FollowerSession, request: FetchRequest) -> bool:
        """Return whether the follower already fetches on a later connection.

        It has one at a time. What arrives on an earlier one is older, and would undo or overstate
        its progress.
        """
        requests_as = (request.replica_epoch, link.number)
        return requests_as < self._newest.get(BrokerId(request.replica_id), requests_as)

    def handle(self, request: FetchRequest, link: FollowerSession, respond: Respond) -> None:
        """Handle a request that the session accepts.

        `respond` is called once, maybe before the return; not after `cancel`.
        """
        self._unpark(link)
        self._begin(request, link)
        now_ms = self._clock()
        requested: list[Key] = []
        for topic in request.topics:
            for partition in topic.partitions:
                key = (topic.topic_id, partition.partition)
                self._watch(link, key, partition)
                requested.append(key)
        found = self._responses(
            link
        )  # partitions that the last response had no room for come first
        budget = _budget(request) - sum(len(response.records) for response in found.values())
        for key in requested:
            response = self._first_response(key, link, request, budget, now_ms)
            if response is not None:
                found[key] = response
                budget -= len(response.records)
        link.contact.last_fetch_ms = now_ms
        if found or request.max_wait_ms <= 0:
            self._respond(link, found, respond)
        else:
            self._park(link, request, respond)
        for listener in self.listeners:
            listener()

    def log_starts(self, key: Key) -> dict[BrokerId, Offset]:
        """Return the log starts of followers that fetch the partition at the moment."""
        found: dict[BrokerId, Offset] = {}
        for link in self._watching.get(key, ()):
            requested = link.requested.get(key)
            if requested is not None and link.request is not None:
                found[BrokerId(link.request.replica_id)] = Offset(requested.log_start_offset)
        return found

    def cancel(self, link: FollowerSession) -> None:
        """Drop a session whose connection is gone.

        What it fetched is forgotten in slices between which other tasks run: its last contact is
        recorded as of then, and no later one comes.
        """
        self._unpark(link)
        for key in tuple(islice(link.watched, FORGOTTEN_AT_A_TIME)):
            self._forget(link, key)
        if link.watched:
            self._scheduler.call_soon(lambda: self.cancel(link))

    def end_now(self, link: FollowerSession) -> None:
        """Answer the delayed fetch: the follower already sent its next one."""
        if link.delayed is not None:
            self._finish(link)

    # ---- what may give a follower news

    def on_role_change(self, replica: Partition) -> None:
        """Wake the fetches of a partition: another role answers the error."""
        self.on_append(replica)

    def on_append(self, replica: Partition) -> None:
        """Wake the fetches of a partition."""
        key = (replica.topic_id, replica.partition)
        watching = self._watching.get(key)
        if not watching:
            return
        for link in watching:
            link.unread[key] = None
            if link.delayed is not None:
                self._wake(link)

    def _wake(self, link: FollowerSession) -> None:
        self._to_wake[link] = None
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._scheduler.call_soon(self._flush)

    def on_high_watermark(self, replica: Partition) -> None:
        """Schedule the fetches of a partition whose watermark or log start moved."""
        key = (replica.topic_id, replica.partition)
        for link in self._watching.get(key, ()):
            link.moved[key] = None
            if link.delayed is not None:
                self._arm_watermark_timer(link, link.delayed)

    # ---- sessions

    def _begin(self, request: FetchRequest, link: FollowerSession) -> None:
        if request.session_epoch <= FIRST_SESSION_EPOCH:
            for key in tuple(link.watched):
                self._forget(link, key)
        link.next_epoch = next_session_epoch(max(FIRST_SESSION_EPOCH, request.session_epoch))
        link.request = request
        known = self._partitions.metadata.brokers.get(BrokerId(request.replica_id))
        if known is not None and request.replica_epoch == known.broker_epoch:
            self._newest[known.broker_id] = (known.broker_epoch, link.number)
        for _, topic_id, partitions in request.forgotten:
            for partition in partitions:
                self._forget(link, (topic_id, partition))
                link.reported_positions.pop((topic_id, partition), None)
        if known is not None and request.replica_epoch < known.broker_epoch:
            # KIP-903: a later life was heard of, so every question of this one is judged again.
            link.unread.update(dict.fromkeys(link.requested))

    def _watch(self, link: FollowerSession, key: Key, requested: FetchPartition) -> None:
        link.requested[key] = requested
        link.moved[key] = None
        link.unread.pop(key, None)
        if key not in link.watched:
            link.watched[key] = None
            self._watching.setdefault(key, {})[link] = None

    def _forget(self, link: FollowerSession, key: Key) -> None:
        self._close_open_fetch(link, key)
        link.unread.pop(key, None)
        link.moved.pop(key, None)
        if key in link.watched:
            del link.watched[key]
            watching = self._watching[key]
            del watching[link]
            if not watching:
                del self._watching[key]

    def _close_open_fetch(self, link: FollowerSession, key: Key) -> None:
        if link.requested.pop(key, None) is None:
            return
        replica = self._partitions.hosted(*key)
        if replica is not None and link.request is not None:
            replica.on_contact_ended(BrokerId(link.request.replica_id), link.contact)

    # ---- waiting

    def _park(self, link: FollowerSession, request: FetchRequest, respond: Respond) -> None:
        wait_seconds = min(MAX_WAIT_MS, request.max_wait_ms) / 1000
        timer = self._scheduler.call_later(wait_seconds, lambda: self._end(link, delayed))
        delayed = link.delayed = DelayedFollowerFetch(respond, timer)
        if self._has_moved(link):
            self._arm_watermark_timer(link, delayed)
        if link.unread:
            self._wake(link)  # there were more than one turn may look at

    def _has_moved(self, link: FollowerSession) -> bool:
        for key in tuple(link.moved):
            if self._news(key, link) is not None:
                return True
            del link.moved[key]
        return False

    def _unpark(self, link: FollowerSession) -> None:
        delayed, link.delayed = link.delayed, None
        if delayed is not None:
            delayed.cancel()
            self._to_wake.pop(link, None)

    def _arm_watermark_timer(self, link: FollowerSession, delayed: DelayedFollowerFetch) -> None:
        if delayed.watermark_timer is None:
            delayed.watermark_timer = self._scheduler.call_later(
                WATERMARK_DELAY_SECONDS, lambda: self._end(link, delayed)
            )

    def _end(self, link: FollowerSession, delayed: DelayedFollowerFetch) -> None:
        """Answer with what there is: the wait is over, or a watermark rose."""
        if link.delayed is delayed:
            self._finish(link)

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        to_wake, self._to_wake = self._to_wake, {}
        self._shared = {}
        try:
            for link in to_wake:
                if link.delayed is not None:
                    before = len(link.unread)
                    found = self._responses(link)
                    if found:
                        self._finish(link, found)
                    elif 0 < len(link.unread) < before:
                        self._wake(link)
        finally:
            self._shared = None

    def _finish(self, link: FollowerSession, found: Found | None = None) -> None:
        delayed = link.delayed
        assert delayed is not None
        self._unpark(link)
        self._respond(link, self._responses(link) if found is None else found, delayed.respond)

    # ---- answers

    def _responses(self, link: FollowerSession) -> Found:
        """Return answers to open fetches of partitions to which something happened.

        The follower's progress was recorded when it fetched.
        """
        request = link.request
        found: Found = {}
        if not link.unread or request is None:
            return found
        budget = _budget(request)
        for key in tuple(islice(link.unread, MAX_LOOKED_AT)):
            if budget <= 0 or len(found) >= MAX_RESPONDED:
                break
            del link.unread[key]
            requested = link.requested.get(key)
            if requested is None:
                continue
            response, _ = self._check(key, requested, request, budget)
            if response is not None:
                found[key] = response
                budget -= len(response.records)
        return found

    def _first_response(
        self,
        key: Key,
        link: FollowerSession,
        request: FetchRequest,
        budget: int,
        now_ms: int,
    ) -> PartitionResponse | None:
        requested = link.requested[key]
        replica = self._partitions.hosted(*key)
        # Before the read: later appends must not make the follower look late.
        leader_end = Offset(-1) if replica is None else replica.log.log_end_offset
        response, accepted = self._check(key, requested, request, budget)
        if accepted is None or replica is None:
            return response
        is_session = request.session_epoch >= FIRST_SESSION_EPOCH
        replica.on_replica_fetch(accepted, leader_end, now_ms, link.contact if is_session else None)
        self._partitions.ticks.note(replica)
        if response is None:
            if accepted.fetch_offset != leader_end:  # there was no room
                link.unread[key] = None
            return None
        if not response.records:
            return response
        return _with_watermark(response, replica.high_watermark)

    def _check(
        self, key: Key, requested: FetchPartition, request: FetchRequest, budget: int
    ) -> tuple[PartitionResponse | None, ReplicaFetch | None]:
        """Return the answer if there is news, and the fetch if it was accepted and read."""
        replica = self._partitions.hosted(*key)
        if replica is None or replica.leader is None:
            return self._not_controller(key, requested, replica), None
        log = replica.log
        fetch = ReplicaFetch(
            BrokerId(request.replica_id),
            BrokerEpoch(request.replica_epoch),
            LeaderEpoch(requested.current_leader_epoch),
            Offset(requested.fetch_offset),
            LeaderEpoch(requested.last_fetched_epoch),
            Offset(requested.log_start_offset),
        )
        verdict = replica.leader.check_fetch(fetch, log)
        if isinstance(verdict, RejectFetch):
            return PartitionResponse(
                requested.partition, verdict.error, log_start_offset=log.log_start_offset
            ), None
        if isinstance(verdict, DivergingEpoch):
            return PartitionResponse(
                requested.partition,
                ErrorCode.NONE,
                high_watermark=replica.high_watermark,
                log_start_offset=log.log_start_offset,
                diverging_epoch=(verdict.epoch, verdict.end_offset),
            ), None
        if requested.fetch_offset == log.log_end_offset or budget <= 0:
            return None, fetch
        return self._read(replica, requested, fetch, budget)

    def _read(
        self, replica: Partition, requested: FetchPartition, fetch: ReplicaFetch, budget: int
    ) -> tuple[PartitionResponse | None, ReplicaFetch | None]:
        log = replica.log
        try:
            records = self._records(replica, fetch.fetch_offset, min(budget, requested.max_bytes))
        except CorruptBatch as error:
            self._partitions.corrupt.note(replica, fetch.fetch_offset, error, "replica")
            return PartitionResponse(requested.partition, ErrorCode.CORRUPT_MESSAGE), None
        except (StorageError, OSError) as error:
            if is_storage_failure(error):
                self._partitions.fail_storage(error)
            _log.error("follower fetch failed", extra={"error": str(error)})
            return PartitionResponse(requested.partition, ErrorCode.KAFKA_STORAGE_ERROR), None
        response = PartitionResponse(
            requested.partition,
            ErrorCode.NONE,
            replica.high_watermark,
            log.log_start_offset,
            records,
        )
        return response, fetch

    def _records(self, replica: Partition, offset: Offset, max_bytes: int) -> bytes:
        shared = self._shared
        wanted = (replica, offset, max_bytes)
        if shared is not None and (found := shared.get(wanted)) is not None:
            return found
        log = replica.log
        records = log.read(offset, max_bytes=max_bytes, end_offset=log.log_end_offset)
        if shared is not None:
            shared[wanted] = records
        return records

    def _not_controller(
        self, key: Key, requested: FetchPartition, replica: Partition | None
    ) -> PartitionResponse:
        """Return the error, in Kafka's order: is it known, the leader epoch, who leads."""
        metadata = self._partitions.metadata
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if replica is None:
            topic = metadata.topics_by_id.get(key[0])
            if topic is None:
                error = ErrorCode.UNKNOWN_TOPIC_ID
            elif not 0 <= key[1] < topic.partition_count:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif 0 <= requested.current_leader_epoch < replica.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif requested.current_leader_epoch > replica.leader_epoch:
            error = ErrorCode.UNKNOWN_LEADER_EPOCH
        return PartitionResponse(requested.partition, error)

    def _news(self, key: Key, link: FollowerSession) -> Partition | None:
        replica = self._partitions.hosted(*key)
        if replica is None or replica.leader is None:
            return None
        watermark, log_start = link.reported_positions.get(key, (-1, -1))
        is_change = replica.high_watermark > watermark or replica.log.log_start_offset > log_start
        return replica if is_change else None

    def _add_positions(self, link: FollowerSession, found: Found) -> None:
        """Add the watermarks of all other partitions, so that no second answer is needed."""
        for key in tuple(islice(link.moved, MAX_POSITIONS)):
            del link.moved[key]
            requested = link.requested.get(key)
            if key in found or requested is None:
                continue
            replica = self._news(key, link)
            if replica is not None and self._is_requested_in_its_epoch(requested, replica):
                found[key] = PartitionResponse(
                    key[1], ErrorCode.NONE, replica.high_watermark, replica.log.log_start_offset
                )

    # guard: watermark-told-in-asked-epoch (I2)
    @staticmethod
    def _is_requested_in_its_epoch(requested: FetchPartition, replica: Partition) -> bool:
        """Return whether the fetch names the present leader epoch.

        If not, there was no room yet to check it, and the follower could not tell whose watermark
        the answer has (I2).
        """
        return requested.current_leader_epoch == replica.leader_epoch

    def _respond(self, link: FollowerSession, found: Found, respond: Respond) -> None:
        self._add_positions(link, found)
        topics: dict[TopicId, list[PartitionResponse]] = {}
        for key, response in found.items():
            topics.setdefault(key[0], []).append(response)
            if response.error is not ErrorCode.NONE or response.diverging_epoch is not None:
                link.reported_positions.pop(key, None)
                self._forget(link, key)
                continue
            link.reported_positions[key] = (
                Offset(response.high_watermark),
                Offset(response.log_start_offset),
            )
            if response.records:
                self._close_open_fetch(link, key)
        respond(
            tuple(
                TopicResponse(topic_id, tuple(responses)) for topic_id, responses in topics.items()
            )
        )


def _budget(request: FetchRequest) -> int:
    return min(MAX_RESPONSE_BYTES, max(1, request.max_bytes))


def _with_watermark(answer: PartitionResponse, high_watermark: Offset) -> PartitionResponse:
    """Return the answer with the watermark that this very fetch may have moved."""
    if answer.high_watermark == high_watermark:
        return answer
    return PartitionResponse(
        answer.partition, answer.error, high_watermark, answer.log_start_offset, answer.records
    )
