"""Handle brokers' requests to change topics, as writes of Topic objects.

Everything but elections is a change of a manifest: the same object, rules and reconciler as for
kubectl. A result of NONE means that it is stored; when the operator has applied it, the requesting
broker sees that in its pushes. Only the leading controller answers, because only it knows which
topics exist and which data is retained.

`topic_calls` lists what brokers may request of `TopicAdmin`, by path.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Protocol, TypeVar

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.topic_messages import (
    ADD_PARTITIONS_PATH,
    ALTER_CONFIGS_PATH,
    APPLIED_VERSION_PATH,
    CREATE_TOPICS_PATH,
    DELETE_TOPICS_PATH,
    ELECT_LEADERS_PATH,
    MAX_CHANGES,
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
    TopicsResponse,
    TopicToAlter,
    TopicToDelete,
    TopicToExpand,
)

from tidemark_operator.controller.broker_call import BrokerCall, broker_call
from tidemark_operator.controller.core.reassignment import is_moving, original_of
from tidemark_operator.controller.service import ControllerService, NotController
from tidemark_operator.store.object_store import ObjectStore, Rejected, StoreError
from tidemark_operator.topic_admin.changes import (
    Targets,
    altered,
    grown,
    reassigned,
)
from tidemark_operator.topic_admin.field_managers import RequestRejected, managed_elsewhere_error
from tidemark_operator.topic_admin.objects import (
    StoredTopic,
    TopicObjects,
    gathered,
    rejected,
    unknown_topic,
)

logger = logging.getLogger(__name__)


class HasTopic(Protocol):
    @property
    def topic(self) -> str: ...


Requested = TypeVar("Requested", bound=HasTopic)


@dataclass(frozen=True, slots=True)
class _Reassigned:
    topic: str
    moves: tuple[Reassignment, ...]


_ELECTION_WORDS = {
    ErrorCode.NONE: "",
    ErrorCode.ELECTION_NOT_NEEDED: "the preferred leader already leads",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred leader is not live and in sync:"
    " wait until it has caught up",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica is live: start their brokers",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the partition does not exist",
}


class TopicAdmin:
    def __init__(self, store: ObjectStore, controller: ControllerService) -> None:
        self._objects = TopicObjects(store, controller)
        self._controller = controller

    # ---- what brokers ask for. They never raise for what was sent, nor for the store's trouble.

    async def create_topics(self, request: CreateTopicsRequest) -> TopicsResponse:
        async def change(new: NewTopic, there: StoredTopic) -> TopicResult:
            return await self._objects.create(new, request, there)

        return await self._each(request.broker, request.topics, change)

    async def delete_topics(self, request: DeleteTopicsRequest) -> TopicsResponse:
        async def change(to_delete: TopicToDelete, there: StoredTopic) -> TopicResult:
            return await self._objects.delete(to_delete, there)

        return await self._each(request.broker, request.topics, change)

    async def add_partitions(self, request: AddPartitionsRequest) -> TopicsResponse:
        async def change(requested: TopicToExpand, there: StoredTopic) -> TopicResult:
            return await self._objects.change(
                requested.topic,
                there,
                request.request_id,
                lambda stored: grown(stored, requested, there.places, there.room),
                validate_only=request.validate_only,
            )

        return await self._each(request.broker, request.topics, change)

    async def alter_configs(self, request: AlterConfigsRequest) -> TopicsResponse:
        async def change(requested: TopicToAlter, there: StoredTopic) -> TopicResult:
            return await self._objects.change(
                requested.topic,
                there,
                request.request_id,
                lambda stored: altered(stored, requested),
                validate_only=request.validate_only,
            )

        return await self._each(request.broker, request.topics, change)

    async def reassign_partitions(self, request: ReassignPartitionsRequest) -> TopicsResponse:
        """Reassign partitions; return one result for each named topic."""

        async def change(requested: _Reassigned, there: StoredTopic) -> TopicResult:
            targets = self._targets(requested, there)
            if isinstance(targets, RequestRejected):
                return rejected(requested.topic, targets)
            may_change = request.may_change_replication_factor
            return await self._objects.change(
                requested.topic,
                there,
                request.request_id,
                lambda stored: reassigned(
                    stored, targets, there.places, may_change_factor=may_change
                ),
            )

        return await self._each(request.broker, _by_topic(request), change)

    async def elect_leaders(self, request: ElectLeadersRequest) -> TopicsResponse:
        """Elect leaders; return one result for each partition."""
        partitions: dict[str, list[int]] = {}
        for requested in request.partitions:
            partitions.setdefault(requested.topic, []).append(requested.partition)

        async def elected() -> Iterable[TopicResult]:
            there = await self._objects.there(request.broker.pool, partitions)
            outcomes: dict[ElectedPartition, TopicResult] = {}
            for topic, numbers in partitions.items():
                for result in await self._elect(topic, numbers, there, unclean=request.unclean):
                    outcomes[ElectedPartition(topic, result.partition)] = result
            return [outcomes[requested] for requested in request.partitions]

        return await self._responded(request.broker, len(request.partitions), elected)

    async def applied_version(self, request: AppliedVersionRequest) -> TopicsResponse:
        async def nothing() -> Iterable[TopicResult]:
            return ()

        response = await self._responded(request.broker, 0, nothing)
        if response.error is not ErrorCode.NONE:
            return response
        return replace(
            response, applied_version=self._controller.applied_version(request.broker.pool)
        )

    async def _each(
        self,
        broker: RequestingBroker,
        requested: Sequence[Requested],
        change: Callable[[Requested, StoredTopic], Awaitable[TopicResult]],
    ) -> TopicsResponse:
        async def all_of_them() -> Iterable[TopicResult]:
            there = await self._objects.there(broker.pool, (each.topic for each in requested))
            by_topic: dict[str, list[int]] = {}
            for place, each in enumerate(requested):
                by_topic.setdefault(each.topic, []).append(place)

            async def of_a_topic(places: list[int]) -> list[TopicResult]:
                """Apply a topic's changes one after the other: a request may name it twice."""
                named = (requested[place] for place in places)
                return [await self._reported(each.topic, change(each, there)) for each in named]

            found = await gathered(by_topic.values(), of_a_topic)
            results = dict(zip(chain(*by_topic.values()), chain(*found), strict=True))
            return [results[place] for place in range(len(requested))]

        return await self._responded(broker, len(requested), all_of_them)

    # ---- moves and elections

    def _targets(self, requested: _Reassigned, there: StoredTopic) -> Targets | RequestRejected:
        view = self._objects.view(there.places.pool, requested.topic)
        if view is None:
            return unknown_topic(requested.topic)
        states = {state.partition: state for state in view.partitions}
        targets: dict[int, tuple[BrokerId, ...]] = {}
        for move in requested.moves:
            state = states.get(move.partition)
            if move.replicas is not None:
                targets[move.partition] = move.replicas
            elif state is None and 0 <= move.partition < view.topic.partition_count:
                said = f"the state of partition {move.partition} is not known: retry"
                return RequestRejected(ErrorCode.REQUEST_TIMED_OUT, said)
            elif state is None:
                return RequestRejected(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"partition {move.partition} does not exist",
                )
            elif not is_moving(state):
                return RequestRejected(
                    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                    f"partition {move.partition} is not being reassigned",
                )
            else:
                targets[move.partition] = original_of(state)
        return targets

    async def _elect(
        self, topic: str, numbers: list[int], there: StoredTopic, *, unclean: bool
    ) -> list[TopicResult]:
        view, stored = self._objects.view(there.places.pool, topic), there.topics.get(topic)
        if view is None or stored is None:
            unknown = unknown_topic(topic)
            return [TopicResult(topic, unknown.error, unknown.message, n) for n in numbers]
        rejection = managed_elsewhere_error(stored) if unclean else None
        if rejection is not None:
            return [TopicResult(topic, rejection.error, rejection.message, n) for n in numbers]
        outcomes = await self._controller.elect_leaders(
            there.places.pool, view.topic.topic_id, sorted(set(numbers)), unclean=unclean
        )
        return [TopicResult(topic, outcomes[n], _ELECTION_WORDS[outcomes[n]], n) for n in numbers]

    # ---- answering

    async def _responded(
        self,
        broker: RequestingBroker,
        count: int,
        work: Callable[[], Awaitable[Iterable[TopicResult]]],
    ) -> TopicsResponse:
        """Return the response; never raise for a broker's request or a store's error."""
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
        except NotController:
            return not_controller
        except StoreError as error:
            return TopicsResponse(ErrorCode.REQUEST_TIMED_OUT, f"{error}: retry", epoch)
        return TopicsResponse(ErrorCode.NONE, controller_epoch=epoch, results=results)

    def _is_registered(self, broker: RequestingBroker) -> bool:
        life = (broker.broker_id, broker.broker_epoch)
        views = self._controller.brokers(broker.pool)
        return any((view.broker_id, view.broker_epoch) == life for view in views)

    async def _reported(self, topic: str, change: Awaitable[TopicResult]) -> TopicResult:
        """Return the result of one topic; its store error affects no other topic."""
        try:
            return await change
        except Rejected as error:
            # Our rules were looked at before: this is somebody's admission policy, or a quota.
            return rejected(topic, RequestRejected(ErrorCode.POLICY_VIOLATION, str(error)))
        except StoreError as error:
            return rejected(topic, RequestRejected(ErrorCode.REQUEST_TIMED_OUT, f"{error}: retry"))


def _by_topic(request: ReassignPartitionsRequest) -> tuple[_Reassigned, ...]:
    by_topic: dict[str, list[Reassignment]] = {}
    for each in request.reassignments:
        by_topic.setdefault(each.topic, []).append(each)
    return tuple(_Reassigned(topic, tuple(moves)) for topic, moves in by_topic.items())


def topic_calls(admin: TopicAdmin) -> dict[str, BrokerCall]:
    return {
        APPLIED_VERSION_PATH: broker_call(AppliedVersionRequest, admin.applied_version),
        CREATE_TOPICS_PATH: broker_call(CreateTopicsRequest, admin.create_topics),
        DELETE_TOPICS_PATH: broker_call(DeleteTopicsRequest, admin.delete_topics),
        ADD_PARTITIONS_PATH: broker_call(AddPartitionsRequest, admin.add_partitions),
        ALTER_CONFIGS_PATH: broker_call(AlterConfigsRequest, admin.alter_configs),
        REASSIGN_PARTITIONS_PATH: broker_call(ReassignPartitionsRequest, admin.reassign_partitions),
        ELECT_LEADERS_PATH: broker_call(ElectLeadersRequest, admin.elect_leaders),
    }
