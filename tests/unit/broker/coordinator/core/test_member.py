"""Members of a group, and what they share: a protocol and topics."""

import struct
from dataclasses import replace

import pytest
from tidemark_broker.coordinator.core.member import (
    Member,
    loaded_member,
    new_member,
    shared_protocols,
    subscribed_topics,
    subscribed_topics_of,
    voted_protocol,
)
from tidemark_broker.coordinator.core.requests import Protocol

from tests.support.coordinator_harness import JOIN, protocols, subscription


def a_member(*names: str, member_id: str = "m", topics: tuple[str, ...] = ("t",)) -> Member:
    return new_member(member_id, replace(JOIN, protocols=protocols(*names, topics=topics)))


def by_id(*members: Member) -> dict[str, Member]:
    return {str(number): member for number, member in enumerate(members)}


@pytest.mark.parametrize(
    ("is_new", "join_request", "sync_request", "is_believed_in"),
    [
        (True, 1, None, False),
        (False, None, None, False),
        (False, 0, None, True),
        (False, None, 0, True),
    ],
)
def test_known_member_that_waits_for_an_answer_needs_no_heartbeat(
    is_new: bool, join_request: int | None, sync_request: int | None, is_believed_in: bool
) -> None:
    member = a_member("range")
    member.is_new = is_new
    member.join_request_id, member.sync_request_id = join_request, sync_request
    assert member.is_believed_in is is_believed_in
    assert member.is_awaiting_join is (join_request is not None)


def test_size_is_of_names_and_metadata_of_all_protocols() -> None:
    member = new_member("m", replace(JOIN, protocols=(Protocol("ab", b"xyz"), Protocol("c", b""))))
    assert member.size_bytes == 6
    assert (member.metadata_of("ab"), member.metadata_of("c")) == (b"xyz", b"")
    assert member.metadata_of("unknown") == member.metadata_of(None) == b""


def test_stored_member_is_loaded_with_the_chosen_protocol_alone() -> None:
    member = a_member("range", "sticky")
    member.assignment = b"mine"
    loaded = loaded_member(member.stored("sticky"), "sticky")
    assert loaded == replace(member, protocols=protocols("sticky"), is_new=False)
    assert loaded_member(member.stored(None), None).protocols == (Protocol("", b""),)


def test_later_client_of_a_member_replaces_what_it_says_and_keeps_its_id() -> None:
    member = a_member("range")
    member.take_over(
        replace(
            JOIN,
            client_id="d",
            client_host="/i",
            session_timeout_ms=1,
            rebalance_timeout_ms=2,
            protocols=protocols("sticky"),
            member_id="other",
        )
    )
    assert member == Member("m", None, "d", "/i", 2, 1, protocols("sticky"), is_new=True)


@pytest.mark.parametrize(
    ("members", "shared"),
    [
        ([], ()),
        ([("a", "b")], ("a", "b")),
        ([("a", "b", "c"), ("c", "x", "a")], ("a", "c")),
        ([("a",), ("b",)], ()),
    ],
)
def test_shared_protocols_are_in_the_first_members_order(
    members: list[tuple[str, ...]], shared: tuple[str, ...]
) -> None:
    assert shared_protocols(a_member(*names) for names in members) == shared


def test_protocol_with_most_votes_wins_and_the_first_member_decides_a_tie() -> None:
    first, second, third = a_member("a", "b"), a_member("b", "a"), a_member("x", "b", "a")
    assert voted_protocol(by_id(first, second)) == "a"
    assert voted_protocol(by_id(second, first)) == "b"
    assert voted_protocol(by_id(first, second, third)) == "b"


def test_topics_of_a_group_are_those_of_all_members_or_any() -> None:
    members = [a_member("range", topics=("t", "u")), a_member("range", topics=())]
    assert subscribed_topics(members, "range") == frozenset({"t", "u"})
    assert subscribed_topics([], "range") == frozenset()
    opaque = new_member("m", replace(JOIN, protocols=(Protocol("range", b"\x00"),)))
    assert subscribed_topics([*members, opaque], "range") is None
    assert subscribed_topics(members, "sticky") is None  # nobody says what it reads by that


@pytest.mark.parametrize("topics", [(), ("t",), ("long", "u", "")])
def test_topics_of_a_subscription_are_read_and_a_cut_one_may_be_of_any(
    topics: tuple[str, ...],
) -> None:
    whole = subscription(*topics)
    assert subscribed_topics_of(whole) == set(topics)
    needed = len(whole) - 4  # user data follows
    assert subscribed_topics_of(whole[:needed]) == set(topics)
    assert all(subscribed_topics_of(whole[:size]) is None for size in range(needed))


@pytest.mark.parametrize(
    "raw",
    [
        struct.pack(">hi", 0, -1),
        struct.pack(">hi", 0, 2**31 - 1),
        struct.pack(">hih", 0, 1, -1),
        struct.pack(">hih", 0, 1, 2) + b"x",
        struct.pack(">hih", 0, 1, 1) + b"\xff",
    ],
)
def test_hostile_subscription_may_be_of_any_topic(raw: bytes) -> None:
    assert subscribed_topics_of(raw) is None
