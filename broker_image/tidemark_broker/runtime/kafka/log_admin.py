"""DeleteRecords and DescribeLogDirs, of the replicas on this broker."""

import asyncio
from collections.abc import Callable

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset

from tidemark_broker.runtime.hosted_replica import HostedReplica
from tidemark_broker.runtime.kafka.requests import ApiHandler, KafkaRequest
from tidemark_broker.runtime.kafka.services import KafkaServices
from tidemark_broker.storage.disk import DiskSpace
from tidemark_broker.wire.delete_records import DELETE_RECORDS_API
from tidemark_broker.wire.describe_log_dirs import DESCRIBE_LOG_DIRS_API
from tidemark_broker.wire.tables import Values

SpaceOf = Callable[[], DiskSpace]  # of the volume; in a worker


def log_admin_handlers(services: KafkaServices) -> tuple[ApiHandler, ...]:
    admin = LogAdmin(services)
    return (
        services.answering.prompt_handler(DELETE_RECORDS_API, admin.delete_records),
        services.answering.table_handler(DESCRIBE_LOG_DIRS_API, admin.describe_log_dirs),
    )


class LogAdmin:
    def __init__(self, services: KafkaServices) -> None:
        self._partitions = services.partitions
        self._path = services.log_directory
        self._space = services.space

    def delete_records(self, request: KafkaRequest, asked: Values) -> Values:
        """At the leader; followers follow with their next fetch (the time limit is not needed:
        what is deleted is not served any more by anybody who leads)."""
        return {
            "topics": tuple(
                {
                    "topic": topic["topic"],
                    "partitions": tuple(
                        self._deleted(topic["topic"], each["partition"], each["offset"])
                        for each in topic["partitions"]
                    ),
                }
                for topic in asked["topics"]
            )
        }

    def _deleted(self, topic: str, partition: int, before_offset: int) -> Values:
        answer = {"partition": partition, "low_watermark": -1}
        replica = self._partitions.find_leading(topic, partition)
        if isinstance(replica, ErrorCode):
            return answer | {"error": replica}
        if not replica.log.settings.deletes:
            return answer | {"error": ErrorCode.POLICY_VIOLATION}  # compacted: as Kafka
        result = self._partitions.delete_records(topic, partition, Offset(before_offset))
        if result.error is not ErrorCode.NONE:
            return answer | {"error": result.error}
        return answer | {"low_watermark": result.log_start_offset, "error": ErrorCode.NONE}

    async def describe_log_dirs(self, request: KafkaRequest, asked: Values) -> Values:
        topics = asked["topics"]
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


def _described(replica: HostedReplica) -> Values:
    lag = max(0, replica.high_watermark - replica.log.log_end_offset)
    return {
        "partition": replica.partition,
        "size_bytes": replica.log.size_bytes,
        "offset_lag": lag,
    }
