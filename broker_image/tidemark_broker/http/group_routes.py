"""Serve GET /groups: the consumer groups of the pool, with members and offsets.

The other brokers are asked too, unless `of=broker`: brokers and `tidemark groups` ask so. A
member's assignment is decoded where that is possible (Kafka's consumers); for others (Connect) it
is empty.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Literal

from fastapi import Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from tidemark_broker.coordinator.core.consumer_protocol import (
    MalformedAssignment,
    decode_assignment,
)
from tidemark_broker.coordinator.core.member import CONSUMER_PROTOCOL_TYPE
from tidemark_broker.coordinator.core.requests import DescribedMember, GroupReport, GroupsReport
from tidemark_broker.http import pool_groups
from tidemark_broker.http.broker_view import BrokerView
from tidemark_broker.http.request import authorization_of


class TopicPartitionSchema(BaseModel):
    topic: str
    partition: int


class MemberDocument(BaseModel):
    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    partitions: list[TopicPartitionSchema] = Field(
        description="assigned partitions; empty unless the group is stable and a group of consumers"
    )


class CommittedDocument(BaseModel):
    topic: str
    partition: int
    offset: int = Field(description="offset of the next record to read")
    metadata: str
    committed_ms: int


class GroupDocument(BaseModel):
    group: str
    state: str = Field(description="Empty, PreparingRebalance, CompletingRebalance, Stable")
    protocol_type: str
    protocol: str = Field(description="assignor; only of a stable group")
    members: list[MemberDocument]
    offsets: list[CommittedDocument]


class GroupsDocument(BaseModel):
    broker_id: int
    groups: list[GroupDocument]
    is_loading: bool = Field(
        description="whether a coordinator is loading: then groups may be missing, try again"
    )
    missing_brokers: list[int] = Field(
        default=[], description="of=pool: brokers that did not respond; their groups are missing"
    )


Of = Annotated[
    Literal["broker", "pool"],
    Query(description="groups of the pool, or those that this broker coordinates"),
]


class GroupRoutes:
    def __init__(self, view: BrokerView) -> None:
        self._view = view

    async def groups(self, request: Request, of: Of = "pool") -> StreamingResponse:
        """Return the groups of all brokers, or with of=broker those that this one coordinates."""
        authorization = authorization_of(request.scope) if of == "pool" else b""
        pieces = _in_pieces(self._view, self._view.groups(), authorization, of_pool=of == "pool")
        return StreamingResponse(pieces, media_type="application/json")


async def _in_pieces(
    view: BrokerView, found: GroupsReport, authorization: bytes, *, of_pool: bool
) -> AsyncIterator[str | bytes]:
    """Yield a GroupsDocument, a group at a time: there may be many, with a million offsets."""
    yield f'{{"broker_id":{view.broker_id},"groups":['
    before = ""
    for report in found.groups:
        yield before + _document(report).model_dump_json()
        before = ","
        await asyncio.sleep(0)  # the loop's turn: a client that keeps up never makes us wait
    is_loading, missing = found.is_partial(), list[int]()
    if of_pool:
        async for broker_id, theirs in pool_groups.others(view, authorization):
            if theirs is None:
                missing.append(broker_id)
                continue
            is_loading = is_loading or theirs.is_loading
            for group in theirs.groups:
                yield before.encode() + bytes(group)
                before = ","
    last = f',"missing_brokers":{json.dumps(missing)}' if of_pool else ""
    yield f'],"is_loading":{json.dumps(is_loading)}{last}}}'


def _document(report: GroupReport) -> GroupDocument:
    described = report.described
    is_of_consumers = described.protocol_type == CONSUMER_PROTOCOL_TYPE
    offsets = [
        CommittedDocument(
            topic=found.topic,
            partition=found.partition,
            offset=found.committed.offset,
            metadata=found.committed.metadata,
            committed_ms=found.committed.commit_ms,
        )
        for found in report.offsets
        if found.committed is not None
    ]
    return GroupDocument(
        group=described.group_id,
        state=described.state,
        protocol_type=described.protocol_type,
        protocol=described.protocol,
        members=[_member(member, is_of_consumers=is_of_consumers) for member in described.members],
        offsets=sorted(offsets, key=lambda offset: (offset.topic, offset.partition)),
    )


def _member(member: DescribedMember, *, is_of_consumers: bool) -> MemberDocument:
    try:
        places = decode_assignment(member.assignment) if is_of_consumers else ()
    except MalformedAssignment:
        places = ()
    return MemberDocument(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host.lstrip("/"),
        partitions=[
            TopicPartitionSchema(topic=topic, partition=number) for topic, number in places
        ],
    )
