"""Write Topic objects for clients: create, change and delete, each by one legal step.

By compare-and-set and creation by name only: another writer's change in between is checked again,
never overwritten. A write whose response was lost is looked up (S3).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, TopicId
from tidemark_protocol.topic_messages import (
    CreateTopicsRequest,
    NewTopic,
    TopicResult,
    TopicToDelete,
)

from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.api.kinds import BROKER_POOL, TOPIC, Object
from tidemark_operator.api.objects import parse_unchecked
from tidemark_operator.api.schemas import apply_defaults, effective, validate
from tidemark_operator.api.validation_rules import topic_name
from tidemark_operator.controller.core.views import TopicView
from tidemark_operator.controller.service import ControllerService
from tidemark_operator.store.object_store import (
    AlreadyExists,
    Conflict,
    ObjectStore,
    OutcomeUnknown,
    StoreError,
)
from tidemark_operator.store.typed_store import TypedStore
from tidemark_operator.topic_admin.changes import deletion_error
from tidemark_operator.topic_admin.field_managers import (
    REQUEST_ANNOTATION,
    RequestRejected,
    managed_elsewhere_error,
)
from tidemark_operator.topic_admin.new_topics import PoolPlacement, topic_manifest
from tidemark_operator.topic_admin.room import Room
from tidemark_operator.topic_admin.topic_names import TopicNames

Value = TypeVar("Value")
Result = TypeVar("Result")

logger = logging.getLogger(__name__)

NAME_CHOICES = 2
NO_POOL: Object = {"kind": BROKER_POOL.kind, "metadata": {"name": ""}, "spec": {}}
AT_ONCE = 32  # topics of one request
MAX_TRIES = 5  # against other writers of the same object


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """What a request found when it came."""

    places: PoolPlacement
    topics: dict[str, Object]  # of those that it names: by topicName
    room: Room


class TopicObjects:
    def __init__(self, store: ObjectStore, controller: ControllerService) -> None:
        self._store = store
        self._objects = TypedStore(store)
        self._controller = controller
        self._names = TopicNames(store, controller)

    # ---- what is there

    async def there(self, pool: str, topics: Iterable[str]) -> StoredTopic:
        """Read what a request needs; the cost does not depend on the number of topics."""
        stored_pool, _ = await asyncio.gather(self._pool(pool), self._names.read(pool))
        named = tuple(dict.fromkeys(topics))
        found = await gathered(named, lambda topic: self._topic(pool, topic))
        stored = zip(named, found, strict=True)
        limits = (stored_pool or parse_unchecked(BrokerPool, NO_POOL)).spec.limits
        return StoredTopic(
            self._places(pool, stored_pool),
            {topic: item for topic, item in stored if item is not None},
            Room(limits.max_partitions, self._controller.partition_count(pool)),
        )

    async def _pool(self, pool: str) -> BrokerPool | None:
        namespace, _, name = pool.partition("/")
        return await self._objects.read(BrokerPool, namespace, name)

    def _places(self, pool: str, stored: BrokerPool | None) -> PoolPlacement:
        if stored is None:  # going away: its brokers are still here
            views = self._controller.brokers(pool)
            return PoolPlacement(pool, tuple(view.broker_id for view in views if view.is_active))
        numbers = map(BrokerId, range(stored.spec.replicas))
        usable = tuple(number for number in numbers if number not in stored.spec.drain)
        return PoolPlacement(pool, usable, stored.spec.default_partitions)

    async def _topic(self, pool: str, topic: str) -> Object | None:
        """Return the Topic of a name; of several the oldest, as reconcilers choose."""
        namespace, _, pool_name = pool.partition("/")
        found = []
        for name in self._names.objects_named(pool, topic):
            stored = await self._store.get(TOPIC, namespace, name)
            if stored is None or topic_name(stored) != topic:
                continue
            item = apply_defaults(stored)
            if item["spec"]["brokerPool"] == pool_name:
                found.append(item)
        return min(found, key=_age_and_name, default=None)

    def view(self, pool: str, topic: str) -> TopicView | None:
        """Return the view of the served topic."""
        views = self._controller.topics_named(pool, topic)
        return next((view for view in views if not view.is_retained), None)

    # ---- creating

    async def create(
        self,
        new: NewTopic,
        request: CreateTopicsRequest,
        there: StoredTopic,
    ) -> TopicResult:
        stored, places = there.topics.get(new.topic), there.places
        if stored is not None:
            if _was_made_for(stored, request.request_id):
                return _made(stored)
            return rejected(new.topic, _exists(stored))
        rejection = self._data_of_a_previous_one(places.pool, new)
        if rejection is not None:
            return rejected(new.topic, rejection)
        name = ""
        for choice in range(NAME_CHOICES):
            item = topic_manifest(new, places, request_id=request.request_id, name_choice=choice)
            if isinstance(item, RequestRejected):
                return rejected(new.topic, item)
            rejection = there.room.take(new.topic, item["spec"]["partitions"])
            if rejection is not None:
                return rejected(new.topic, rejection)
            if request.validate_only:
                return replace(_made(item), topic_id=TopicId(""))
            try:
                made = await self._store.create(TOPIC, item)
                self._names.note(made)
            except AlreadyExists:
                name = item["metadata"]["name"]  # of another pool, or of another topicName
                continue
            except OutcomeUnknown as error:
                return await self._settled(new, request, item, error)
            logger.info(
                "topic created for a client",
                extra={"topic": new.topic, "object": made["metadata"]["name"]},
            )
            return _made(made)
        return rejected(
            new.topic,
            RequestRejected(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                f"another Topic has the object name {name}",
            ),
        )

    async def _settled(
        self, new: NewTopic, request: CreateTopicsRequest, item: Object, error: StoreError
    ) -> TopicResult:
        """Return the result of a write whose response was lost, by what is stored (S3)."""
        metadata = item["metadata"]
        stored = await self._store.get(TOPIC, metadata["namespace"], metadata["name"])
        if stored is not None and _was_made_for(stored, request.request_id):
            return _made(stored)
        return rejected(new.topic, RequestRejected(ErrorCode.REQUEST_TIMED_OUT, f"{error}: retry"))

    def _data_of_a_previous_one(self, pool: str, new: NewTopic) -> RequestRejected | None:
        """Return an error if a new topic would not be empty, as Kafka's clients expect."""
        if new.may_adopt:
            return None
        for view in self._controller.topics_named(pool, new.topic):
            if view.is_retained or view.deletion_policy != "Delete":
                return RequestRejected(
                    ErrorCode.POLICY_VIOLATION,
                    f"data of a deleted topic {new.topic} is retained (deletionPolicy"
                    " Retain): apply a Topic manifest of that name to serve it again, or"
                    f" delete it permanently: tidemark topics purge {new.topic}, or"
                    " spec.purgeRetained of the BrokerPool",
                )
        return None

    # ---- changing and deleting

    async def change(
        self,
        topic: str,
        there: StoredTopic,
        request_id: str,
        changed: Callable[[Object], Object | RequestRejected],
        *,
        validate_only: bool = False,
    ) -> TopicResult:
        """Change a Topic by compare-and-set; another's write in between is checked again."""
        stored = there.topics.get(topic)
        for _ in range(MAX_TRIES):
            if stored is None:
                return rejected(topic, unknown_topic(topic))
            if _was_made_for(stored, request_id):
                return _made(stored)
            rejection = managed_elsewhere_error(stored)
            after = changed(stored) if rejection is None else rejection
            if isinstance(after, RequestRejected):
                return rejected(topic, after)
            if sentences := validate(_without_status(after), _without_status(stored)):
                return rejected(
                    topic, RequestRejected(ErrorCode.INVALID_REQUEST, "; ".join(sentences))
                )
            if validate_only or after["spec"] == stored["spec"]:
                return _made(after)
            try:
                return _made(await self._store.replace(TOPIC, _recorded(after, request_id)))
            except (Conflict, OutcomeUnknown):
                stored = await self._again(stored)
        return rejected(topic, _others_are_faster())

    async def delete(self, to_delete: TopicToDelete, there: StoredTopic) -> TopicResult:
        """Delete a Topic by its present manifest, not by the one found with others (I20)."""
        pool = there.places.pool
        for attempt in range(MAX_TRIES):
            stored = await self._again(there.topics.get(to_delete.topic))
            if stored is None:
                if self._is_going(pool, to_delete.topic):
                    return TopicResult(to_delete.topic, ErrorCode.NONE)
                return rejected(to_delete.topic, unknown_topic(to_delete.topic))
            topic_id = _topic_id_of(stored)
            rejection = _other_id(to_delete, topic_id)
            rejection = rejection or managed_elsewhere_error(stored) or deletion_error(stored)
            if rejection is None or attempt:
                # The slices' copy decides what becomes of the data, and lags behind the manifest;
                # or it is ahead of it, by an attempt that another's write put an end to.
                await self._notify_slices(pool, to_delete.topic, stored)
            if rejection is not None:
                return rejected(to_delete.topic, rejection)
            metadata = stored["metadata"]
            try:
                await self._store.delete(
                    TOPIC,
                    metadata["namespace"],
                    metadata["name"],
                    uid=metadata.get("uid"),
                    resource_version=metadata.get("resourceVersion"),
                )
            except Conflict:
                continue  # somebody's write in between is judged anew
            logger.info(
                "topic deleted for a client",
                extra={"topic": to_delete.topic, "object": metadata["name"]},
            )
            return TopicResult(to_delete.topic, ErrorCode.NONE, topic_id=TopicId(topic_id))
        return rejected(to_delete.topic, _others_are_faster())

    async def _again(self, stored: Object | None) -> Object | None:
        """Return the object as it is now."""
        if stored is None:
            return None
        metadata = stored["metadata"]
        found = await self._store.get(TOPIC, metadata["namespace"], metadata["name"])
        return None if found is None else apply_defaults(found)

    async def _notify_slices(self, pool: str, topic: str, stored: Object) -> None:
        """Store the manifest's deletionPolicy in the slices at once, as a reconciliation would."""
        view, policy = self.view(pool, topic), stored["spec"]["deletionPolicy"]
        is_its_own = view is not None and view.object_name == stored["metadata"]["name"]
        if view is not None and is_its_own and view.deletion_policy != policy:
            await self._controller.update_topic(pool, view.topic, deletion_policy=policy)

    def _is_going(self, pool: str, topic: str) -> bool:
        """Return whether the topic's object is deleted and its slices are not yet."""
        return any(
            not view.is_retained and view.deletion_policy == "Delete"
            for view in self._controller.topics_named(pool, topic)
        )


