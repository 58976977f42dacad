"""Answer ElectLeaders (KIP-460) and the requests for reassignments (KIP-455).

A reassignment is written into the Topic's spec.placement and begins from there; the list of those
that run comes from this broker's metadata. An election changes no manifest.
"""

from collections.abc import Iterable

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.partition_state import PartitionState
from tidemark_protocol.topic_messages import (
    MAX_CHANGES,
    ElectedPartition,
    Reassignment,
    TopicResult,
)

from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.apis.topics import by_topic, reported
from tidemark_broker.kafka.network.request import ApiHandler, KafkaRequest
from tidemark_broker.kafka_wire.messages.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS_API,
    ELECT_LEADERS_API,
    LIST_PARTITION_REASSIGNMENTS_API,
    PREFERRED,
    UNCLEAN,
)
from tidemark_broker.kafka_wire.messages.schema import Values
from tidemark_broker.metadata.topic_admin_client import Deadline

_Place = tuple[str, int]  # topic, partition


def partition_admin_handlers(context: HandlerContext) -> tuple[ApiHandler, ...]:
    admin = PartitionAdmin(context)
    return (
        context.answering.async_handler(ELECT_LEADERS_API, admin.elect),
        context.answering.async_handler(ALTER_PARTITION_REASSIGNMENTS_API, admin.reassign),
        context.answering.sync_handler(LIST_PARTITION_REASSIGNMENTS_API, admin.reassignments),
    )


