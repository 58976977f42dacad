"""Change topics for this broker's clients by the controller, and wait for the result.

The controller stores the change in Topic objects. That the operator has applied it shows in this
broker's own metadata, so a request is answered only when its clients can use the result. A request
is sent again while no controller has answered, with the same id, until the caller's time is up.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.topic_messages import (
    ADD_PARTITIONS_PATH,
    ALTER_CONFIGS_PATH,
    APPLIED_VERSION_PATH,
    CREATE_TOPICS_PATH,
    DELETE_TOPICS_PATH,
    ELECT_LEADERS_PATH,
    REASSIGN_PARTITIONS_PATH,
    AddPartitionsRequest,
    AlterConfigsRequest,
    AppliedVersionRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    ElectedPartition,
    ElectLeadersRequest,
    NewTopic,
    Reassignment,
    ReassignPartitionsRequest,
    RequestingBroker,
    TopicResult,
    TopicsRequest,
    TopicsResponse,
    TopicToAlter,
    TopicToDelete,
    TopicToExpand,
)

from tidemark_broker.metadata.metadata_cache import MetadataCache

FIRST_RETRY_SECONDS = 0.05
MAX_RETRY_SECONDS = 0.5
MAX_WAIT_MS = 600_000
LEAST_ASKING_MS = 3000
EVERYWHERE_MS = 1000
FIRST_LOOK_SECONDS = 0.005

# (path, request, milliseconds): None says that no controller answered, ask again.
AskForTopics = Callable[[str, TopicsRequest, int], Awaitable[TopicsResponse | None]]

_NOT_SEEN = (
    "the Topic object was changed, but the operator did not complete the change in time:"
    " its conditions show the reason (kubectl describe topic, or tidemark status)"
)


class Deadline:
    """The deadline of one client's request, on the loop's clock."""

    def __init__(self, timeout_ms: int) -> None:
        self._at_s = asyncio.get_running_loop().time() + max(0, min(timeout_ms, MAX_WAIT_MS)) / 1000

    def left_s(self) -> float:
        return max(0.0, self._at_s - asyncio.get_running_loop().time())


class TopicAdminClient:
    def __init__(
        self,
        metadata: MetadataCache,
        *,
        ask: AskForTopics,
        requesting: Callable[[], RequestingBroker],
    ) -> None:
        """Create a client; `requesting` returns this broker and its epoch."""
        self._ask = ask
        self._requesting = requesting
        self._metadata = metadata
        self._requests = 0
        self._waiters: dict[asyncio.Future[None], None] = {}
        metadata.on_image(self.on_metadata)

    # ---- what may be asked for; one result for each thing, in their order. What is not seen to be
    # so in time is REQUEST_TIMED_OUT, and comes all the same: the objects say so already.

    async def create(
        self, topics: tuple[NewTopic, ...], deadline: Deadline, *, validate_only: bool = False
    ) -> TopicsResponse:
        """Create topics and wait until each is led in all its partitions."""
        request = CreateTopicsRequest(self._requesting(), self._request_id(), topics, validate_only)
        response = await self._requested(CREATE_TOPICS_PATH, request, deadline)
        if validate_only:
            return response
        return await self._seen(response, self._has_all_partitions, deadline)

    async def delete(self, topics: tuple[TopicToDelete, ...], deadline: Deadline) -> TopicsResponse:
        """Delete topics and wait until they are gone."""
        known = self._metadata.topics
        ids = {each.topic: known[each.topic].topic_id for each in topics if each.topic in known}
        request = DeleteTopicsRequest(self._requesting(), self._request_id(), topics)
        response = await self._requested(DELETE_TOPICS_PATH, request, deadline)
        by_id = self._metadata.topics_by_id
        return await self._seen(response, lambda gone: ids.get(gone.topic) not in by_id, deadline)

    async def add_partitions(
        self, topics: tuple[TopicToExpand, ...], deadline: Deadline, *, validate_only: bool = False
    ) -> TopicsResponse:
        """Add partitions and wait until each topic has as many, all of them led."""
        request = AddPartitionsRequest(
            self._requesting(), self._request_id(), topics, validate_only
        )
        response = await self._requested(ADD_PARTITIONS_PATH, request, deadline)
        if validate_only:
            return response
        return await self._seen(response, self._has_all_partitions, deadline)

    async def alter_configs(
        self, topics: tuple[TopicToAlter, ...], deadline: Deadline, *, validate_only: bool = False
    ) -> TopicsResponse:
        """Alter configs and wait until this broker has them.

        The others receive them at the same time. Other changes of the same topic may appear with
        it, or before.
        """
        request = AlterConfigsRequest(self._requesting(), self._request_id(), topics, validate_only)
        response = await self._requested(ALTER_CONFIGS_PATH, request, deadline)
        if validate_only:
            return response

        requested = {each.topic: each for each in topics}

        def is_known(altered: TopicResult) -> bool:
            known = self._metadata.topics.get(altered.topic)
            if known is None:
                return False
            changed = requested[altered.topic]
            names = {change.name for change in changed.changes}
            if changed.replaces_all:
                names |= known.config.keys() | altered.config.keys()
            return all(known.config.get(name) == altered.config.get(name) for name in names)

        return await self._seen(response, is_known, deadline)

    async def reassign(
        self,
        reassignments: tuple[Reassignment, ...],
        deadline: Deadline,
        *,
        may_change_replication_factor: bool = True,
    ) -> TopicsResponse:
        """Reassign partitions and wait until the moves have begun; one result for each topic."""
        request = ReassignPartitionsRequest(
            self._requesting(), self._request_id(), reassignments, may_change_replication_factor
        )
        response = await self._requested(REASSIGN_PARTITIONS_PATH, request, deadline)

        def has_begun(result: TopicResult) -> bool:
            moves = [each for each in reassignments if each.topic == result.topic]
            return all(map(self._is_on_its_way, moves))

        return await self._seen(response, has_begun, deadline)

    async def elect(
        self, partitions: tuple[ElectedPartition, ...], deadline: Deadline, *, unclean: bool
    ) -> TopicsResponse:
        """Elect leaders and wait until this broker knows them; one result for each partition."""
        request = ElectLeadersRequest(self._requesting(), self._request_id(), partitions, unclean)
        response = await self._requested(ELECT_LEADERS_PATH, request, deadline)

        def is_elected(result: TopicResult) -> bool:
            state = self._metadata.partition(result.topic, result.partition)
            if state is None or not state.has_leader:
                return False
            return unclean or state.leader == state.replicas[0]

        return await self._seen(response, is_elected, deadline)

    # ---- what this broker knows

    def is_served(self, topic: str) -> bool:
        """Return whether each partition of the topic has a leader."""
        known = self._metadata.served_topic(topic)
        if known is None:
            return False
        states = (
            self._metadata.partitions.get((known.topic_id, number))
            for number in range(known.partition_count)
        )
        return all(state is not None and state.has_leader for state in states)

    def _has_all_partitions(self, made: TopicResult) -> bool:
        """Return whether all new partitions are known; they arrive a slice at a time."""
        known = self._metadata.topics.get(made.topic)
        has_all = known is not None and known.partition_count >= made.partition_count
        return has_all and self.is_served(made.topic)

    def _is_on_its_way(self, move: Reassignment) -> bool:
        state = self._metadata.partition(move.topic, move.partition)
        if state is None:
            return False
        if move.replicas is None:
            return not state.adding_replicas
        target = tuple(b for b in state.replicas if b not in state.removing_replicas)
        return target == move.replicas

    # ---- waiting

    def on_metadata(self) -> None:
        """Wake the requests that wait for a push."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_until(self, is_so: Callable[[], bool], deadline: Deadline) -> bool:
        """Wait for a condition; False at the deadline."""
        try:
            async with asyncio.timeout(deadline.left_s()):
                while not is_so():
                    waiter = asyncio.get_running_loop().create_future()
                    self._waiters[waiter] = None
                    try:
                        await waiter
                    finally:
                        self._waiters.pop(waiter, None)
        except TimeoutError:
            return is_so()
        return True

    # ---- inside

    async def _seen(
        self,
        response: TopicsResponse,
        is_so: Callable[[TopicResult], bool],
        deadline: Deadline,
    ) -> TopicsResponse:
        changed = [result for result in response.results if result.error is ErrorCode.NONE]
        if not changed:
            return response
        if await self.wait_until(lambda: all(map(is_so, changed)), deadline):
            await self._applied_everywhere(deadline)
            return response
        results = tuple(
            result
            if result.error is not ErrorCode.NONE or is_so(result)
            else replace(result, error=ErrorCode.REQUEST_TIMED_OUT, message=_NOT_SEEN)
            for result in response.results
        )
        return replace(response, results=results)

    async def _applied_everywhere(self, deadline: Deadline) -> None:
        """Wait until all brokers have applied the change.

        So the client finds it at whichever broker it asks next. A broker that is silent and not
        fenced yet is waited for up to EVERYWHERE_MS.
        """
        version, delay_s = self._metadata.image_version, FIRST_LOOK_SECONDS
        limit = Deadline(min(EVERYWHERE_MS, int(deadline.left_s() * 1000)))
        while limit.left_s() > 0:
            request = AppliedVersionRequest(self._requesting())
            left_ms = max(1, int(limit.left_s() * 1000))
            response = await self._ask(APPLIED_VERSION_PATH, request, left_ms)
            if response is not None and response.applied_version >= version:
                return
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, MAX_RETRY_SECONDS)

    def _request_id(self) -> str:
        """Return an id unique to this broker's epoch."""
        broker = self._requesting()
        self._requests += 1
        return f"{broker.broker_id}-{broker.broker_epoch}-{self._requests}"

    async def _requested(
        self, path: str, request: TopicsRequest, deadline: Deadline
    ) -> TopicsResponse:
        delay_s = FIRST_RETRY_SECONDS
        while True:
            # Whoever gives no time still wants it done (Kafka begins it, and answers at once).
            left_ms = max(int(deadline.left_s() * 1000), LEAST_ASKING_MS)
            response = await self._ask(path, request, left_ms)
            if response is not None:
                return response
            if deadline.left_s() <= delay_s:
                return TopicsResponse(
                    ErrorCode.REQUEST_TIMED_OUT,
                    "no controller responded in time: retry, or check the operator",
                )
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, MAX_RETRY_SECONDS)
