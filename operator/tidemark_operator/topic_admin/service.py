"""Brokers' requests to change topics, as writes of Topic objects (shell).

Everything but elections is a change of a manifest: the same object, the same rules and the same
reconciler as for kubectl. What is answered NONE is stored; when the operator has made it so, the
broker that asked sees in its pushes. The leading controller alone answers, as it alone knows which
topics there are and what data is kept of former ones.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, TopicId
from tidemark_protocol.topic_messages import (
    MAX_CHANGES,
    AskingBroker,
    CreateTopicsRequest,
    NewTopic,
    TopicResult,
    TopicsResponse,
)

from tidemark_operator.controller.service import ControllerService, NotLeading
from tidemark_operator.manifests.schemas import apply_defaults, effective
from tidemark_operator.manifests.spec_rules import topic_name
from tidemark_operator.stores.object_store import (
    BROKER_POOL,
    TOPIC,
    AlreadyExists,
    Object,
    ObjectStore,
    OutcomeUnknown,
    Refused,
    StoreError,
)
from tidemark_operator.topic_admin.keepers import REQUEST_ANNOTATION
from tidemark_operator.topic_admin.new_topics import PoolPlaces, topic_manifest
from tidemark_operator.topic_admin.refusal import Refusal

logger = logging.getLogger(__name__)

NAME_CHOICES = 2


class TopicAdmin:
    def __init__(self, store: ObjectStore, controller: ControllerService) -> None:
        self._store = store
        self._controller = controller

    async def create_topics(self, request: CreateTopicsRequest) -> TopicsResponse:
        async def all_of_them() -> Iterable[TopicResult]:
            pool = request.broker.pool
            places = await self._places(pool)
            known = await self._topics(pool)
            return [
                await self._told(new.topic, self._create(new, request, places, known))
                for new in request.topics
            ]

        return await self._answered(request.broker, len(request.topics), all_of_them)

    # ---- creating

    async def _create(
        self,
        new: NewTopic,
        request: CreateTopicsRequest,
        places: PoolPlaces,
        known: dict[str, Object],
    ) -> TopicResult:
        stored = known.get(new.topic)
        if stored is not None:
            if _was_made_for(stored, request):
                return _made(stored)
            return _refused(new.topic, _exists(stored))
        refusal = self._data_of_a_former_one(places.pool, new)
        if refusal is not None:
            return _refused(new.topic, refusal)
        name = ""
        for choice in range(NAME_CHOICES):
            item = topic_manifest(new, places, request_id=request.request_id, name_choice=choice)
            if isinstance(item, Refusal):
                return _refused(new.topic, item)
            if request.validate_only:
                return replace(_made(item), topic_id=TopicId(""))
            try:
                made = await self._store.create(TOPIC, item)
            except AlreadyExists:
                name = item["metadata"]["name"]  # of another pool, or of another topicName
                continue
            except OutcomeUnknown as error:
                return await self._settled(new, request, item, error)
            logger.info(
                "topic made for a client",
                extra={"topic": new.topic, "object": made["metadata"]["name"]},
            )
            return _made(made)
        return _refused(
            new.topic,
            Refusal(
                ErrorCode.TOPIC_ALREADY_EXISTS,
                f"another Topic has the object name {name}",
            ),
        )

    async def _settled(
        self, new: NewTopic, request: CreateTopicsRequest, item: Object, error: StoreError
    ) -> TopicResult:
        """The answer was lost: what is stored says whether it happened (S3)."""
        metadata = item["metadata"]
        stored = await self._store.get(TOPIC, metadata["namespace"], metadata["name"])
        if stored is not None and _was_made_for(stored, request):
            return _made(stored)
        return _refused(new.topic, Refusal(ErrorCode.REQUEST_TIMED_OUT, f"{error}: ask again"))

    def _data_of_a_former_one(self, pool: str, new: NewTopic) -> Refusal | None:
        """Whoever makes a topic over Kafka expects it empty."""
        if new.may_adopt:
            return None
        for view in self._controller.topics(pool):
            is_kept = view.is_retained or view.deletion_policy != "Delete"
            if view.topic.topic == new.topic and is_kept:
                return Refusal(
                    ErrorCode.POLICY_VIOLATION,
                    f"the data of a former topic {new.topic} is kept, by its deletionPolicy Retain:"
                    " apply a Topic manifest of that name to serve it again, and give it"
                    " deletionPolicy Delete and delete it to be rid of it",
                )
        return None

    # ---- what is there

    async def _places(self, pool: str) -> PoolPlaces:
        namespace, _, name = pool.partition("/")
        stored = await self._store.get(BROKER_POOL, namespace, name)
        if stored is None:  # going away: its brokers are still here
            views = self._controller.brokers(pool)
            return PoolPlaces(pool, tuple(view.broker_id for view in views if view.is_active))
        spec = apply_defaults(stored)["spec"]
        numbers = map(BrokerId, range(spec["replicas"]))
        return PoolPlaces(pool, tuple(n for n in numbers if n not in spec["drain"]))

    async def _topics(self, pool: str) -> dict[str, Object]:
        """By topicName; of several the oldest, as reconcilers have it."""
        namespace, _, pool_name = pool.partition("/")
        stored = [apply_defaults(item) for item in await self._store.list(TOPIC, namespace)]
        ours = [item for item in stored if item["spec"]["brokerPool"] == pool_name]
        ours.sort(key=lambda item: item["metadata"].get("creationTimestamp", ""), reverse=True)
        return {topic_name(item): item for item in ours}

    # ---- answering

    async def _answered(
        self,
        broker: AskingBroker,
        count: int,
        work: Callable[[], Awaitable[Iterable[TopicResult]]],
    ) -> TopicsResponse:
        """Never raises for what a broker sent, nor for the store's trouble."""
        not_controller = TopicsResponse(
            ErrorCode.NOT_CONTROLLER, controller_address=self._controller.leader_address
        )
        if not self._controller.is_leading:
            return not_controller
        epoch = self._controller.controller_epoch
        if count > MAX_CHANGES:
            message = f"expected at most {MAX_CHANGES} changes in one request, found {count}"
            return TopicsResponse(ErrorCode.INVALID_REQUEST, message, epoch)
        try:
            if not self._is_registered(broker):
                return TopicsResponse(ErrorCode.STALE_BROKER_EPOCH, "register first", epoch)
            results = tuple(await work())
        except NotLeading:
            return not_controller
        except StoreError as error:
            return TopicsResponse(ErrorCode.REQUEST_TIMED_OUT, f"{error}: ask again", epoch)
        return TopicsResponse(ErrorCode.NONE, controller_epoch=epoch, results=results)

    def _is_registered(self, broker: AskingBroker) -> bool:
        life = (broker.broker_id, broker.broker_epoch)
        views = self._controller.brokers(broker.pool)
        return any((view.broker_id, view.broker_epoch) == life for view in views)

    async def _told(self, topic: str, change: Awaitable[TopicResult]) -> TopicResult:
        """One topic's trouble with the store is its own: others go on."""
        try:
            return await change
        except Refused as error:
            # Our rules were looked at before: this is somebody's admission policy, or a quota.
            return _refused(topic, Refusal(ErrorCode.POLICY_VIOLATION, str(error)))
        except StoreError as error:
            return _refused(topic, Refusal(ErrorCode.REQUEST_TIMED_OUT, f"{error}: ask again"))


def _was_made_for(stored: Object, request: CreateTopicsRequest) -> bool:
    annotations = stored["metadata"].get("annotations") or {}
    return bool(annotations.get(REQUEST_ANNOTATION) == request.request_id)


def _exists(stored: Object) -> Refusal:
    metadata = stored["metadata"]
    going = ", and is being deleted" if metadata.get("deletionTimestamp") else ""
    return Refusal(
        ErrorCode.TOPIC_ALREADY_EXISTS,
        f"topic {topic_name(stored)} exists: it is Topic {metadata['name']}{going}",
    )


def _refused(topic: str, refusal: Refusal) -> TopicResult:
    return TopicResult(topic, refusal.error, refusal.message)


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
