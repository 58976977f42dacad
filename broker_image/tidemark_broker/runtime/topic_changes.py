"""Topics made and changed for this broker's clients: asked of the controller, then waited for.

The controller stores what is asked for in Topic objects; that the operator has made it so is seen
in this broker's own metadata, and so is answered no earlier than its clients can use it. A request
is sent again while no controller has answered, with the same id, until the caller's time is up.
"""

import asyncio
from collections.abc import Awaitable, Callable

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_EPOCH, BrokerEpoch, BrokerId
from tidemark_protocol.topic_messages import (
    CREATE_TOPICS_PATH,
    AskingBroker,
    CreateTopicsRequest,
    NewTopic,
    TopicsRequest,
    TopicsResponse,
)

from tidemark_broker.runtime.metadata import MetadataCache

FIRST_RETRY_SECONDS = 0.05
MAX_RETRY_SECONDS = 0.5
MAX_WAIT_MS = 600_000

# (path, request, milliseconds): None says that no controller answered, ask again.
AskForTopics = Callable[[str, TopicsRequest, int], Awaitable[TopicsResponse | None]]

_NOBODY = AskingBroker("", BrokerId(-1), BrokerEpoch(NO_EPOCH))


async def _nobody_to_ask(path: str, request: TopicsRequest, timeout_ms: int) -> None:
    return None


class Deadline:
    """Of one client's request, on the loop's clock."""

    def __init__(self, timeout_ms: int) -> None:
        self._at_s = asyncio.get_running_loop().time() + max(0, min(timeout_ms, MAX_WAIT_MS)) / 1000

    def left_s(self) -> float:
        return max(0.0, self._at_s - asyncio.get_running_loop().time())


class TopicChanges:
    def __init__(self, metadata: MetadataCache) -> None:
        self.ask: AskForTopics = _nobody_to_ask  # these two are set by the broker
        self.asking: Callable[[], AskingBroker] = lambda: _NOBODY
        self._metadata = metadata
        self._requests = 0
        self._waiters: dict[asyncio.Future[None], None] = {}

    # ---- what may be asked for; one result for each topic, in their order

    async def create(
        self, topics: tuple[NewTopic, ...], deadline: Deadline, *, validate_only: bool = False
    ) -> TopicsResponse:
        """Topics that are there then, each led in all its partitions or REQUEST_TIMED_OUT (it will
        be made all the same)."""
        request = CreateTopicsRequest(self.asking(), self._request_id(), topics, validate_only)
        response = await self._asked(CREATE_TOPICS_PATH, request, deadline)
        if not validate_only:
            made = [result.topic for result in response.results if result.error is ErrorCode.NONE]
            await self.wait_until(lambda: all(map(self.is_served, made)), deadline)
        return response

    def is_served(self, topic: str) -> bool:
        """Every partition of it has a leader, as far as this broker knows."""
        known = self._metadata.topics.get(topic)
        if known is None or known.topic_id in self._metadata.retained:
            return False
        states = (
            self._metadata.partitions.get((known.topic_id, number))
            for number in range(known.partition_count)
        )
        return all(state is not None and state.has_leader for state in states)

    # ---- waiting

    def on_metadata(self) -> None:
        """A push was applied: who waits for it looks again."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_until(self, is_so: Callable[[], bool], deadline: Deadline) -> bool:
        """False when the time was up first."""
        try:
            async with asyncio.timeout(deadline.left_s()):
                while not is_so():
                    waiter = asyncio.get_running_loop().create_future()
                    self._waiters[waiter] = None
                    await waiter
        except TimeoutError:
            return is_so()
        return True

    # ---- inside

    def _request_id(self) -> str:
        """Of this broker's life, and no other one's ever."""
        broker = self.asking()
        self._requests += 1
        return f"{broker.broker_id}-{broker.broker_epoch}-{self._requests}"

    async def _asked(self, path: str, request: TopicsRequest, deadline: Deadline) -> TopicsResponse:
        delay_s = FIRST_RETRY_SECONDS
        while True:
            left_ms = int(deadline.left_s() * 1000)
            response = await self.ask(path, request, left_ms) if left_ms > 0 else None
            if response is not None:
                return response
            if deadline.left_s() <= delay_s:
                return TopicsResponse(
                    ErrorCode.REQUEST_TIMED_OUT,
                    "no controller has answered in time: ask again, or look at the operator",
                )
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, MAX_RETRY_SECONDS)
