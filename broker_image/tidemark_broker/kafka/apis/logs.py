"""Answer DeleteRecords, DescribeLogDirs and AlterReplicaLogDirs for the replicas on this broker.

A broker has one directory: a replica is already there, or the request names an unknown directory.
"""

import asyncio
from collections.abc import Callable

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset

from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.network.request import ApiHandler, KafkaRequest
from tidemark_broker.kafka_wire.messages.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS_API
from tidemark_broker.kafka_wire.messages.logs import DELETE_RECORDS_API, DESCRIBE_LOG_DIRS_API
from tidemark_broker.kafka_wire.messages.schema import Values, each_partition
from tidemark_broker.log.disk import DiskSpace
from tidemark_broker.replication.delayed_delete_records import (
    DelayedDeleteRecords,
    DeleteRecordsTarget,
)
from tidemark_broker.replication.log_start_offset import DeleteRecordsResult
from tidemark_broker.replication.partition import Partition

SpaceOf = Callable[[], DiskSpace]  # of the volume; in a worker


def log_admin_handlers(context: HandlerContext) -> tuple[ApiHandler, ...]:
    admin = LogAdmin(context)
    return (
        context.answering.async_handler(DELETE_RECORDS_API, admin.delete_records),
        context.answering.async_handler(DESCRIBE_LOG_DIRS_API, admin.describe_log_dirs),
        context.answering.sync_handler(ALTER_REPLICA_LOG_DIRS_API, admin.alter_log_dirs),
    )


class LogAdmin:
    def __init__(self, context: HandlerContext) -> None:
        self._partitions = context.partitions
        self._low_watermarks = DelayedDeleteRecords(context.partitions, context.fetches)
        self._path = context.log_directory
        self._space = context.space

    async def delete_records(self, request: KafkaRequest, requested: Values) -> Values:
        """Delete records at the leader.

        The answer is sent when all live replicas have followed, or at the time limit.
        """
        responses: dict[tuple[str, int], Values] = {}
        awaited: list[DeleteRecordsTarget] = []
        for topic in requested["topics"]:
            for each in topic["partitions"]:
                place = topic["topic"], each["partition"]
                deleted = self._deleted(*place, each["offset"])
                responses[place] = {
                    "partition": place[1],
                    "low_watermark": deleted.log_start_offset,
                    "error": deleted.error,
                }
                if deleted.error is ErrorCode.NONE:
                    awaited.append(DeleteRecordsTarget(*place, deleted.log_start_offset))
        reached = await self._low_watermarks.wait(awaited, requested["timeout_ms"])
        for waited, found in zip(awaited, reached, strict=True):
            response = responses[waited.topic, waited.partition]
            response |= {"low_watermark": found.offset, "error": found.error}
        return {
            "topics": each_partition(
                requested["topics"], lambda topic, each: responses[topic, each["partition"]]
            )
        }

    def _deleted(self, topic: str, partition: int, before_offset: int) -> DeleteRecordsResult:
        replica = self._partitions.find_leading(topic, partition)
        if isinstance(replica, ErrorCode):
            return DeleteRecordsResult(replica)
        settings = replica.log.settings
        if settings.compacts and not settings.deletes:
            return DeleteRecordsResult(ErrorCode.POLICY_VIOLATION)  # as Kafka
        result = self._partitions.delete_records(topic, partition, Offset(before_offset))
        return result if result.error is ErrorCode.NONE else DeleteRecordsResult(result.error)

    async def describe_log_dirs(self, request: KafkaRequest, requested: Values) -> Values:
        topics = requested["topics"]
        wanted = (
            None
            if topics is None
            else {(each["topic"], number) for each in topics for number in each["partitions"]}
        )
        by_topic: dict[str, list[Values]] = {}
        for replica in self._partitions.replicas:
            if wanted is None or (replica.topic, replica.partition) in wanted:
                by_topic.setdefault(replica.topic, []).append(_described(replica))
        space = await asyncio.to_thread(self._space)
        directory = {
            "error": ErrorCode.NONE,
            "path": self._path,
            "topics": tuple(
                {"topic": topic, "partitions": tuple(by_topic[topic])} for topic in sorted(by_topic)
            ),
            "total_bytes": space.total_bytes,
            "usable_bytes": space.free_bytes,
        }
        return {"error": ErrorCode.NONE, "directories": (directory,)}

    def alter_log_dirs(self, request: KafkaRequest, requested: Values) -> Values:
        hosted = {(replica.topic, replica.partition) for replica in self._partitions.replicas}
        topics: dict[str, list[Values]] = {}
        for directory in requested["directories"]:
            for topic in directory["topics"]:
                for number in topic["partitions"]:
                    error = ErrorCode.NONE
                    if directory["path"] != self._path:
                        error = ErrorCode.LOG_DIR_NOT_FOUND
                    elif (topic["topic"], number) not in hosted:
                        error = ErrorCode.REPLICA_NOT_AVAILABLE
                    response = {"partition": number, "error": error}
                    topics.setdefault(topic["topic"], []).append(response)
        return {"topics": tuple({"topic": topic, "partitions": topics[topic]} for topic in topics)}


def _described(replica: Partition) -> Values:
    lag = max(0, replica.high_watermark - replica.log.log_end_offset)
    return {
        "partition": replica.partition,
        "size_bytes": replica.log.size_bytes,
        "offset_lag": lag,
    }
