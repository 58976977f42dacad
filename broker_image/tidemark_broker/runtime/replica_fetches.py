"""Followers' fetches as the leaders here answer them: all partitions of one request together.

A fetch with nothing to tell is parked and woken once per loop tick by appends, and, coalesced, by
the high watermark, so that followers learn it without being asked all the time (Kafka lets them
wait 500 ms, KAFKA-9952). Only partitions with news are in an answer: records, an error, a
divergence, or a watermark that this follower has not been told.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId

from tidemark_broker.replication.effects import DivergingEpoch, RejectFetch, ReplicaFetch
from tidemark_broker.runtime.hosted_replica import HostedReplica, is_storage_failure
from tidemark_broker.runtime.partitions import Partitions
from tidemark_broker.runtime.scheduling import Clock, Scheduler, Timer, monotonic_ms
from tidemark_broker.storage.errors import CorruptBatch, StorageError
from tidemark_broker.wire.fetch import FetchPartition, FetchRequest, PartitionAnswer, TopicAnswer

MAX_WAIT_MS = 500
WATERMARK_DELAY_SECONDS = 0.01  # rises within this are told together
MAX_RESPONSE_BYTES = 16 * 1024 * 1024  # whatever the follower asks for

_log = logging.getLogger(__name__)

Respond = Callable[[tuple[TopicAnswer, ...]], None]
Key = tuple[TopicId, int]


class FollowerLink:
    """One follower's connection: the positions it was told, and its parked fetch."""

    __slots__ = ("parked", "told_positions")

    def __init__(self) -> None:
        self.told_positions: dict[Key, tuple[Offset, Offset]] = {}  # watermark, log start
        self.parked: ParkedFetch | None = None


@dataclass(slots=True, eq=False)
class ParkedFetch:
    link: FollowerLink
    request: FetchRequest
    asked: dict[Key, FetchPartition]
    respond: Respond
    timer: Timer
    watermark_timer: Timer | None = None


