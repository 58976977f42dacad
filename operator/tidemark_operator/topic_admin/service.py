"""Brokers' requests to change topics, as writes of Topic objects (shell).

Everything but elections is a change of a manifest: the same object, the same rules and the same
reconciler as for kubectl. What is answered NONE is stored; when the operator has made it so, the
broker that asked sees in its pushes. The leading controller alone answers, as it alone knows which
topics there are and what data is kept of former ones.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, TopicId
from tidemark_protocol.topic_messages import (
    MAX_CHANGES,
    AddPartitionsRequest,
    AlterConfigsRequest,
    AlteredTopic,
    AskingBroker,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DoomedTopic,
    ElectedPartition,
    ElectLeadersRequest,
    GrownTopic,
    NewTopic,
    Reassignment,
    ReassignPartitionsRequest,
    TopicResult,
    TopicsResponse,
)

from tidemark_operator.controller.reassignment import is_moving, original_of
from tidemark_operator.controller.service import ControllerService, NotLeading
from tidemark_operator.controller.views import TopicView
from tidemark_operator.manifests.schemas import apply_defaults, effective, validate
from tidemark_operator.manifests.spec_rules import topic_name
from tidemark_operator.stores.object_store import (
    BROKER_POOL,
    TOPIC,
    AlreadyExists,
    Conflict,
    Object,
    ObjectStore,
    OutcomeUnknown,
    Refused,
    StoreError,
)
from tidemark_operator.topic_admin.changes import (
    Targets,
    altered,
    deletion_refusal,
    grown,
    reassigned,
)
from tidemark_operator.topic_admin.keepers import REQUEST_ANNOTATION, keeper_refusal
from tidemark_operator.topic_admin.new_topics import PoolPlaces, topic_manifest
from tidemark_operator.topic_admin.refusal import Refusal

logger = logging.getLogger(__name__)

NAME_CHOICES = 2
MAX_TRIES = 5  # against other writers of the same object


class _OfATopic(Protocol):
    @property
    def topic(self) -> str: ...


Asked = TypeVar("Asked", bound=_OfATopic)


@dataclass(frozen=True, slots=True)
class _There:
    """What a request found when it came."""

    places: PoolPlaces
    topics: dict[str, Object]  # by topicName


@dataclass(frozen=True, slots=True)
class _Reassigned:
    topic: str
    moves: tuple[Reassignment, ...]


_ELECTION_WORDS = {
    ErrorCode.NONE: "",
    ErrorCode.ELECTION_NOT_NEEDED: "it has the leader that it should have",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "its first replica is not live and in sync:"
    " wait until it has caught up",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "none of its replicas is live: start their brokers",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
}


class TopicAdmin:
    def __init__(self, store: ObjectStore, controller: ControllerService) -> None:
        self._store = store
        self._controller = controller

    # ---- what brokers ask for. They never raise for what was sent, nor for the store's trouble.

    async def create_topics(self, request: CreateTopicsRequest) -> TopicsResponse:
        async def change(new: NewTopic, there: _There) -> TopicResult:
            return await self._create(new, request, there)

        return await self._each(request.broker, request.topics, change)

    async def delete_topics(self, request: DeleteTopicsRequest) -> TopicsResponse:
        async def change(doomed: DoomedTopic, there: _There) -> TopicResult:
            return await self._delete(doomed, there)

        return await self._each(request.broker, request.topics, change)

    async def add_partitions(self, request: AddPartitionsRequest) -> TopicsResponse:
        async def change(asked: GrownTopic, there: _There) -> TopicResult:
            return await self._change(
                asked.topic,
                there,
                request.request_id,
                lambda stored: grown(stored, asked, there.places),
                validate_only=request.validate_only,
            )

        return await self._each(request.broker, request.topics, change)

    async def alter_configs(self, request: AlterConfigsRequest) -> TopicsResponse:
        async def change(asked: AlteredTopic, there: _There) -> TopicResult:
            return await self._change(
                asked.topic,
                there,
                request.request_id,
                lambda stored: altered(stored, asked),
                validate_only=request.validate_only,
            )

        return await self._each(request.broker, request.topics, change)

    async def reassign_partitions(self, request: ReassignPartitionsRequest) -> TopicsResponse:
        """One result for each topic that is named, for all of its partitions at once."""

        async def change(asked: _Reassigned, there: _There) -> TopicResult:
            targets = self._targets(asked, there)
            if isinstance(targets, Refusal):
                return _refused(asked.topic, targets)
            may_change = request.may_change_replication_factor
            return await self._change(
                asked.topic,
                there,
                request.request_id,
                lambda stored: reassigned(
                    stored, targets, there.places, may_change_factor=may_change
                ),
            )

        return await self._each(request.broker, _by_topic(request), change)

    async def elect_leaders(self, request: ElectLeadersRequest) -> TopicsResponse:
        """One result for each partition."""
        partitions: dict[str, list[int]] = {}
        for asked in request.partitions:
            partitions.setdefault(asked.topic, []).append(asked.partition)

        async def elected() -> Iterable[TopicResult]:
            there = await self._there(request.broker.pool)
            outcomes: dict[ElectedPartition, TopicResult] = {}
            for topic, numbers in partitions.items():
                for result in await self._elect(topic, numbers, there, unclean=request.unclean):
                    outcomes[ElectedPartition(topic, result.partition)] = result
            return [outcomes[asked] for asked in request.partitions]

        return await self._answered(request.broker, len(request.partitions), elected)

    async def _each(
        self,
        broker: AskingBroker,
        asked: Sequence[Asked],
        change: Callable[[Asked, _There], Awaitable[TopicResult]],
    ) -> TopicsResponse:
        async def all_of_them() -> Iterable[TopicResult]:
            there = await self._there(broker.pool)
            return [await self._told(each.topic, change(each, there)) for each in asked]

        return await self._answered(broker, len(asked), all_of_them)

    # ---- creating

    async def _create(
        self,
        new: NewTopic,
        request: CreateTopicsRequest,
        there: _There,
    ) -> TopicResult:
        stored, places = there.topics.get(new.topic), there.places
        if stored is not None:
            if _was_made_for(stored, request.request_id):
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
        if stored is not None and _was_made_for(stored, request.request_id):
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

    # ---- changing, deleting, electing

    async def _change(
        self,
        topic: str,
        there: _There,
        request_id: str,
        changed: Callable[[Object], Object | Refusal],
        *,
        validate_only: bool = False,
    ) -> TopicResult:
        """By compare-and-set: another's write in between is judged anew, never written over."""
        stored = there.topics.get(topic)
        for _ in range(MAX_TRIES):
            if stored is None:
                return _refused(topic, _unknown(topic))
            if _was_made_for(stored, request_id):
                return _made(stored)
            refusal = keeper_refusal(stored)
            after = changed(stored) if refusal is None else refusal
            if isinstance(after, Refusal):
                return _refused(topic, after)
            if sentences := validate(_without_status(after), _without_status(stored)):
                return _refused(topic, Refusal(ErrorCode.INVALID_REQUEST, "; ".join(sentences)))
            if validate_only or after["spec"] == stored["spec"]:
                return _made(after)
            try:
                return _made(await self._store.replace(TOPIC, _noted(after, request_id)))
            except (Conflict, OutcomeUnknown):
                metadata = stored["metadata"]
                stored = await self._store.get(TOPIC, metadata["namespace"], metadata["name"])
                stored = apply_defaults(stored) if stored is not None else None
        message = "others change the Topic at the same time: ask again"
        return _refused(topic, Refusal(ErrorCode.REQUEST_TIMED_OUT, message))

    async def _delete(self, doomed: DoomedTopic, there: _There) -> TopicResult:
        stored = there.topics.get(doomed.topic)
        if stored is None:
            if self._is_going(there.places.pool, doomed.topic):
                return TopicResult(doomed.topic, ErrorCode.NONE)
            return _refused(doomed.topic, _unknown(doomed.topic))
        metadata = stored["metadata"]
        topic_id = (stored.get("status") or {}).get("topicId") or metadata.get("uid")
        if doomed.topic_id not in ("", topic_id):
            return _refused(
                doomed.topic,
                Refusal(ErrorCode.UNKNOWN_TOPIC_ID, f"topic {doomed.topic} has id {topic_id}"),
            )
        refusal = keeper_refusal(stored) or deletion_refusal(stored)
        if refusal is not None:
            return _refused(doomed.topic, refusal)
        view = self._view(there.places.pool, doomed.topic)
        if view is not None and view.deletion_policy != "Delete":
            # The slices' copy decides what becomes of the data, and lags behind the manifest.
            await self._controller.update_topic(
                there.places.pool, view.topic, deletion_policy="Delete"
            )
        await self._store.delete(
            TOPIC, metadata["namespace"], metadata["name"], uid=metadata.get("uid")
        )
        logger.info(
            "topic deleted for a client",
            extra={"topic": doomed.topic, "object": metadata["name"]},
        )
        return TopicResult(doomed.topic, ErrorCode.NONE, topic_id=TopicId(topic_id or ""))

    def _is_going(self, pool: str, topic: str) -> bool:
        """Its object is deleted, its slices are not yet."""
        return any(
            view.topic.topic == topic and not view.is_retained and view.deletion_policy == "Delete"
            for view in self._controller.topics(pool)
        )

    def _targets(self, asked: _Reassigned, there: _There) -> Targets | Refusal:
        view = self._view(there.places.pool, asked.topic)
        if view is None:
            return _unknown(asked.topic)
        states = {state.partition: state for state in view.partitions}
        targets: dict[int, tuple[BrokerId, ...]] = {}
        for move in asked.moves:
            state = states.get(move.partition)
            if move.replicas is not None:
                targets[move.partition] = move.replicas
            elif state is None:
                return Refusal(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {move.partition}"
                )
            elif not is_moving(state):
                return Refusal(
                    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"partition {move.partition} is at rest"
                )
            else:
                targets[move.partition] = original_of(state)
        return targets

    async def _elect(
        self, topic: str, numbers: list[int], there: _There, *, unclean: bool
    ) -> list[TopicResult]:
        view, stored = self._view(there.places.pool, topic), there.topics.get(topic)
        if view is None or stored is None:
            unknown = _unknown(topic)
            return [TopicResult(topic, unknown.error, unknown.message, n) for n in numbers]
        refusal = keeper_refusal(stored) if unclean else None
        if refusal is not None:
            return [TopicResult(topic, refusal.error, refusal.message, n) for n in numbers]
        outcomes = await self._controller.elect_leaders(
            there.places.pool, view.topic.topic_id, sorted(set(numbers)), unclean=unclean
        )
        return [TopicResult(topic, outcomes[n], _ELECTION_WORDS[outcomes[n]], n) for n in numbers]

    def _view(self, pool: str, topic: str) -> TopicView | None:
        for view in self._controller.topics(pool):
            if view.topic.topic == topic and not view.is_retained:
                return view
        return None

    # ---- what is there

    async def _there(self, pool: str) -> _There:
        return _There(await self._places(pool), await self._topics(pool))

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


def _was_made_for(stored: Object, request_id: str) -> bool:
    annotations = stored["metadata"].get("annotations") or {}
    return bool(annotations.get(REQUEST_ANNOTATION) == request_id)


def _noted(item: Object, request_id: str) -> Object:
    metadata = item["metadata"]
    annotations = {**(metadata.get("annotations") or {}), REQUEST_ANNOTATION: request_id}
    return {**item, "metadata": {**metadata, "annotations": annotations}}


def _by_topic(request: ReassignPartitionsRequest) -> tuple[_Reassigned, ...]:
    by_topic: dict[str, list[Reassignment]] = {}
    for each in request.reassignments:
        by_topic.setdefault(each.topic, []).append(each)
    return tuple(_Reassigned(topic, tuple(moves)) for topic, moves in by_topic.items())


def _without_status(item: Object) -> Object:
    return {name: value for name, value in item.items() if name != "status"}


def _unknown(topic: str) -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic[:249]}")


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
