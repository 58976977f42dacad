"""Run one consumer of a group inside this broker, as a Kafka client library does in its process.

One poll at a time; commits and seeks may come in between. Records are fetched from the leaders of
the partitions that its generation assigned, from this broker as from others: first from all
concurrently, then a little from the first one that has records, so that waiting fetches hold
little. What was handed out in one generation cannot be committed in another, and a partition that
is no longer assigned is not committed: others may have read on.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_EPOCH, BrokerId, TopicId

from tidemark_broker.coordinator.core.consumer_protocol import TopicPartition
from tidemark_broker.coordinator.group_coordinator_service import GroupCoordinatorService
from tidemark_broker.http.consumers.group_member import (
    CoordinatorLookup,
    Generation,
    GroupMemberClient,
    GroupRejected,
)
from tidemark_broker.http.consumers.peer_connections import (
    BearerToken,
    BrokerConnections,
    BrokerUnavailable,
)
from tidemark_broker.http.consumers.positions import RESETS, Commit, NoCommittedOffset, Positions
from tidemark_broker.kafka_wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionResponse,
)
from tidemark_broker.metadata.metadata_cache import MetadataCache
from tidemark_broker.security.peer_addresses import PLAIN, PeerAddresses

AUTO_COMMIT_SECONDS = 5.0  # auto.commit.interval.ms
FETCH_WAIT_MS = 500  # then it is looked again who leads, and what is ours
FETCH_GRACE_MS = 2_000
PAUSE_SECONDS = 0.05
NEWS_BYTES = 64 * 1024  # of a fetch that waits, from all leaders: the next poll reads the rest

# They pass by themselves, once this broker or the leader has heard of a change.
_PASSING = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The settings of a consumer: auto.offset.reset, enable.auto.commit, fetch.min.bytes."""

    group_id: str
    name: str
    reset: str = "latest"
    commits_itself: bool = True
    min_bytes: int = 1
    token: BearerToken = field(default_factory=BearerToken)


@dataclass(frozen=True, slots=True)
class Fetched:
    """Complete record batches; the first may begin below `offset`."""

    topic: str
    partition: int
    offset: int
    data: bytes
    topic_id: TopicId


class Unreadable(Exception):
    """An error: a partition cannot be read further, and that may last."""

    def __init__(self, partition: TopicPartition, offset: int, error: ErrorCode) -> None:
        super().__init__(f"partition {partition[0]}-{partition[1]}, offset {offset}")
        self.error = error


ReserveBytes = Callable[[int], AbstractContextManager[None]]