class ReplicaFetches:
    def __init__(
        self, partitions: Partitions, *, scheduler: Scheduler, clock: Clock = monotonic_ms
    ) -> None:
        self._partitions = partitions
        self._scheduler = scheduler
        self._clock = clock
        # Inner dicts keep the order of arrival.
        self._waiting_for: dict[Key, dict[ParkedFetch, None]] = {}
        self._dirty: dict[ParkedFetch, dict[Key, None]] = {}
        self._is_flush_scheduled = False

    def handle(self, request: FetchRequest, link: FollowerLink, respond: Respond) -> None:
        """`respond` is called once, maybe before the return; not after `cancel`."""
        self.cancel(link)
        now_ms = self._clock()
        budget = min(MAX_RESPONSE_BYTES, max(1, request.max_bytes))
        asked: dict[Key, FetchPartition] = {}
        found: dict[Key, PartitionAnswer] = {}
        for topic in request.topics:
            for partition in topic.partitions:
                key = (topic.topic_id, partition.partition)
                asked[key] = partition
                answer = self._first_answer(key, partition, request, budget, now_ms)
                if answer is not None:
                    found[key] = answer
                    budget -= len(answer.records)
        if found or request.max_wait_ms <= 0:
            # Watermarks of all others travel along: no second answer for them alone.
            for key in asked:
                if key not in found:
                    self._add_watermark(key, link, found)
            self._respond(link, found, respond)
            return
        self._park(request, link, asked, respond)

    def cancel(self, link: FollowerLink) -> None:
        """The connection is gone, or sent another fetch."""
        parked = link.parked
        if parked is None:
            return
        link.parked = None
        parked.timer.cancel()
        if parked.watermark_timer is not None:
            parked.watermark_timer.cancel()
        self._dirty.pop(parked, None)
        for key in parked.asked:
            waiting = self._waiting_for.get(key)
            if waiting is not None:
                waiting.pop(parked, None)
                if not waiting:
                    del self._waiting_for[key]

    def end_now(self, link: FollowerLink) -> None:
        """The follower already sent its next fetch: it has more to ask, so it shall not wait."""
        if link.parked is not None:
            self._end(link.parked)

    # ---- what may give a parked fetch news

    def on_appended(self, replica: HostedReplica) -> None:
        """Also when a role changes: the fetch is then answered with the error."""
        key = (replica.topic_id, replica.partition)
        waiting = self._waiting_for.get(key)
        if not waiting:
            return
        for parked in waiting:
            self._dirty.setdefault(parked, {})[key] = None
        if not self._is_flush_scheduled:
            self._is_flush_scheduled = True
            self._scheduler.call_soon(self._flush)

    def on_watermark(self, replica: HostedReplica) -> None:
        for parked in self._waiting_for.get((replica.topic_id, replica.partition), ()):
            self._arm_watermark_timer(parked)

    # ---- inside

    def _park(
        self,
        request: FetchRequest,
        link: FollowerLink,
        asked: dict[Key, FetchPartition],
        respond: Respond,
    ) -> None:
        wait_seconds = min(MAX_WAIT_MS, request.max_wait_ms) / 1000
        parked = ParkedFetch(
            link,
            request,
            asked,
            respond,
            self._scheduler.call_later(wait_seconds, lambda: self._end(parked)),
        )
        link.parked = parked
        has_watermark_news = False
        for key in asked:
            self._waiting_for.setdefault(key, {})[parked] = None
            has_watermark_news = has_watermark_news or self._news(key, link) is not None
        if has_watermark_news:
            self._arm_watermark_timer(parked)

    def _arm_watermark_timer(self, parked: ParkedFetch) -> None:
        if parked.watermark_timer is None:
            parked.watermark_timer = self._scheduler.call_later(
                WATERMARK_DELAY_SECONDS, lambda: self._end(parked)
            )

    def _flush(self) -> None:
        self._is_flush_scheduled = False
        dirty, self._dirty = self._dirty, {}
        for parked, keys in dirty.items():
            if parked.link.parked is not parked:
                continue
            found = self._answers(parked, keys)
            if found:
                self._finish(parked, found)

    def _end(self, parked: ParkedFetch) -> None:
        """Its wait is over, or a watermark rose: answer with whatever there is."""
        if parked.link.parked is parked:
            self._finish(parked, {})

    def _finish(self, parked: ParkedFetch, found: dict[Key, PartitionAnswer]) -> None:
        link = parked.link
        self.cancel(link)
        for key in parked.asked:
            if key not in found:
                self._add_watermark(key, link, found)
        self._respond(link, found, parked.respond)

    def _answers(self, parked: ParkedFetch, keys: Iterable[Key]) -> dict[Key, PartitionAnswer]:
        """Read again; the follower's progress was noted when its fetch came."""
        budget = min(MAX_RESPONSE_BYTES, max(1, parked.request.max_bytes))
        found: dict[Key, PartitionAnswer] = {}
        for key in keys:
            answer, _ = self._look(key, parked.asked[key], parked.request, budget)
            if answer is not None:
                found[key] = answer
                budget -= len(answer.records)
        return found

    def _first_answer(
        self,
        key: Key,
        asked: FetchPartition,
        request: FetchRequest,
        budget: int,
        now_ms: int,
    ) -> PartitionAnswer | None:
        replica = self._partitions.hosted(*key)
        # Before the read: later appends must not make the follower look late (reference 1.1).
        leader_end = Offset(-1) if replica is None else replica.log.log_end_offset
        answer, accepted = self._look(key, asked, request, budget)
        if accepted is None or replica is None:
            return answer
        replica.on_replica_fetch(accepted, leader_end, now_ms)
        if answer is None or not answer.records:
            return answer
        return _with_watermark(answer, replica.high_watermark)

    def _look(
        self, key: Key, asked: FetchPartition, request: FetchRequest, budget: int
    ) -> tuple[PartitionAnswer | None, ReplicaFetch | None]:
        """(the answer if there is news, the fetch if it was accepted and its read succeeded)."""
        replica = self._partitions.hosted(*key)
        if replica is None or replica.leader is None:
            return self._not_leading(key, asked, replica), None
        log = replica.log
        fetch = ReplicaFetch(
            BrokerId(request.replica_id),
            BrokerEpoch(request.replica_epoch),
            LeaderEpoch(asked.current_leader_epoch),
            Offset(asked.fetch_offset),
            LeaderEpoch(asked.last_fetched_epoch),
        )
        verdict = replica.leader.check_fetch(fetch, log)
        if isinstance(verdict, RejectFetch):
            return PartitionAnswer(
                asked.partition, verdict.error, log_start_offset=log.log_start_offset
            ), None
        if isinstance(verdict, DivergingEpoch):
            return PartitionAnswer(
                asked.partition,
                ErrorCode.NONE,
                high_watermark=replica.high_watermark,
                log_start_offset=log.log_start_offset,
                diverging_epoch=(verdict.epoch, verdict.end_offset),
            ), None
        if asked.fetch_offset == log.log_end_offset or budget <= 0:
            return None, fetch
        return self._read(replica, asked, fetch, budget)

    def _read(
        self, replica: HostedReplica, asked: FetchPartition, fetch: ReplicaFetch, budget: int
    ) -> tuple[PartitionAnswer | None, ReplicaFetch | None]:
        log = replica.log
        try:
            records = log.read(
                fetch.fetch_offset,
                max_bytes=min(budget, asked.max_bytes),
                end_offset=log.log_end_offset,
            )
        except CorruptBatch as error:
            self._partitions.damaged.note(replica, fetch.fetch_offset, error, "replica")
            return PartitionAnswer(asked.partition, ErrorCode.CORRUPT_MESSAGE), None
        except (StorageError, OSError) as error:
            if is_storage_failure(error):
                self._partitions.fail_storage(error)
            _log.error("a replica's fetch could not be read", extra={"error": str(error)})
            return PartitionAnswer(asked.partition, ErrorCode.KAFKA_STORAGE_ERROR), None
        answer = PartitionAnswer(
            asked.partition,
            ErrorCode.NONE,
            replica.high_watermark,
            log.log_start_offset,
            records,
        )
        return answer, fetch

    def _not_leading(
        self, key: Key, asked: FetchPartition, replica: HostedReplica | None
    ) -> PartitionAnswer:
        """Kafka's order: is it known, then the leader epoch, then who leads."""
        metadata = self._partitions.metadata
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if replica is None:
            known = metadata.partitions.get(key)
            if key[0] not in metadata.topics_by_id:
                error = ErrorCode.UNKNOWN_TOPIC_ID
            elif known is None:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif 0 <= asked.current_leader_epoch < replica.leader_epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif asked.current_leader_epoch > replica.leader_epoch:
            error = ErrorCode.UNKNOWN_LEADER_EPOCH
        return PartitionAnswer(asked.partition, error)

    def _news(self, key: Key, link: FollowerLink) -> HostedReplica | None:
        replica = self._partitions.hosted(*key)
        if replica is None or replica.leader is None:
            return None
        watermark, log_start = link.told_positions.get(key, (-1, -1))
        is_news = replica.high_watermark > watermark or replica.log.log_start_offset > log_start
        return replica if is_news else None

    def _add_watermark(
        self, key: Key, link: FollowerLink, found: dict[Key, PartitionAnswer]
    ) -> None:
        replica = self._news(key, link)
        if replica is not None:
            found[key] = PartitionAnswer(
                key[1], ErrorCode.NONE, replica.high_watermark, replica.log.log_start_offset
            )

    def _respond(
        self, link: FollowerLink, found: dict[Key, PartitionAnswer], respond: Respond
    ) -> None:
        topics: dict[TopicId, list[PartitionAnswer]] = {}
        for key, answer in found.items():
            topics.setdefault(key[0], []).append(answer)
            if answer.error is ErrorCode.NONE and answer.diverging_epoch is None:
                link.told_positions[key] = (
                    Offset(answer.high_watermark),
                    Offset(answer.log_start_offset),
                )
            else:
                link.told_positions.pop(key, None)
        respond(
            tuple(TopicAnswer(topic_id, tuple(answers)) for topic_id, answers in topics.items())
        )


def _with_watermark(answer: PartitionAnswer, high_watermark: Offset) -> PartitionAnswer:
    """This very fetch may have moved it: the follower learns it now."""
    if answer.high_watermark == high_watermark:
        return answer
    return PartitionAnswer(
        answer.partition, answer.error, high_watermark, answer.log_start_offset, answer.records
    )
