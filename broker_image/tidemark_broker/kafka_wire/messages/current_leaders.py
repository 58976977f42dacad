"""Encode the current leaders: tagged fields of Produce (v10) and Fetch (v16) answers (KIP-951)."""

from collections.abc import Collection
from typing import NamedTuple

from tidemark_broker.kafka_wire.messages.primitives import (
    INT32,
    compact_string,
    tagged_field,
    unsigned_varint,
)

NO_TAGS = b"\x00"


class CurrentLeader(NamedTuple):
    broker_id: int
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    """The address of a broker that leads partitions of a response."""

    broker_id: int
    host: str
    port: int
    rack: str | None


def current_leader_field(tag: int, leader: CurrentLeader) -> bytes:
    return tagged_field(tag, b"".join(map(INT32.pack, leader)) + NO_TAGS)


def node_endpoints_tags(nodes: Collection[NodeEndpoint]) -> bytes:
    """Return all tagged fields of the response body, which are the node endpoints or none."""
    if not nodes:
        return NO_TAGS
    found = unsigned_varint(len(nodes) + 1)
    for node in nodes:
        found += INT32.pack(node.broker_id) + compact_string(node.host) + INT32.pack(node.port)
        found += compact_string(node.rack) + NO_TAGS
    return b"\x01" + tagged_field(0, found)
