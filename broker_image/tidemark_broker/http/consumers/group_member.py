"""Run a member of a consumer group in this broker, for a client that has only HTTP.

It uses the group protocol with the coordinator, wherever that is, like any Kafka client; as the
group's leader it assigns ranges. It joins when it has a subscription, keeps its session by
heartbeats of its own, and rejoins whenever the group rebalances. Before it gives partitions up it
calls `before_revoke`, for offsets to be committed while it still may.

`CoordinatorLookup` finds the coordinator in this broker's metadata. NOT_COORDINATOR and similar
errors only mean that a request was too early or too late: the next one looks it up again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.coordinator.core.consumer_protocol import (
    RANGE,
    MalformedAssignment,
    TopicPartition,
    assign_ranges,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidemark_broker.coordinator.group_coordinator_service import GroupCoordinatorService
from tidemark_broker.http.consumers.peer_connections import (
    BrokerConnection,
    BrokerConnections,
    BrokerUnavailable,
)
from tidemark_broker.kafka_wire.messages.group_membership import (
    HEARTBEAT_API,
    JOIN_GROUP_API,
    LEAVE_GROUP_API,
    SYNC_GROUP_API,
)
from tidemark_broker.kafka_wire.messages.schema import Api, Values
from tidemark_broker.metadata.metadata_cache import MetadataCache


class GroupRejected(Exception):
    """An error: the coordinator rejected the request."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(f"the group coordinator returned {error.name}")
        self.error = error


class CoordinatorLookup:
    def __init__(
        self, groups: GroupCoordinatorService, peers: BrokerConnections, group_id: str
    ) -> None:
        self.group_id = group_id
        self._groups = groups
        self._peers = peers

    async def ask(self, api: Api, values: Values, timeout_ms: int) -> Values:
        """Send a request to the coordinator; errors in its response are for the caller.

        Raises BrokerUnavailable.
        """
        link = await self._link()
        return await link.ask(api, {"group_id": self.group_id, **values}, timeout_ms)

    async def _link(self) -> BrokerConnection:
        await self._groups.ensure_topic()
        broker = self._groups.coordinator_of(self.group_id)
        if broker is None:
            raise BrokerUnavailable(self._groups.absence(self.group_id))
        return await self._peers.to(broker.broker_id, broker.endpoints)


SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 60_000
HEARTBEAT_SECONDS = 3.0
FIRST_RETRY_SECONDS = 0.05
MAX_RETRY_SECONDS = 1.0
RESPONSE_TIMEOUT_MS = 5_000
GRACE_MS = 5_000  # the coordinator answers within the rebalance timeout

_LOST_ID = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.ILLEGAL_GENERATION,
    }
)

_log = logging.getLogger(__name__)


class NotInGroup(Exception):
    """An error: the member cannot join its group now, or ever if `is_over`."""

    def __init__(self, error: ErrorCode, reason: str, *, is_over: bool = False) -> None:
        super().__init__(reason)
        self.error = error
        self.is_over = is_over


@dataclass(frozen=True, slots=True)
class Generation:
    """The partitions that the member has, and in which generation; none: no partitions."""

    generation_id: int = -1
    member_id: str = ""
    partitions: tuple[TopicPartition, ...] = ()
    is_manual: bool = False  # assigned by its client, not by a group

    @property
    def has_joined(self) -> bool:
        return self.is_manual or self.generation_id >= 0


NO_GENERATION = Generation()


