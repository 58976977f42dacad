"""The tables of the group and admin APIs against kafka-python's schemas: same bytes and order."""

import re
from collections.abc import Iterator
from itertools import count
from typing import Any
from uuid import UUID

import kafka.protocol.admin as admin
import kafka.protocol.consumer as consumer
import kafka.protocol.metadata as metadata
import kafka.protocol.sasl as sasl
import pytest
from tidemark_broker.kafka_wire.messages.acls import (
    CREATE_ACLS_API,
    DELETE_ACLS_API,
    DESCRIBE_ACLS_API,
)
from tidemark_broker.kafka_wire.messages.alter_replica_log_dirs import ALTER_REPLICA_LOG_DIRS_API
from tidemark_broker.kafka_wire.messages.client_quotas import (
    ALTER_CLIENT_QUOTAS_API,
    DESCRIBE_CLIENT_QUOTAS_API,
)
from tidemark_broker.kafka_wire.messages.configs import (
    ALTER_CONFIGS_API,
    DESCRIBE_CONFIGS_API,
    INCREMENTAL_ALTER_CONFIGS_API,
)
from tidemark_broker.kafka_wire.messages.describe_producers import DESCRIBE_PRODUCERS_API
from tidemark_broker.kafka_wire.messages.describe_quorum import DESCRIBE_QUORUM_API
from tidemark_broker.kafka_wire.messages.group_admin import (
    DELETE_GROUPS_API,
    DESCRIBE_GROUPS_API,
    LIST_GROUPS_API,
    OFFSET_DELETE_API,
)
from tidemark_broker.kafka_wire.messages.group_membership import (
    FIND_COORDINATOR_API,
    HEARTBEAT_API,
    JOIN_GROUP_API,
    LEAVE_GROUP_API,
    SYNC_GROUP_API,
)
from tidemark_broker.kafka_wire.messages.group_offsets import OFFSET_COMMIT_API, OFFSET_FETCH_API
from tidemark_broker.kafka_wire.messages.list_config_resources import LIST_CONFIG_RESOURCES_API
from tidemark_broker.kafka_wire.messages.logs import DELETE_RECORDS_API, DESCRIBE_LOG_DIRS_API
from tidemark_broker.kafka_wire.messages.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS_API,
    ELECT_LEADERS_API,
    LIST_PARTITION_REASSIGNMENTS_API,
)
from tidemark_broker.kafka_wire.messages.sasl import SASL_AUTHENTICATE_API, SASL_HANDSHAKE_API
from tidemark_broker.kafka_wire.messages.schema import Api, TableReader, TableWriter
from tidemark_broker.kafka_wire.messages.topics import (
    CREATE_PARTITIONS_API,
    CREATE_TOPICS_API,
    DELETE_TOPICS_API,
)

APIS = (
    CREATE_ACLS_API,
    DELETE_ACLS_API,
    DESCRIBE_ACLS_API,
    ALTER_CLIENT_QUOTAS_API,
    DESCRIBE_CLIENT_QUOTAS_API,
    ALTER_CONFIGS_API,
    ALTER_PARTITION_REASSIGNMENTS_API,
    ALTER_REPLICA_LOG_DIRS_API,
    CREATE_PARTITIONS_API,
    CREATE_TOPICS_API,
    DELETE_RECORDS_API,
    DELETE_TOPICS_API,
    DESCRIBE_CONFIGS_API,
    DESCRIBE_LOG_DIRS_API,
    DESCRIBE_PRODUCERS_API,
    DESCRIBE_QUORUM_API,
    ELECT_LEADERS_API,
    INCREMENTAL_ALTER_CONFIGS_API,
    LIST_CONFIG_RESOURCES_API,
    LIST_PARTITION_REASSIGNMENTS_API,
    DELETE_GROUPS_API,
    DESCRIBE_GROUPS_API,
    FIND_COORDINATOR_API,
    HEARTBEAT_API,
    JOIN_GROUP_API,
    LEAVE_GROUP_API,
    LIST_GROUPS_API,
    OFFSET_COMMIT_API,
    OFFSET_DELETE_API,
    OFFSET_FETCH_API,
    SASL_AUTHENTICATE_API,
    SASL_HANDSHAKE_API,
    SYNC_GROUP_API,
)
# Newer than the peer's: held against Kafka's own classes (tests/fuzz).
NEWER = {(DELETE_GROUPS_API.name, 3)}
CASES = [
    (api, version, side)
    for api in APIS
    for version in range(api.min_version, api.max_version + 1)
    for side in ("Request", "Response")
    if (api.name, version) not in NEWER
]


def connections_class(name: str, version: int) -> Any:
    found = next(
        vars(module)[name] for module in (consumer, admin, metadata, sasl) if name in vars(module)
    )
    return found[version]


def value_of(schema: dict[str, Any], numbers: Iterator[int]) -> Any:
    number, kind = next(numbers), schema["type"]
    if kind == "string":
        return f"s{number}"
    if kind == "bytes":
        return b"b%d" % number
    if kind == "bool":
        return True
    if kind == "uuid":
        return UUID(int=number)
    if kind == "bitfield":
        return {3, 8}  # an int32 on the wire
    if kind == "float64":
        return number / 2
    assert kind in {"int8", "int16", "uint16", "int32", "int64"}, kind
    return number


def is_in(version: int, versions: str) -> bool:
    first, _, last = versions.rstrip("+").partition("-")
    return int(first) <= version and (versions.endswith("+") or version <= int(last or first))


def filled(holder: Any, schema: dict[str, Any], version: int, numbers: Iterator[int]) -> Any:
    """The peer's object with distinct values, two elements in each array."""
    values = {}
    for field in schema["fields"]:
        if not is_in(version, field["versions"]):
            continue
        kind = field["type"]
        if not kind.startswith("[]"):
            value = value_of(field, numbers)
        elif "fields" in field:
            inner = getattr(holder, kind[2:])
            value = [filled(inner, field, version, numbers) for _ in range(2)]
        else:
            value = [value_of({"type": kind[2:]}, numbers) for _ in range(2)]
        values[snake(field["name"])] = value
    return holder(**values)


def snake(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


@pytest.mark.parametrize(
    ("api", "version", "side"), CASES, ids=[f"{a.name}{side}-{v}" for a, v, side in CASES]
)
def test_each_version_has_the_bytes_and_the_order_of_an_independent_schema(
    api: Api, version: int, side: str
) -> None:
    peer = connections_class(f"{api.name}{side}", version)
    numbers = count(1)
    raw = bytes(filled(peer, peer._json, version, numbers).encode())
    struct = api.request if side == "Request" else api.response
    reader = TableReader(raw, version, is_flexible=api.is_flexible(version))
    found = struct.read(reader)
    reader.expect_end()
    writer = TableWriter(version, is_flexible=api.is_flexible(version))
    struct.write(writer, found)
    assert bytes(writer.out) == raw
