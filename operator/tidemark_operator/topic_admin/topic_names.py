"""Find the Topic objects that may have a topicName, so that a request reads those alone.

It only says what to read. An object that this process did not write is found by the controller's
slices, by the name that it would have for that topicName, or by a list that is at most
`RELIST_SECONDS` old.
"""

import asyncio
from collections.abc import Callable, Iterator

from tidemark_protocol.topic_names import object_names

from tidemark_operator.api.kinds import TOPIC, Object
from tidemark_operator.api.validation_rules import topic_name
from tidemark_operator.controller.service import ControllerService
from tidemark_operator.store.object_store import ObjectStore

RELIST_SECONDS = 5.0


class TopicNames:
    def __init__(
        self,
        store: ObjectStore,
        controller: ControllerService,
        *,
        now_s: Callable[[], float] = lambda: asyncio.get_running_loop().time(),
    ) -> None:
        self._store = store
        self._controller = controller
        self._now_s = now_s
        self._listed: dict[str, _Namespace] = {}
        self._being_listed: dict[str, _Namespace] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def read(self, pool: str) -> None:
        """Read what `objects_named` needs.

        Raises StoreError.
        """
        namespace = pool.partition("/")[0]
        async with self._locks.setdefault(namespace, asyncio.Lock()):
            listed = self._listed.get(namespace)
            if listed is not None and self._now_s() - listed.at_s < RELIST_SECONDS:
                return
            # What is made meanwhile may not be in the list.
            known = self._being_listed[namespace] = _Namespace(self._now_s())
            try:
                for item in await self._store.list(TOPIC, namespace):
                    known.note(item)
            finally:
                del self._being_listed[namespace]
            self._listed[namespace] = known

    def note(self, item: Object) -> None:
        """Record an object that was created here."""
        namespace = item["metadata"]["namespace"]
        for known in (self._listed.get(namespace), self._being_listed.get(namespace)):
            if known is not None:
                known.note(item)

    def objects_named(self, pool: str, topic: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._candidates(pool, topic)))

    def _candidates(self, pool: str, topic: str) -> Iterator[str]:
        yield from object_names(pool, topic)
        yield from (view.object_name for view in self._controller.topics_named(pool, topic))
        listed = self._listed.get(pool.partition("/")[0])
        if listed is not None:
            yield from listed.by_topic_name.get(topic, ())


class _Namespace:
    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        self.by_topic_name: dict[str, dict[str, None]] = {}

    def note(self, item: Object) -> None:
        name = item["metadata"]["name"]
        self.by_topic_name.setdefault(topic_name(item), {})[name] = None
