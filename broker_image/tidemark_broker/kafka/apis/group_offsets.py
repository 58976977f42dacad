"""Answer OffsetCommit v2-10, OffsetFetch v1-10 and OffsetDelete v0.

Offsets of partitions that do not exist are rejected one by one and the others accepted, as in
Kafka. Committed offsets of a deleted topic are still returned, except by v10, which names topics by
id: groups store names.
"""

from collections.abc import Iterable

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.coordinator.core.requests import (
    FetchedOffset,
    GroupResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    PartitionError,
)
from tidemark_broker.coordinator.group_coordinator_service import GroupCoordinatorService
from tidemark_broker.kafka.apis.group_membership import ask
from tidemark_broker.kafka.network.request import ApiHandler, KafkaRequest
from tidemark_broker.kafka.network.response_writer import ResponseWriter
from tidemark_broker.kafka_wire.messages.group_admin import OFFSET_DELETE_API
from tidemark_broker.kafka_wire.messages.group_offsets import OFFSET_COMMIT_API, OFFSET_FETCH_API
from tidemark_broker.kafka_wire.messages.schema import Each, Values
from tidemark_broker.metadata.metadata_cache import MetadataCache

_FIRST_FETCH_WITH_ERROR = 2
_FIRST_FETCH_OF_GROUPS = 8  # KIP-709
_FIRST_WITH_TOPIC_IDS = 10  # of both requests
RESPONSE_BYTES = 16 * 1024 * 1024
OFFSET_BYTES = 32  # of one in an answer, without its metadata

RequestedOnce = dict[tuple[str, int], None] | None  # None: all that the group has committed


def group_offset_handlers(
    groups: GroupCoordinatorService, answering: ResponseWriter, metadata: MetadataCache
) -> tuple[ApiHandler, ...]:
    requested = GroupOffsets(groups, metadata)
    return (
        answering.async_handler(OFFSET_COMMIT_API, requested.commit),
        answering.sync_handler(OFFSET_FETCH_API, requested.fetch),
        answering.async_handler(OFFSET_DELETE_API, requested.delete),
    )


class ResponseReservation:
    """The room for offsets in one answer.

    Groups that come when it is full get the error of a load that runs: clients ask for these again,
    and at least one group is answered each time.
    """

    def __init__(self) -> None:
        self._left_bytes = RESPONSE_BYTES

    @property
    def is_full(self) -> bool:
        return self._left_bytes <= 0

    def take(self, offsets: Iterable[FetchedOffset]) -> None:
        for offset in offsets:
            self._left_bytes -= OFFSET_BYTES
            if offset.committed is not None:
                self._left_bytes -= len(offset.committed.metadata)