class GroupMemberClient:
    def __init__(
        self,
        coordinator_lookup: CoordinatorLookup,
        metadata: MetadataCache,
        *,
        before_revoke: Callable[[Generation], Awaitable[None]],
    ) -> None:
        self.topics: tuple[str, ...] = ()
        self.generation = NO_GENERATION
        self.problem: NotInGroup | None = None  # why it is in no generation
        self._coordinator_lookup = coordinator_lookup
        self._metadata = metadata
        self._before_revoke = before_revoke
        self._member_id = ""
        self._changed = asyncio.Event()  # of the generation
        self._is_wanted_anew = asyncio.Event()  # other topics, or more partitions of them

    # ---- what its owner wants

    def subscribe(self, topics: tuple[str, ...]) -> None:
        self.topics = topics
        if not topics and self.generation.is_manual:
            self._lose_generation()
        self._is_wanted_anew.set()

    def assign(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Assign these partitions without a subscription, whatever others read."""
        assert not self.topics
        self.generation = Generation(partitions=partitions, is_manual=True)
        self.problem = None
        self._changed.set()

    def fail(self, reason: str) -> None:
        """Record that `run` ended by an error, not by cancellation."""
        self._lose_joined()
        self.problem = NotInGroup(ErrorCode.UNKNOWN_SERVER_ERROR, reason, is_over=True)

    async def wait_until_joined(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                while not self.generation.has_joined:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def run(self) -> None:
        """Stay in the group while there is a subscription, until cancelled."""
        retry_seconds = FIRST_RETRY_SECONDS
        while True:
            if not self.topics:
                await self._is_wanted_anew.wait()
                self._is_wanted_anew.clear()
                continue
            try:
                await self._take_part()
                retry_seconds = FIRST_RETRY_SECONDS
            except (GroupRejected, BrokerUnavailable, MalformedAssignment) as error:
                self._record(error)
                await asyncio.sleep(retry_seconds)
                retry_seconds = min(2 * retry_seconds, MAX_RETRY_SECONDS)

    async def leave(self) -> None:
        """Leave the group: others get its partitions at once, or at the end of its session."""
        self._lose_generation()
        await self._leave_group()

    # ---- inside

    async def _leave_group(self) -> None:
        if not self._member_id:
            return
        values = {"members": ({"member_id": self._member_id, "group_instance_id": None},)}
        self._member_id = ""
        try:
            await self._coordinator_lookup.ask(LEAVE_GROUP_API, values, RESPONSE_TIMEOUT_MS)
        except (GroupRejected, BrokerUnavailable) as error:
            _log.info(
                "a consumer could not tell its coordinator that it leaves",
                extra={"reason": str(error)},
            )

    def _record(self, error: Exception) -> None:
        self._lose_joined()
        problem: NotInGroup | None = NotInGroup(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
        if isinstance(error, GroupRejected):
            problem = _problem_of(error)
            if error.error in _LOST_ID:
                self._member_id = ""
        self.problem = problem if self.topics else None

    def _lose_joined(self) -> None:
        """Drop what the group assigned; what the client assigned in the meantime stays."""
        if not self.generation.is_manual:
            self._lose_generation()

    def _lose_generation(self) -> None:
        self.generation = NO_GENERATION
        self._changed.set()

    async def _take_part(self) -> None:
        """Take part in one generation from its beginning to its end.

        Raises GroupRejected, BrokerUnavailable, MalformedAssignment.
        """
        self._is_wanted_anew.clear()
        topics = self.topics
        counts = self._partition_counts(topics)
        generation = await self._join(topics)
        if not self.topics:  # it was unsubscribed, and may have assignments by now
            await self._leave_group()
            return
        self.generation = generation
        self.problem = None
        self._changed.set()
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._is_wanted_anew.wait()
            except TimeoutError:
                is_wanted_anew = False
            else:
                is_wanted_anew = True
            if not is_wanted_anew and counts == self._partition_counts(topics):
                error = await self._heartbeat(generation)
                if error is ErrorCode.NONE:
                    continue
                if error is not ErrorCode.REBALANCE_IN_PROGRESS:
                    raise GroupRejected(error)
            await self._before_revoke(generation)
            self._lose_joined()
            if not self.topics:
                await self._leave_group()
            return

    def _partition_counts(self, topics: tuple[str, ...]) -> dict[str, int]:
        known = self._metadata.topics
        return {topic: known[topic].partition_count for topic in topics if topic in known}

    async def _heartbeat(self, generation: Generation) -> ErrorCode:
        values = {"generation_id": generation.generation_id, "member_id": generation.member_id}
        response = await self._coordinator_lookup.ask(HEARTBEAT_API, values, RESPONSE_TIMEOUT_MS)
        return ErrorCode(response["error"])

    async def _join(self, topics: tuple[str, ...]) -> Generation:
        joined = await self._joined(topics)
        member_id = self._member_id = joined["member_id"]
        generation_id: int = joined["generation_id"]
        assignments: tuple[Values, ...] = ()
        if joined["leader_id"] == member_id and not joined["skip_assignment"]:
            assignments = self._assign(joined["members"])
        synced = await self._coordinator_lookup.ask(
            SYNC_GROUP_API,
            {
                "generation_id": generation_id,
                "member_id": member_id,
                "protocol_type": joined["protocol_type"],
                "protocol": joined["protocol"],
                "assignments": assignments,
            },
            REBALANCE_TIMEOUT_MS + GRACE_MS,
        )
        _check(synced)
        partitions = decode_assignment(bytes(synced["assignment"]))
        return Generation(generation_id, member_id, partitions)

    async def _joined(self, topics: tuple[str, ...]) -> Values:
        """Join, twice at most: the first response may assign the member id (KIP-394)."""
        for _ in range(2):
            values = {
                "session_timeout_ms": SESSION_TIMEOUT_MS,
                "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
                "member_id": self._member_id,
                "protocol_type": "consumer",
                "protocols": ({"name": RANGE, "metadata": encode_subscription(topics)},),
            }
            joined = await self._coordinator_lookup.ask(
                JOIN_GROUP_API, values, REBALANCE_TIMEOUT_MS + GRACE_MS
            )
            if joined["error"] != ErrorCode.MEMBER_ID_REQUIRED:
                break
            self._member_id = joined["member_id"]
        _check(joined)
        return joined

    def _assign(self, members: tuple[Values, ...]) -> tuple[Values, ...]:
        subscriptions = {
            member["member_id"]: decode_subscription(bytes(member["metadata"]))
            for member in members
        }
        wanted = sorted({topic for topics in subscriptions.values() for topic in topics})
        assigned = assign_ranges(subscriptions, self._partition_counts(tuple(wanted)))
        return tuple(
            {"member_id": member_id, "assignment": encode_assignment(partitions)}
            for member_id, partitions in assigned.items()
        )


def _problem_of(rejection: GroupRejected) -> NotInGroup | None:
    """Return the lasting problem of a rejection, or None to rejoin."""
    error = rejection.error
    if error in _LOST_ID or error is ErrorCode.REBALANCE_IN_PROGRESS:
        return None
    if error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
        return NotInGroup(
            error, f"the other members of the group do not support the assignor {RANGE!r}"
        )
    if error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        return NotInGroup(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(rejection))
    return NotInGroup(error, str(rejection))


def _check(answer: Values) -> None:
    if answer["error"] != ErrorCode.NONE:
        raise GroupRejected(ErrorCode(answer["error"]))
