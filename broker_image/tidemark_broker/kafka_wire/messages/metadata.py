"""Define the requests that describe brokers, topics and leaders.

- Metadata v0 to v13; from v10 on topics have ids and can be requested by them (KIP-516); v13 has an
  error of the whole request (KIP-1102). A response may have ten thousand partitions, and clients
  read it while leaders move, so one `struct` call writes a partition.
- DescribeCluster v0 to v2 (KIP-700, KIP-919, KIP-1073).
- DescribeTopicPartitions v0 (KIP-966): partitions with eligible leaders, in pages.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from tidemark_broker.kafka_wire.messages.authorized_operations import NOT_REQUESTED
from tidemark_broker.kafka_wire.messages.frames import (
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    METADATA,
)
from tidemark_broker.kafka_wire.messages.schema import (
    BOOLEAN,
    BYTE,
    ERROR_CODE,
    INT,
    STRING,
    TOPIC_ID,
    ZERO_TOPIC_ID,
    Api,
    ArrayOf,
    Field,
    NullableStruct,
    Struct,
    TableReader,
    TableWriter,
    Values,
)

FIRST_WITH_OFFLINE = 5
FIRST_WITH_LEADER_EPOCH = 7
LARGEST_OF_ONE_BYTE = 126  # entries of a compact array whose count is a varint of one byte


class _Partition:
    """The kind of one partition, which is written in one step of a response."""

    def __init__(self) -> None:
        self._fields = Struct(
            Field("error", ERROR_CODE),
            Field("partition", INT),
            Field("leader", INT),
            Field("leader_epoch", INT, since=FIRST_WITH_LEADER_EPOCH, default=-1),
            Field("replicas", ArrayOf(INT)),
            Field("in_sync_replicas", ArrayOf(INT)),
            Field("offline_replicas", ArrayOf(INT), since=FIRST_WITH_OFFLINE, default=()),
        )

    def read(self, reader: TableReader) -> Values:
        return self._fields.read(reader)

    def write(self, writer: TableWriter, value: Mapping[str, Any]) -> None:
        version = writer.version
        replicas, in_sync = value["replicas"], value["in_sync_replicas"]
        offline = value.get("offline_replicas", ())
        numbers = [value["error"], value["partition"], value["leader"]]
        if version >= FIRST_WITH_LEADER_EPOCH:
            numbers.append(value.get("leader_epoch", -1))
        arrays: tuple[Sequence[int], ...] = (replicas, in_sync, offline)
        if version < FIRST_WITH_OFFLINE:
            arrays = (replicas, in_sync)
        if not writer.is_flexible:
            for array in arrays:
                numbers += (len(array), *array)
            writer.out += _packer(len(numbers))(*numbers)
            return
        if max(map(len, arrays)) > LARGEST_OF_ONE_BYTE:
            self._fields.write(writer, value)
            return
        for array in arrays:
            numbers += (len(array) + 1, *array)
        writer.out += _flexible_packer(*map(len, arrays))(*numbers, 0)  # no tagged fields


@cache
def _packer(numbers: int) -> Callable[..., bytes]:
    return struct.Struct(f">h{numbers - 1}i").pack


@cache
def _flexible_packer(replicas: int, in_sync: int, offline: int) -> Callable[..., bytes]:
    """Return a function that packs a partition with these numbers of replicas."""
    return struct.Struct(f">hiiiB{replicas}iB{in_sync}iB{offline}iB").pack


METADATA_API = Api(
    api_key=METADATA,
    name="Metadata",
    min_version=0,
    max_version=13,
    first_flexible_version=9,
    request=Struct(
        Field(
            "topics",
            ArrayOf(
                Struct(
                    Field("topic_id", TOPIC_ID, since=10, default=ZERO_TOPIC_ID),
                    Field("topic", STRING, nullable_since=10),
                )
            ),
            nullable_since=1,
        ),
        Field("allow_auto_topic_creation", BOOLEAN, since=4, default=True),
        Field("include_cluster_authorized_operations", BOOLEAN, since=8, until=10, default=False),
        Field("include_topic_authorized_operations", BOOLEAN, since=8, default=False),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, since=3, default=0),
        Field(
            "brokers",
            ArrayOf(
                Struct(
                    Field("broker_id", INT),
                    Field("host", STRING),
                    Field("port", INT),
                    Field("rack", STRING, since=1, nullable_since=1),
                )
            ),
        ),
        Field("cluster_id", STRING, since=2, nullable_since=2),
        Field("controller_id", INT, since=1, default=-1),
        Field(
            "topics",
            ArrayOf(
                Struct(
                    Field("error", ERROR_CODE),
                    Field("topic", STRING, nullable_since=12),
                    Field("topic_id", TOPIC_ID, since=10, default=ZERO_TOPIC_ID),
                    Field("is_internal", BOOLEAN, since=1, default=False),
                    Field("partitions", ArrayOf(_Partition())),
                    Field("authorized_operations", INT, since=8, default=NOT_REQUESTED),
                )
            ),
        ),
        Field("cluster_authorized_operations", INT, since=8, until=10, default=NOT_REQUESTED),
        Field("error", ERROR_CODE, since=13, default=0),
    ),
)


ENDPOINTS_OF_BROKERS = 1

DESCRIBE_CLUSTER_API = Api(
    api_key=DESCRIBE_CLUSTER,
    name="DescribeCluster",
    min_version=0,
    max_version=2,
    first_flexible_version=0,
    request=Struct(
        Field("include_cluster_authorized_operations", BOOLEAN),
        Field("endpoint_type", BYTE, since=1, default=ENDPOINTS_OF_BROKERS),
        Field("include_fenced_brokers", BOOLEAN, since=2, default=False),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field("error", ERROR_CODE),
        Field("error_message", STRING, nullable_since=0),
        Field("endpoint_type", BYTE, since=1, default=ENDPOINTS_OF_BROKERS),
        Field("cluster_id", STRING),
        Field("controller_id", INT),
        Field(
            "brokers",
            ArrayOf(
                Struct(
                    Field("broker_id", INT),
                    Field("host", STRING),
                    Field("port", INT),
                    Field("rack", STRING, nullable_since=0),
                    Field("is_fenced", BOOLEAN, since=2, default=False),
                )
            ),
        ),
        Field("cluster_authorized_operations", INT, default=NOT_REQUESTED),
    ),
)


_CURSOR = NullableStruct(Field("topic", STRING), Field("partition", INT))

DESCRIBE_TOPIC_PARTITIONS_API = Api(
    api_key=DESCRIBE_TOPIC_PARTITIONS,
    name="DescribeTopicPartitions",
    min_version=0,
    max_version=0,
    first_flexible_version=0,
    request=Struct(
        Field("topics", ArrayOf(Struct(Field("topic", STRING)))),
        Field("partition_limit", INT),
        Field("cursor", _CURSOR, nullable_since=0),
    ),
    response=Struct(
        Field("throttle_time_ms", INT, default=0),
        Field(
            "topics",
            ArrayOf(
                Struct(
                    Field("error", ERROR_CODE),
                    Field("topic", STRING, nullable_since=0),
                    Field("topic_id", TOPIC_ID),
                    Field("is_internal", BOOLEAN),
                    Field(
                        "partitions",
                        ArrayOf(
                            Struct(
                                Field("error", ERROR_CODE),
                                Field("partition", INT),
                                Field("leader", INT),
                                Field("leader_epoch", INT),
                                Field("replicas", ArrayOf(INT)),
                                Field("in_sync_replicas", ArrayOf(INT)),
                                Field("eligible_leaders", ArrayOf(INT), nullable_since=0),
                                Field("last_known_leaders", ArrayOf(INT), nullable_since=0),
                                Field("offline_replicas", ArrayOf(INT)),
                            )
                        ),
                    ),
                    Field("authorized_operations", INT, default=NOT_REQUESTED),
                )
            ),
        ),
        Field("next_cursor", _CURSOR, nullable_since=0),
    ),
)
