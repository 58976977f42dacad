"""`__consumer_offsets`, made when the first group is looked for: a Topic object, by the controller.

As many replicas as the pool gives by default, kept when its object is deleted, and taken up again:
what groups have read must not go with an object. Of its partitions the number never changes, as it
says where each group is.
"""

import asyncio
import logging

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.topic_messages import NewTopic

from tidemark_broker.groups.offsets_topic import OFFSETS_TOPIC
from tidemark_broker.runtime.topic_changes import Deadline, TopicChanges

CREATION_LIMIT_MS = 5_000  # then the client asks again

_log = logging.getLogger(__name__)


class OffsetsTopicCreation:
    def __init__(self, changes: TopicChanges, partition_count: int) -> None:
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
        """Returns when all its partitions are led, or when it took too long, with `problem` set."""
        deadline = Deadline(CREATION_LIMIT_MS)
        try:
            async with asyncio.timeout(deadline.left_s()), self._creating:
                if not self._changes.is_served(OFFSETS_TOPIC):
                    await self._create(deadline)
        except TimeoutError:
            self.problem = self.problem or "it took too long"

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
            _log.warning("the offsets topic could not be made", extra={"problem": self.problem})
