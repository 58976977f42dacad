"""Define the members of a group, and what they share: protocol and topics."""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemark_broker.coordinator.core.offsets_records import MemberMetadata
from tidemark_broker.coordinator.core.requests import JoinGroup, Protocol

CONSUMER_PROTOCOL_TYPE = "consumer"


@dataclass(slots=True)
class Member:
    """A member; `join_request_id` and `sync_request_id` are its waiting requests, if any."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    join_request_id: int | None = None
    sync_request_id: int | None = None
    expires_ms: int = 0

    @property
    def is_awaiting_join(self) -> bool:
        return self.join_request_id is not None

    @property
    def is_believed_in(self) -> bool:
        """Return whether the session stays open without heartbeats.

        A member that waits for our answer cannot send heartbeats. A new one gets only its session
        timeout: its client may be gone without having received its member id.
        """
        return not self.is_new and (self.is_awaiting_join or self.sync_request_id is not None)

    @property
    def size_bytes(self) -> int:
        return sum(len(protocol.name) + len(protocol.metadata) for protocol in self.protocols)

    def metadata_of(self, protocol: str | None) -> bytes:
        return next((known.metadata for known in self.protocols if known.name == protocol), b"")

    def take_over(self, join: JoinGroup) -> None:
        self.client_id = join.client_id
        self.client_host = join.client_host
        self.rebalance_timeout_ms = join.rebalance_timeout_ms
        self.session_timeout_ms = join.session_timeout_ms
        self.protocols = join.protocols

    def stored(self, protocol: str | None) -> MemberMetadata:
        return MemberMetadata(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata_of(protocol),
            self.assignment,
        )


def new_member(member_id: str, join: JoinGroup) -> Member:
    return Member(
        member_id,
        join.group_instance_id,
        join.client_id,
        join.client_host,
        join.rebalance_timeout_ms,
        join.session_timeout_ms,
        join.protocols,
        is_new=True,
    )


def loaded_member(stored: MemberMetadata, protocol: str | None) -> Member:
    return Member(
        stored.member_id,
        stored.group_instance_id,
        stored.client_id,
        stored.client_host,
        stored.rebalance_timeout_ms,
        stored.session_timeout_ms,
        (Protocol(protocol or "", stored.subscription),),
        stored.assignment,
    )


def shared_protocols(members: Iterable[Member]) -> tuple[str, ...]:
    """Return the protocols that all members support, in the first member's order of preference."""
    known = [tuple(protocol.name for protocol in member.protocols) for member in members]
    if not known:
        return ()
    return tuple(name for name in known[0] if all(name in names for names in known[1:]))


def voted_protocol(members: Mapping[str, Member]) -> str:
    """Return the protocol with the most votes; each member votes for its first shared one.

    In a tie the one that the first member prefers wins (Kafka: any of them).
    """
    shared = shared_protocols(members.values())
    assert shared, "the new member supports no protocol of the other members"
    votes = dict.fromkeys(shared, 0)
    for member in members.values():
        votes[next(known.name for known in member.protocols if known.name in votes)] += 1
    return max(shared, key=lambda name: votes[name])


def subscribed_topics(members: Iterable[Member], protocol: str | None) -> frozenset[str] | None:
    """Return the topics that any member of a consumer group reads.

    None if one member's metadata cannot be decoded: it may read any topic (Kafka:
    ConsumerProtocolSubscription).
    """
    topics: set[str] = set()
    for member in members:
        found = subscribed_topics_of(member.metadata_of(protocol))
        if found is None:
            return None
        topics |= found
    return frozenset(topics)


def subscribed_topics_of(subscription: bytes) -> set[str] | None:
    topics = set()
    try:
        _, count = struct.unpack_from(">hi", subscription)
        if not 0 <= 2 * count <= len(subscription):
            return None
        position = 6
        for _ in range(count):
            (size,) = struct.unpack_from(">h", subscription, position)
            position += 2
            if not 0 <= size <= len(subscription) - position:
                return None
            topics.add(subscription[position : position + size].decode())
            position += size
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