class PartitionAdmin:
    def __init__(self, context: HandlerContext) -> None:
        self._metadata = context.partitions.metadata
        self._changes = context.topic_admin

    # ---- elections

    async def elect(self, request: KafkaRequest, requested: Values) -> Values:
        unclean = requested["election_type"] == UNCLEAN
        if requested["election_type"] not in (PREFERRED, UNCLEAN):
            return {"error": ErrorCode.INVALID_REQUEST, "topics": ()}
        places = self._requested_places(requested["topics"])
        wants_all = requested["topics"] is None
        results = {place: self._needless(place, unclean=unclean) for place in places}
        needed = [place for place in places if results[place].error is ErrorCode.NONE]
        deadline = Deadline(requested["timeout_ms"])
        for first in range(0, len(needed), MAX_CHANGES):
            chunk = needed[first : first + MAX_CHANGES]
            results |= await self._elected(chunk, deadline, unclean=unclean)
        responses = {
            place: reported(result)
            for place, result in results.items()
            if not (wants_all and result.error is ErrorCode.ELECTION_NOT_NEEDED)
        }
        return {"error": ErrorCode.NONE, "topics": _grouped(responses)}

    async def _elected(
        self, places: list[_Place], deadline: Deadline, *, unclean: bool
    ) -> dict[_Place, TopicResult]:
        partitions = tuple(ElectedPartition(*place) for place in places)
        response = await self._changes.elect(partitions, deadline, unclean=unclean)
        if response.error is not ErrorCode.NONE:
            return {
                place: TopicResult(place[0], response.error, response.message, place[1])
                for place in places
            }
        return {(result.topic, result.partition): result for result in response.results}

    def _needless(self, place: _Place, *, unclean: bool) -> TopicResult:
        """Return the error that this broker's metadata shows; NONE: the controller decides."""
        topic, partition = place
        if not self._is_served(place):
            return _unknown(place)
        state = self._metadata.partition(topic, partition)
        if state is not None and (
            state.has_leader if unclean else state.leader == state.replicas[0]
        ):
            message = "the preferred leader already leads"
            return TopicResult(topic, ErrorCode.ELECTION_NOT_NEEDED, message, partition)
        return TopicResult(topic, ErrorCode.NONE, partition=partition)

    # ---- moves

    async def reassign(self, request: KafkaRequest, requested: Values) -> Values:
        results: dict[_Place, TopicResult] = {}
        moves: list[Reassignment] = []
        for topic in requested["topics"]:
            for entry in topic["partitions"]:
                place = topic["topic"], entry["partition"]
                replicas = entry["replicas"]
                results[place] = self._needless_move(place, replicas)
                if results[place].error is ErrorCode.NONE:
                    target = None if replicas is None else tuple(map(BrokerId, replicas))
                    moves.append(Reassignment(*place, target))
        results |= await self._reassigned(moves, requested)
        return {
            "may_change_replication_factor": requested["may_change_replication_factor"],
            "error": ErrorCode.NONE,
            "error_message": None,
            "topics": _grouped({place: reported(result) for place, result in results.items()}),
        }

    async def _reassigned(
        self, moves: list[Reassignment], requested: Values
    ) -> dict[_Place, TopicResult]:
        if not moves:
            return {}
        if len(moves) > MAX_CHANGES:
            message = f"expected at most {MAX_CHANGES} partitions in a request, found {len(moves)}"
            rejected = {
                move.topic: TopicResult(move.topic, ErrorCode.INVALID_REQUEST, message)
                for move in moves
            }
            return {(move.topic, move.partition): rejected[move.topic] for move in moves}
        response = await self._changes.reassign(
            tuple(moves),
            Deadline(requested["timeout_ms"]),
            may_change_replication_factor=requested["may_change_replication_factor"],
        )
        by_name = by_topic(response, [move.topic for move in moves])
        return {(move.topic, move.partition): by_name[move.topic] for move in moves}

    def _needless_move(self, place: _Place, replicas: tuple[int, ...] | None) -> TopicResult:
        topic, partition = place
        if not self._is_served(place):
            return _unknown(place)
        state = self._metadata.partition(topic, partition)
        if replicas is None and state is not None and not _is_moving(state):
            message = "the partition is not being reassigned"
            return TopicResult(topic, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, message, partition)
        return TopicResult(topic, ErrorCode.NONE, partition=partition)

    def reassignments(self, request: KafkaRequest, requested: Values) -> Values:
        moving: dict[_Place, Values] = {}
        for topic, partition in self._requested_places(requested["topics"]):
            state = self._metadata.partition(topic, partition)
            if state is not None and _is_moving(state) and self._metadata.served_topic(topic):
                moving[topic, partition] = {
                    "replicas": state.replicas,
                    "adding_replicas": state.adding_replicas,
                    "removing_replicas": state.removing_replicas,
                }
        return {"error": ErrorCode.NONE, "error_message": None, "topics": _grouped(moving)}

    # ---- inside

    def _is_served(self, place: _Place) -> bool:
        """Return whether the partition exists, also if its state is unknown here."""
        is_visible = self._metadata.served_topic(place[0]) is not None
        return is_visible and self._metadata.has_partition(*place)

    def _requested_places(self, topics: Iterable[Values] | None) -> list[_Place]:
        """Return each requested partition once; None requests those of all topics."""
        if topics is None:
            names = sorted(self._metadata.topics)
            visible = [t for name in names if (t := self._metadata.served_topic(name))]
            return [(t.topic, number) for t in visible for number in range(t.partition_count)]
        named = [(each["topic"], number) for each in topics for number in each["partitions"]]
        return list(dict.fromkeys(named))


def _unknown(place: _Place) -> TopicResult:
    message = "the partition does not exist"
    return TopicResult(place[0], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message, place[1])


def _is_moving(state: PartitionState) -> bool:
    return bool(state.adding_replicas or state.removing_replicas)


def _grouped(by_place: dict[_Place, Values]) -> tuple[Values, ...]:
    """Return topics, each with its partitions."""
    topics: dict[str, list[Values]] = {}
    for (topic, partition), values in by_place.items():
        topics.setdefault(topic, []).append({"partition": partition} | values)
    return tuple({"topic": topic, "partitions": tuple(rest)} for topic, rest in topics.items())