class GroupConsumer:
    def __init__(
        self,
        settings: ConsumerSettings,
        groups: GroupCoordinatorService,
        metadata: MetadataCache,
        addresses: PeerAddresses = PLAIN,
    ) -> None:
        self.settings = settings
        self._metadata = metadata
        # Joining may take a minute: nothing else waits behind it on one connection.
        self._coordinating = BrokerConnections(
            metadata, settings.name, addresses, token=settings.token
        )
        self._reading = BrokerConnections(metadata, settings.name, addresses, token=settings.token)
        self.membership = GroupMemberClient(
            CoordinatorLookup(groups, self._coordinating, settings.group_id),
            metadata,
            before_revoke=self._commit_confirmed,
        )
        self._positions = Positions(
            metadata,
            self._reading,
            CoordinatorLookup(groups, self._reading, settings.group_id),
            settings.reset,
        )
        self._unreadable: Unreadable | None = None  # found in the last fetch
        self._next_commit_s = asyncio.get_running_loop().time() + AUTO_COMMIT_SECONDS

    @property
    def generation(self) -> Generation:
        return self.membership.generation

    async def close(self, *, is_requested: bool = False, commits: bool = True) -> None:
        """Leave the group, after a commit if the consumer commits automatically.

        If its client asked for the end, all that was handed out is committed, else what the client
        has finished.
        """
        if commits and is_requested:
            self._positions.confirm()
        if commits:
            await self._commit_confirmed(self.generation)
        await self.membership.leave()
        self._coordinating.close()
        self._reading.close()

    # ---- reading

    async def poll(
        self, wait_ms: int, max_bytes: int, reserved: ReserveBytes
    ) -> tuple[Fetched, ...]:
        """Return the records available within `wait_ms`; report what of it is sent by `hand_out`.

        Raises NoCommittedOffset; Unreadable, if there is nothing to read but an error that may
        last; NotInGroup if it could not join its group for a reason that may last; what `reserved`
        raises if there is no memory for so many bytes now.
        """
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + wait_ms / 1000
        self._positions.confirm()
        if self.settings.commits_itself and loop.time() >= self._next_commit_s:
            await self._commit_confirmed(self.generation)
        waits = False
        while await self.membership.wait_until_joined(max(0.0, ends_s - loop.time())):
            generation = self.generation
            self._positions.enter(generation)
            left_ms = max(0, round((ends_s - loop.time()) * 1000))
            try:
                await self._positions.look_up(generation.partitions)
                if waits:
                    found = await self._fetch(
                        min(left_ms, FETCH_WAIT_MS), min(max_bytes, NEWS_BYTES)
                    )
                else:
                    with reserved(max_bytes):
                        found = await self._fetch(0, max_bytes)
            except (BrokerUnavailable, GroupRejected) as error:
                _log.info("a consumer could not read", extra={"reason": str(error)})
                found = ()
                await asyncio.sleep(min(PAUSE_SECONDS, left_ms / 1000))
            if self.generation == generation and found:
                return found
            if loop.time() >= ends_s:
                break
            waits = True
            if not generation.partitions:  # more members than partitions
                await asyncio.sleep(min(PAUSE_SECONDS, left_ms / 1000))
        if self.membership.problem is not None:
            raise self.membership.problem
        if self._unreadable is not None and self.generation.has_joined:
            raise self._unreadable
        return ()

    def hand_out(self, fetched: Fetched, next_offset: int) -> bool:
        """Record that records below `next_offset` are sent to the client.

        Returns False if they must not be: the client has sought another offset since, or the
        consumer is in another generation.
        """
        place = (fetched.topic, fetched.partition)
        return self._positions.hand_out(place, fetched.offset, next_offset)

    def put_last(self, fetched: Fetched, offset: int) -> None:
        """Fill answers from other partitions first, until this one goes on from `offset`.

        Its client cannot read the record there."""
        place = (fetched.topic, fetched.partition)
        self._positions.put_last[place] = offset

    async def _fetch(self, wait_ms: int, max_bytes: int) -> tuple[Fetched, ...]:
        self._unreadable = None
        by_leader: dict[BrokerId, dict[TopicPartition, int]] = {}
        for place in self._positions.in_reading_order(self.generation.partitions):
            state = self._metadata.partition(*place)
            offset = self._positions.next_offsets.get(place)
            if state is not None and state.has_leader and offset is not None:
                by_leader.setdefault(state.leader, {})[place] = offset
        share_bytes = max(1, max_bytes // max(1, len(by_leader)))
        tasks = [
            asyncio.create_task(self._fetch_from(leader, offsets, wait_ms, share_bytes))
            for leader, offsets in by_leader.items()
        ]
        if not tasks:
            await asyncio.sleep(min(PAUSE_SECONDS, wait_ms / 1000))
            return ()
        found: list[Fetched] = []
        try:
            waiting = set(tasks)
            while waiting and not found:
                how = asyncio.FIRST_COMPLETED if wait_ms else asyncio.ALL_COMPLETED
                done, waiting = await asyncio.wait(waiting, return_when=how)
                for task in [task for task in tasks if task in done]:
                    found += task.result()
        finally:
            for task in tasks:
                task.cancel()
        return tuple(found)

    async def _fetch_from(
        self, leader: BrokerId, offsets: dict[TopicPartition, int], wait_ms: int, max_bytes: int
    ) -> list[Fetched]:
        """Fetch from a leader; return nothing if it cannot be reached."""
        requested: list[FetchTopic] = []  # a topic twice, where some of its partitions come last
        names: dict[TopicId, str] = {}
        for topic, places in groupby(offsets, key=itemgetter(0)):
            topic_id = self._metadata.topics[topic].topic_id
            names[topic_id] = topic
            entries = (
                FetchPartition(place[1], NO_EPOCH, offsets[place], NO_EPOCH, -1, max_bytes)
                for place in places
            )
            requested.append(FetchTopic(topic_id, tuple(entries)))
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=self.settings.min_bytes,
            max_bytes=max_bytes,
            topics=tuple(requested),
        )
        try:
            link = await self._reading.broker(leader)
            response = await link.fetch(request, wait_ms + FETCH_GRACE_MS)
        except BrokerUnavailable:
            await asyncio.sleep(min(PAUSE_SECONDS, wait_ms / 1000))
            return []
        found = []
        has_errors = response.error is not ErrorCode.NONE
        for responded in response.topics:
            topic = names.get(responded.topic_id, "")
            for answer in responded.partitions:
                place = (topic, answer.partition)
                if place in offsets:
                    found += await self._taken(place, offsets[place], answer, responded.topic_id)
                    has_errors = has_errors or answer.error is not ErrorCode.NONE
        if has_errors and not found:  # it ended the leader's wait at once, and would again
            await asyncio.sleep(min(PAUSE_SECONDS, wait_ms / 1000))
        return found

    async def _taken(
        self, place: TopicPartition, offset: int, answer: PartitionResponse, topic_id: TopicId
    ) -> list[Fetched]:
        if answer.error is ErrorCode.NONE and answer.records:
            return [Fetched(*place, offset, bytes(answer.records), topic_id)]
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            if self.settings.reset not in RESETS:
                raise NoCommittedOffset(place)
            end = await self._positions.end_of(place, RESETS[self.settings.reset])
            if self._positions.next_offsets.get(place) == offset:
                self._positions.seek(place, end)
        elif answer.error not in _PASSING:
            self._unreadable = Unreadable(place, offset, answer.error)
        return []

    # ---- offsets

    async def seek(self, places: dict[TopicPartition, int]) -> None:
        """Seek to these offsets, EARLIEST or LATEST.

        Raises BrokerUnavailable.
        """
        self._positions.enter(self.generation)
        for place, offset in places.items():
            found = offset if offset >= 0 else await self._positions.end_of(place, offset)
            self._positions.seek(place, found)

    async def committed(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, Commit]:
        """Return the group's committed offsets, where it has some.

        Raises BrokerUnavailable, GroupRejected.
        """
        return await self._positions.committed(places)

    async def commit(
        self, commits: dict[TopicPartition, Commit] | None = None
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit offsets, or all that was handed out; return the error of each.

        REBALANCE_IN_PROGRESS for partitions that are not assigned. Raises BrokerUnavailable: they
        may be committed or not.
        """
        self._positions.enter(self.generation)
        return await self._commit(self.generation, commits)

    async def _commit(
        self, generation: Generation, commits: dict[TopicPartition, Commit] | None = None
    ) -> dict[TopicPartition, ErrorCode]:
        if commits is None:
            handed_out = self._positions.handed_out
            commits = {place: Commit(offset) for place, offset in handed_out.items()}
        ours = {
            place: commit for place, commit in commits.items() if place in generation.partitions
        }
        errors = {place: ErrorCode.REBALANCE_IN_PROGRESS for place in commits if place not in ours}
        if ours:
            errors |= await self._positions.commit(generation, ours)
        return errors

    async def _commit_confirmed(self, generation: Generation) -> None:
        """Commit what the client has finished of this generation, if that is still known."""
        self._next_commit_s = asyncio.get_running_loop().time() + AUTO_COMMIT_SECONDS
        is_known = generation.generation_id == self._positions.generation_id
        if not self.settings.commits_itself or not generation.has_joined or not is_known:
            return
        try:
            confirmed = self._positions.confirmed.items()
            await self._commit(generation, {place: Commit(offset) for place, offset in confirmed})
        except BrokerUnavailable as error:
            _log.info("offsets of a consumer were not committed", extra={"reason": str(error)})
