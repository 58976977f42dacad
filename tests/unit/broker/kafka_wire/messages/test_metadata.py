"""Metadata's partitions are written by one pack each: the same bytes as field by field."""

from itertools import product

import pytest
from tidemark_broker.kafka_wire.messages.metadata import LARGEST_OF_ONE_BYTE, METADATA_API
from tidemark_broker.kafka_wire.messages.schema import (
    INT,
    SHORT,
    ArrayOf,
    Field,
    Struct,
    TableWriter,
    Values,
)

FIELD_BY_FIELD = Struct(
    Field("error", SHORT),
    Field("partition", INT),
    Field("leader", INT),
    Field("leader_epoch", INT, since=7, default=-1),
    Field("replicas", ArrayOf(INT)),
    Field("in_sync_replicas", ArrayOf(INT)),
    Field("offline_replicas", ArrayOf(INT), since=5, default=()),
)
VERSIONS = range(METADATA_API.min_version, METADATA_API.max_version + 1)


def response_of(partitions: list[Values]) -> Values:
    topic = {"error": 0, "topic": "orders", "partitions": partitions}
    return {"brokers": (), "cluster_id": "c", "controller_id": 1, "topics": (topic,)}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [0, 3, LARGEST_OF_ONE_BYTE, LARGEST_OF_ONE_BYTE + 1, 300])
def test_a_partition_is_the_same_bytes_as_field_by_field(version: int, size: int) -> None:
    many = tuple(range(1, size + 1))
    for replicas, in_sync, offline in product((many, ()), (many[:2], many), (many, ())):
        partition = {
            "error": 5,
            "partition": 70_000,
            "leader": -1,
            "leader_epoch": 9,
            "replicas": replicas,
            "in_sync_replicas": in_sync,
            "offline_replicas": offline,
        }
        writer = TableWriter(version, is_flexible=METADATA_API.is_flexible(version))
        FIELD_BY_FIELD.write(writer, partition)
        response = b"".join(METADATA_API.encode_response(1, version, response_of([partition])))
        assert bytes(writer.out) in response
        _, found = METADATA_API.decode_response(response[4:], version)
        (topic,) = found["topics"]
        left_out: Values = {"leader_epoch": -1} if version < 7 else {}
        left_out |= {"offline_replicas": ()} if version < 5 else {}
        assert topic["partitions"] == (partition | left_out,)


@pytest.mark.parametrize("version", [4, 12])
def test_a_partition_is_one_step_of_an_answer(version: int) -> None:
    """An answer of ten thousand takes some twenty slices of the loop, and not 160."""
    partition = {
        "error": 0,
        "partition": 0,
        "leader": 1,
        "replicas": (1, 2, 3),
        "in_sync_replicas": (1, 2, 3),
    }
    steps = METADATA_API.response_steps(1, version, response_of([partition] * 1000))
    assert sum(steps) == 1001  # and the topic
