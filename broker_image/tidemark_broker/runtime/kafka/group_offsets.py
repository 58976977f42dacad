"""OffsetCommit v2-9, OffsetFetch v1-9, OffsetDelete v0: how far groups have read.

Offsets of partitions that there are not are refused one by one, the others are taken (as Kafka).
Committed offsets of a topic that is gone are still told to who asks.
"""

import asyncio

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.groups.messages import (
    FetchedOffset,
    OffsetCommit,
    OffsetCommitAnswer,
    OffsetDelete,
    OffsetDeleteAnswer,
    OffsetFetch,
    OffsetFetchAnswer,
    OffsetToCommit,
    PartitionError,
)
from tidemark_broker.runtime.group_coordinator import GroupCoordinators
from tidemark_broker.runtime.kafka.answering import Answering
from tidemark_broker.runtime.kafka.group_members import ask
from tidemark_broker.runtime.kafka.requests import ApiHandler, KafkaRequest
from tidemark_broker.runtime.metadata import MetadataCache
from tidemark_broker.wire.offset_commit import OFFSET_COMMIT_API
from tidemark_broker.wire.offset_delete import OFFSET_DELETE_API
from tidemark_broker.wire.offset_fetch import OFFSET_FETCH_API
from tidemark_broker.wire.tables import Values

_FIRST_FETCH_WITH_ERROR = 2
_FIRST_FETCH_OF_GROUPS = 8  # KIP-709
_GROUPS_OF_A_TURN = 256  # answered at once, then others have theirs


def group_offset_handlers(
    groups: GroupCoordinators, answering: Answering, metadata: MetadataCache
) -> tuple[ApiHandler, ...]:
    asked = GroupOffsets(groups, metadata)
    return (
        answering.table_handler(OFFSET_COMMIT_API, asked.commit),
        answering.table_handler(OFFSET_FETCH_API, asked.fetch),
        answering.table_handler(OFFSET_DELETE_API, asked.delete),
    )


class GroupOffsets:
    def __init__(self, groups: GroupCoordinators, metadata: MetadataCache) -> None:
        self._groups = groups
        self._metadata = metadata

    def _is_known(self, topic: str, partition: int) -> bool:
        return self._metadata.has_partition(topic, partition)

    async def commit(self, request: KafkaRequest, asked: Values) -> Values:
        errors: dict[tuple[str, int], ErrorCode] = {}
        offsets = []
        for topic in asked["topics"]:
            for entry in topic["partitions"]:
                key = (topic["topic"], entry["partition"])
                errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if self._is_known(*key):
                    metadata = entry["metadata"] or ""
                    offsets.append(
                        OffsetToCommit(*key, entry["offset"], entry["leader_epoch"], metadata)
                    )
        if offsets:
            commit = OffsetCommit(
                asked["group_id"],
                tuple(offsets),
                asked["generation_id"],
                asked["member_id"],
                asked["group_instance_id"],
                asked["retention_ms"],
            )
            found = await ask(self._groups, commit, OffsetCommitAnswer)
            errors |= _by_partition(found.partitions)
        return {"topics": _errors_as_asked(asked, errors)}

    async def fetch(self, request: KafkaRequest, asked: Values) -> Values:
        if request.version >= _FIRST_FETCH_OF_GROUPS:
            found_groups = []
            for entry in asked["groups"]:
                found_groups.append(await self._fetch_group(entry))
                if len(found_groups) % _GROUPS_OF_A_TURN == 0:
                    await asyncio.sleep(0)
            return {"groups": found_groups}
        found = await self._fetch_group(asked)
        if request.version < _FIRST_FETCH_WITH_ERROR and found["error"] is not ErrorCode.NONE:
            found["topics"] = tuple(
                {
                    "topic": topic["topic"],
                    "partitions": tuple(
                        {"partition": partition, "error": found["error"]}
                        for partition in topic["partitions"]
                    ),
                }
                for topic in asked["topics"]
            )
        return found

    async def _fetch_group(self, asked: Values) -> Values:
        topics = asked["topics"]
        partitions = None
        if topics is not None:
            partitions = tuple(
                (topic["topic"], partition) for topic in topics for partition in topic["partitions"]
            )
        fetch = OffsetFetch(asked["group_id"], partitions)
        found = await ask(self._groups, fetch, OffsetFetchAnswer)
        by_topic: dict[str, list[Values]] = {}
        for offset in found.offsets:
            by_topic.setdefault(offset.topic, []).append(_fetched(offset))
        return {
            "group_id": asked["group_id"],
            "topics": _topics(by_topic),
            "error": found.error,
        }

    async def delete(self, request: KafkaRequest, asked: Values) -> Values:
        errors = {
            (topic["topic"], entry["partition"]): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for topic in asked["topics"]
            for entry in topic["partitions"]
        }
        delete = OffsetDelete(
            asked["group_id"], tuple(key for key in errors if self._is_known(*key))
        )
        found = await ask(self._groups, delete, OffsetDeleteAnswer)
        if found.error is not ErrorCode.NONE:
            return {"error": found.error}
        errors |= _by_partition(found.partitions)
        return {"error": ErrorCode.NONE, "topics": _errors_as_asked(asked, errors)}


def _by_partition(found: tuple[PartitionError, ...]) -> dict[tuple[str, int], ErrorCode]:
    return {(entry.topic, entry.partition): entry.error for entry in found}


def _errors_as_asked(asked: Values, errors: dict[tuple[str, int], ErrorCode]) -> tuple[Values, ...]:
    return tuple(
        {
            "topic": topic["topic"],
            "partitions": tuple(
                {
                    "partition": entry["partition"],
                    "error": errors[topic["topic"], entry["partition"]],
                }
                for entry in topic["partitions"]
            ),
        }
        for topic in asked["topics"]
    )


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


def _topics(by_topic: dict[str, list[Values]]) -> tuple[Values, ...]:
    return tuple(
        {"topic": topic, "partitions": tuple(partitions)} for topic, partitions in by_topic.items()
    )
