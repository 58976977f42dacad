"""Find the coordinator of a group, and run those whose `__consumer_offsets` partition is led here.

The service follows the roles of that topic's replicas on this broker, keeps one
`ShardRunner` for each leadership, and names the broker that coordinates a group that is
not its own.

`OffsetsTopicCreation` creates `__consumer_offsets`, a Topic object, by the controller when a group
is first looked for. It has the pool's default number of replicas. Its data is retained when the
object is deleted and adopted when it is created again, because committed offsets must not go with
an object. Its number of partitions never changes: it decides where each group is.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable

from tidemark_protocol.controller_messages import BrokerState
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import TopicId
from tidemark_protocol.partition_state import TopicState
from tidemark_protocol.topic_messages import NewTopic
from tidemark_protocol.topic_names import OFFSETS_TOPIC

from tidemark_broker.clock import Clock, Scheduler, Timer, monotonic_ms
from tidemark_broker.coordinator.core.group_config import GroupSettings
from tidemark_broker.coordinator.core.group_coordinator_shard import CoordinatorState
from tidemark_broker.coordinator.core.offsets_records import partition_of_group
from tidemark_broker.coordinator.core.requests import (
    DescribedGroup,
    FetchedOffset,
    GroupCounters,
    GroupGauges,
    GroupOffset,
    GroupRequest,
    GroupResponse,
    GroupsReport,
    ListedGroup,
)
from tidemark_broker.coordinator.core.validation import rejection
from tidemark_broker.coordinator.shard_runner import GroupClock, ShardRunner
from tidemark_broker.metadata.topic_admin_client import Deadline, TopicAdminClient
from tidemark_broker.replication.partition import Partition
from tidemark_broker.replication.partition_observer import PartitionObserver
from tidemark_broker.replication.replica_manager import ReplicaManager

CREATION_LIMIT_MS = 5_000  # then the client asks again

_log = logging.getLogger(__name__)


class OffsetsTopicCreation:
    def __init__(self, changes: TopicAdminClient, partition_count: int) -> None:
        self.problem = ""  # of the last try
        self._changes = changes
        self._topic = NewTopic(
            OFFSETS_TOPIC,
            partition_count=partition_count,
            config={"cleanup.policy": "compact"},
            deletion_policy="Retain",
            may_adopt=True,
        )
        self._creating = asyncio.Lock()

    async def ensure(self) -> None:
        """Wait until all partitions of the topic are led.

        After the limit it returns with `problem` set.
        """
        deadline = Deadline(CREATION_LIMIT_MS)
        try:
            async with asyncio.timeout(deadline.left_s()), self._creating:
                if not self._changes.is_served(OFFSETS_TOPIC):
                    await self._create(deadline)
        except TimeoutError:
            self.problem = self.problem or "timed out"

    async def _create(self, deadline: Deadline) -> None:
        response = await self._changes.create((self._topic,), deadline)
        error, message = response.error, response.message
        for result in response.results:
            error, message = result.error, result.message
        if error is ErrorCode.TOPIC_ALREADY_EXISTS:  # another broker was asked, too
            error = ErrorCode.NONE
            await self._changes.wait_until(lambda: self._changes.is_served(OFFSETS_TOPIC), deadline)
        self.problem = "" if error is ErrorCode.NONE else f"{error.name}: {message}"
        if self.problem:
            _log.warning("offsets topic not created", extra={"problem": self.problem})


class GroupCoordinatorService(PartitionObserver):
    """The group coordinators of a broker.

    One event loop owns it; each method but `ask` is synchronous.
    """

    def __init__(
        self,
        partitions: ReplicaManager,
        topic_admin: TopicAdminClient,
        settings: GroupSettings,
        *,
        scheduler: Scheduler,
        wall_clock_s: Callable[[], float],
        clock: Clock = monotonic_ms,
    ) -> None:
        self._partitions = partitions
        self._settings = settings
        self.counts = GroupCounters()
        self._scheduler = scheduler
        self._clock = GroupClock(clock, wall_clock_s)
        self._coordinated: dict[tuple[TopicId, int], ShardRunner] = {}
        self._request_ids = itertools.count()
        self._expiry_timer: Timer | None = None
        self._creation = OffsetsTopicCreation(topic_admin, settings.offsets_partitions)

    # ---- leadership

    def on_role_change(self, replica: Partition) -> None:
        if replica.topic != OFFSETS_TOPIC:
            return
        key = (replica.topic_id, replica.partition)
        previous = self._coordinated.pop(key, None)
        if previous is not None:
            previous.resign()
        if (
            replica.leader is None
            # guard: retained-offsets-have-no-coordinator (I20)
            or replica.topic_id in self._partitions.metadata.retained
        ):
            return  # retained data is led for a move alone, and nothing in it expires
        leading = ShardRunner(
            replica,
            self._partitions,
            self._settings,
            self.counts,
            scheduler=self._scheduler,
            clock=self._clock,
        )
        self._coordinated[key] = leading
        leading.start()
        if self._expiry_timer is None:
            self._set_expiry_timer()

    def on_topics_deleted(self, topics: tuple[str, ...]) -> None:
        """Drop the offsets of deleted topics.

        They do not apply to later topics of the same names.
        """
        for coordinated in tuple(self._coordinated.values()):
            coordinated.on_topics_deleted(frozenset(topics))

    def _set_expiry_timer(self) -> None:
        seconds = self._settings.expiry_check_ms / 1000
        self._expiry_timer = self._scheduler.call_later(seconds, self._expire)

    def _expire(self) -> None:
        self._expiry_timer = None
        for coordinated in tuple(self._coordinated.values()):
            coordinated.on_expiry()
        if self._coordinated:
            self._set_expiry_timer()

    # ---- where a group is

    @property
    def topic(self) -> TopicState | None:
        """Return the offsets topic, or None if it does not exist or only its retained data does."""
        metadata = self._partitions.metadata
        topic = metadata.topics.get(OFFSETS_TOPIC)
        return None if topic is None or topic.topic_id in metadata.retained else topic

    def coordinator_of(self, group_id: str) -> BrokerState | None:
        """Return the broker that coordinates the group, or None if there is none at the moment."""
        topic = self.topic
        if topic is None:
            return None
        metadata = self._partitions.metadata
        number = partition_of_group(group_id, topic.partition_count)
        state = metadata.partitions.get((topic.topic_id, number))
        if state is None or not state.has_leader:
            return None
        broker = metadata.brokers.get(state.leader)
        return None if broker is None or broker.is_fenced else broker

    def _find(self, group_id: str) -> ShardRunner | None:
        topic = self.topic
        if topic is None:
            return None
        number = partition_of_group(group_id, topic.partition_count)
        return self._coordinated.get((topic.topic_id, number))

    def absence(self, group_id: str) -> str:
        """Return, for people, why the group has no coordinator."""
        if self.topic is None:
            return f"{OFFSETS_TOPIC} does not exist yet: {self._creation.problem or 'retry'}"
        return "the coordinator of this group is changing: retry"

    async def ensure_topic(self) -> None:
        """Create the offsets topic if it does not exist; takes some seconds at most."""
        if self.topic is None:
            await self._creation.ensure()

    # ---- requests

    async def ask(self, request: GroupRequest) -> GroupResponse:
        """Return the answer to a request.

        JoinGroup and SyncGroup wait for the other members, within the group's rebalance timeout; a
        request that is written to the log waits some seconds.
        """
        responded: asyncio.Future[GroupResponse] = asyncio.get_running_loop().create_future()
        self.send(
            request, lambda answer: None if responded.done() else responded.set_result(answer)
        )
        return await responded

    def send(self, request: GroupRequest, done: Callable[[GroupResponse], None]) -> None:
        """Pass a request to its coordinator; `done` is called once, maybe before this returns."""
        coordinated = self._find(request.group_id)
        if coordinated is None:
            done(rejection(request, ErrorCode.NOT_COORDINATOR))
        else:
            coordinated.request(next(self._request_ids), request, done)

    def list_groups(self, states: frozenset[str]) -> tuple[ErrorCode, tuple[ListedGroup, ...]]:
        """Return all groups that this broker coordinates.

        While one partition is loading the answer is an error, because it would look complete (Kafka
        does the same).
        """
        found: list[ListedGroup] = []
        for coordinated in self._coordinated.values():
            error, groups = coordinated.core.list_groups(states)
            if error is not ErrorCode.NONE:
                return error, ()
            found += groups
        return ErrorCode.NONE, tuple(found)

    def report(self) -> GroupsReport:
        """Return all groups that this broker coordinates, for people."""
        begun = tuple(self._coordinated.values())
        cores = [coordinated.core for coordinated in begun]
        is_loading = any(core.state is CoordinatorState.LOADING for core in cores)
        found = sorted(
            (group_id, at) for at, core in enumerate(cores) for group_id in core.group_ids()
        )
        reports = (cores[at].report(group_id) for group_id, at in found)
        return GroupsReport(
            (report for report in reports if report is not None),
            lambda: is_loading or tuple(self._coordinated.values()) != begun,
        )

    def gauges(self) -> GroupGauges:
        gauges = GroupGauges()
        for coordinated in self._coordinated.values():
            coordinated.core.count(gauges)
        return gauges

    def offsets(self, limit: int) -> tuple[GroupOffset, ...]:
        """Return at most `limit` committed offsets of existing topics, each with its lag."""
        committed = (
            found
            for coordinated in self._coordinated.values()
            for found in coordinated.core.offsets()
        )
        found = (self._group_offset(group_id, fetched) for group_id, fetched in committed)
        return tuple(itertools.islice((offset for offset in found if offset is not None), limit))

    def _group_offset(self, group_id: str, fetched: FetchedOffset) -> GroupOffset | None:
        topic = self._partitions.metadata.topics.get(fetched.topic)
        if topic is None or fetched.committed is None:
            return None
        offset, lag_records = fetched.committed.offset, -1
        leading = self._partitions.find_leading(fetched.topic, fetched.partition)
        if not isinstance(leading, ErrorCode):
            # A group may have committed more than there is, or before a loss.
            lag_records = max(0, leading.high_watermark - offset)
        return GroupOffset(
            group_id, fetched.topic, topic.topic_id, fetched.partition, offset, lag_records
        )

    def describe_group(self, group_id: str) -> DescribedGroup:
        coordinated = self._find(group_id)
        if coordinated is None:
            return DescribedGroup(ErrorCode.NOT_COORDINATOR, group_id)
        return coordinated.core.describe_group(group_id)
