"""Create topics that clients name and that do not exist, if the pool allows it.

Kafka's `auto.create.topics.enable`: a client that requests metadata of a topic, and does not forbid
it, has the topic created with the defaults, in the same way as CreateTopics. The answer waits for
it up to a limit.
"""

import logging
from collections.abc import Iterable

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.topic_messages import MAX_CHANGES, NewTopic
from tidemark_protocol.topic_names import OFFSETS_TOPIC, topic_name_fault

from tidemark_broker.metadata.metadata_cache import MetadataCache
from tidemark_broker.metadata.topic_admin_client import Deadline, TopicAdminClient

CREATION_LIMIT_MS = 5_000  # then the client asks again

_log = logging.getLogger(__name__)


class TopicAutoCreation:
    def __init__(self, metadata: MetadataCache, changes: TopicAdminClient) -> None:
        self._metadata = metadata
        self._changes = changes
        self._requested: set[str] = set()  # of the controller, by whichever client

    async def ensure(self, names: Iterable[str]) -> None:
        """Wait until the topics that may be created are led, or until the limit."""
        missing = {name for name in names if self._may_be_made(name)}
        if not missing:
            return
        deadline = Deadline(CREATION_LIMIT_MS)
        rejected = await self._make(sorted(missing - self._requested)[:MAX_CHANGES], deadline)
        awaited = missing - rejected
        await self._changes.wait_until(lambda: all(map(self._changes.is_served, awaited)), deadline)

    def _may_be_made(self, name: str) -> bool:
        is_known = name in self._metadata.topics  # kept data of that name is for a human to judge
        return not is_known and not topic_name_fault(name) and name != OFFSETS_TOPIC

    async def _make(self, names: list[str], deadline: Deadline) -> set[str]:
        """Ask the controller for the topics; return those that were not created."""
        if not names:
            return set()
        self._requested.update(names)
        try:
            response = await self._changes.create(tuple(map(NewTopic, names)), deadline)
        finally:
            self._requested.difference_update(names)
        if response.error is not ErrorCode.NONE:
            _log.warning("topics not created", extra={"reason": response.message})
            return set(names)
        rejected = set()
        for result in response.results:
            # Another broker was asked too, or it comes later.
            if result.error in (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT):
                continue
            if result.error is not ErrorCode.NONE:
                extra = {"topic": result.topic, "reason": result.message}
                _log.warning("topic not created", extra=extra)
                rejected.add(result.topic)
        return rejected