async def gathered(
    values: Iterable[Value], work: Callable[[Value], Awaitable[Result]]
) -> list[Result]:
    """Run work for each value, a few at once so that others have room; return results in order."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(value: Value) -> Result:
        async with turns:
            return await work(value)

    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(one(value), name="topic change") for value in values]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed  # as without the others
    return [task.result() for task in running]


def _age_and_name(item: Object) -> tuple[str, str]:
    return item["metadata"].get("creationTimestamp", ""), item["metadata"]["name"]


def _was_made_for(stored: Object, request_id: str) -> bool:
    annotations = stored["metadata"].get("annotations") or {}
    return bool(annotations.get(REQUEST_ANNOTATION) == request_id)


def _topic_id_of(stored: Object) -> str:
    return (stored.get("status") or {}).get("topicId") or stored["metadata"].get("uid") or ""


def _other_id(to_delete: TopicToDelete, topic_id: str) -> RequestRejected | None:
    if to_delete.topic_id in ("", topic_id):
        return None
    return RequestRejected(ErrorCode.UNKNOWN_TOPIC_ID, f"topic {to_delete.topic} has id {topic_id}")


def _others_are_faster() -> RequestRejected:
    message = "the Topic was changed concurrently: retry"
    return RequestRejected(ErrorCode.REQUEST_TIMED_OUT, message)


def _recorded(item: Object, request_id: str) -> Object:
    metadata = item["metadata"]
    annotations = {**(metadata.get("annotations") or {}), REQUEST_ANNOTATION: request_id}
    return {**item, "metadata": {**metadata, "annotations": annotations}}


def _without_status(item: Object) -> Object:
    return {name: value for name, value in item.items() if name != "status"}


def unknown_topic(topic: str) -> RequestRejected:
    return RequestRejected(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic[:249]} does not exist"
    )


def _exists(stored: Object) -> RequestRejected:
    metadata = stored["metadata"]
    going = ", and is being deleted" if metadata.get("deletionTimestamp") else ""
    return RequestRejected(
        ErrorCode.TOPIC_ALREADY_EXISTS,
        f"topic {topic_name(stored)} already exists as Topic {metadata['name']}{going}",
    )


def rejected(topic: str, rejection: RequestRejected) -> TopicResult:
    return TopicResult(topic, rejection.error, rejection.message)


def _made(item: Object) -> TopicResult:
    spec = effective(item)["spec"]
    return TopicResult(
        topic_name(item),
        ErrorCode.NONE,
        topic_id=TopicId(item["metadata"].get("uid", "")),
        partition_count=spec["partitions"],
        replication_factor=spec["replicationFactor"],
        config=spec["config"],
    )