class GroupOffsets:
    def __init__(self, groups: GroupCoordinatorService, metadata: MetadataCache) -> None:
        self._groups = groups
        self._metadata = metadata

    def _is_known(self, topic: str, partition: int) -> bool:
        return self._metadata.has_partition(topic, partition)

    async def commit(self, request: KafkaRequest, requested: Values) -> Values:
        errors: dict[tuple[str, int], ErrorCode] = {}
        offsets = []
        has_ids = request.version >= _FIRST_WITH_TOPIC_IDS
        for topic in requested["topics"]:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if has_ids and not self._name(topic):
                unknown = ErrorCode.UNKNOWN_TOPIC_ID
            for entry in topic["partitions"]:
                key = (topic["topic"], entry["partition"])
                errors[key] = unknown
                if unknown is not ErrorCode.UNKNOWN_TOPIC_ID and self._is_known(*key):
                    metadata = entry["metadata"] or ""
                    offsets.append(
                        OffsetToCommit(*key, entry["offset"], entry["leader_epoch"], metadata)
                    )
        if offsets:
            commit = OffsetCommit(
                requested["group_id"],
                tuple(offsets),
                requested["generation_id"],
                requested["member_id"],
                requested["group_instance_id"],
                requested["retention_ms"],
            )
            found = await ask(self._groups, commit, OffsetCommitResponse)
            errors |= _by_partition(found.partitions)
        return {"topics": _errors_as_requested(requested, errors)}

    def _name(self, topic: Values) -> str:
        """Set the name of a topic that is requested by id, and return it; "" if it is unknown."""
        known = self._metadata.topics_by_id.get(topic["topic_id"])
        topic["topic"] = "" if known is None else known.topic
        return str(topic["topic"])

    def fetch(self, request: KafkaRequest, requested: Values) -> Values:
        if request.version >= _FIRST_WITH_TOPIC_IDS:
            return self._fetch_by_id(requested)
        if request.version >= _FIRST_FETCH_OF_GROUPS:
            room = ResponseReservation()
            groups = tuple(_requested_once(requested["groups"]).items())
            return {"groups": Each(groups, lambda entry: self._fetch_group(*entry, room))}
        ((group_id, partitions),) = _requested_once((requested,)).items()
        found = self._fetch_group(group_id, partitions, ResponseReservation())
        if request.version < _FIRST_FETCH_WITH_ERROR and found["error"] is not ErrorCode.NONE:
            found["topics"] = tuple(
                {
                    "topic": topic["topic"],
                    "partitions": tuple(
                        {"partition": partition, "error": found["error"]}
                        for partition in topic["partitions"]
                    ),
                }
                for topic in requested["topics"]
            )
        return found

    def _fetch_by_id(self, requested: Values) -> Values:
        """Return offsets by topic id.

        Each partition of an unknown id gets an error; offsets of a deleted topic are left out.
        """
        unknown: dict[str, list[Values]] = {}
        for group in requested["groups"]:
            topics = group["topics"] or ()
            unknown.setdefault(group["group_id"], []).extend(
                topic for topic in topics if not self._name(topic)
            )
            if group["topics"] is not None:
                group["topics"] = tuple(topic for topic in topics if topic["topic"])
        room = ResponseReservation()

        def answer(entry: tuple[str, RequestedOnce]) -> Values:
            found = self._fetch_group(*entry, room)
            known = self._metadata.topics
            reported = [
                topic | {"topic_id": known[topic["topic"]].topic_id}
                for topic in found["topics"]
                if topic["topic"] in known
            ]
            if found["error"] is ErrorCode.NONE:
                reported += map(_unknown_id, unknown[entry[0]])
            return found | {"topics": reported}

        return {"groups": Each(tuple(_requested_once(requested["groups"]).items()), answer)}

    def _fetch_group(
        self, group_id: str, partitions: RequestedOnce, room: "ResponseReservation"
    ) -> Values:
        if room.is_full:
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return {"group_id": group_id, "topics": (), "error": error}
        responses: list[GroupResponse] = []
        wanted = None if partitions is None else tuple(partitions)
        self._groups.send(OffsetFetch(group_id, wanted), responses.append)
        (found,) = responses  # what is committed is in memory: nothing is waited for
        assert isinstance(found, OffsetFetchResponse), f"answered {type(found).__name__}"
        room.take(found.offsets)
        by_topic: dict[str, list[FetchedOffset]] = {}
        for offset in found.offsets:
            by_topic.setdefault(offset.topic, []).append(offset)
        topics = tuple(
            {"topic": topic, "partitions": Each(offsets, _fetched)}
            for topic, offsets in by_topic.items()
        )
        return {"group_id": group_id, "topics": topics, "error": found.error}

    async def delete(self, request: KafkaRequest, requested: Values) -> Values:
        errors = {
            (topic["topic"], entry["partition"]): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for topic in requested["topics"]
            for entry in topic["partitions"]
        }
        delete = OffsetDelete(
            requested["group_id"], tuple(key for key in errors if self._is_known(*key))
        )
        found = await ask(self._groups, delete, OffsetDeleteResponse)
        if found.error is not ErrorCode.NONE:
            return {"error": found.error}
        errors |= _by_partition(found.partitions)
        return {"error": ErrorCode.NONE, "topics": _errors_as_requested(requested, errors)}


def _requested_once(entries: Iterable[Values]) -> dict[str, RequestedOnce]:
    """Return each group and each of its partitions once, however often they are named.

    A partition's metadata may be large.
    """
    requested: dict[str, RequestedOnce] = {}
    for entry in entries:
        known = requested.setdefault(entry["group_id"], {})
        if entry["topics"] is None or known is None:
            requested[entry["group_id"]] = None
            continue
        for topic in entry["topics"]:
            known.update(dict.fromkeys((topic["topic"], each) for each in topic["partitions"]))
    return requested


def _by_partition(found: tuple[PartitionError, ...]) -> dict[tuple[str, int], ErrorCode]:
    return {(entry.topic, entry.partition): entry.error for entry in found}


def _errors_as_requested(
    requested: Values, errors: dict[tuple[str, int], ErrorCode]
) -> tuple[Values, ...]:
    return tuple(
        {
            "topic": topic["topic"],
            "topic_id": topic.get("topic_id"),
            "partitions": tuple(
                {
                    "partition": entry["partition"],
                    "error": errors[topic["topic"], entry["partition"]],
                }
                for entry in topic["partitions"]
            ),
        }
        for topic in requested["topics"]
    )


def _unknown_id(topic: Values) -> Values:
    error = ErrorCode.UNKNOWN_TOPIC_ID
    numbers = tuple(dict.fromkeys(topic["partitions"]))
    return {
        "topic_id": topic["topic_id"],
        "partitions": tuple({"partition": number, "error": error} for number in numbers),
    }


def _fetched(offset: FetchedOffset) -> Values:
    committed = offset.committed
    if committed is None:
        return {"partition": offset.partition}
    return {
        "partition": offset.partition,
        "offset": committed.offset,
        "leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
    }
