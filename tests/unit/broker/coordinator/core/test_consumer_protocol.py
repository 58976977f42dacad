"""What consumers of a group say to one another, and who gets what."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark_broker.coordinator.core.consumer_protocol import (
    MalformedAssignment,
    assign_ranges,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

TOPICS = st.sampled_from(["orders", "payments", "clicks"])
PLACES = st.lists(st.tuples(TOPICS, st.integers(0, 50)), unique=True, max_size=20)


@given(PLACES)
def test_an_assignment_comes_back(places: list[tuple[str, int]]) -> None:
    assert sorted(decode_assignment(encode_assignment(tuple(places)))) == sorted(places)


def test_a_subscription_comes_back() -> None:
    raw = encode_subscription(("orders", "clicks"))
    assert decode_subscription(raw) == {"orders", "clicks"}


@given(st.binary(max_size=40))
def test_hostile_bytes_assign_nothing_unseen(raw: bytes) -> None:
    try:
        decode_assignment(raw)
    except MalformedAssignment:
        return


def test_more_partitions_than_there_are_bytes_are_refused() -> None:
    raw = b"\x00\x00" + struct.pack(">i", 1) + b"\x00\x01t" + struct.pack(">i", 2**31 - 1)
    with pytest.raises(MalformedAssignment):
        decode_assignment(raw)


@pytest.mark.parametrize(
    "rest",
    [
        struct.pack(">i", 1_000) + b"\x00\x01t" + struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">i", 1) + struct.pack(">h", -6) + struct.pack(">i", 0),
        # Read as it stands, this name would lead back to its own length, for ever.
        struct.pack(">i", 3) + bytes(6) + struct.pack(">h", -6) + bytes(12),
    ],
    ids=["more topics than bytes", "fewer than none", "a name", "a name that leads back"],
)
def test_sizes_below_nothing_and_beyond_the_end_are_refused(rest: bytes) -> None:
    with pytest.raises(MalformedAssignment):
        decode_assignment(b"\x00\x00" + rest)


@given(
    st.dictionaries(st.sampled_from("abcde"), st.frozensets(TOPICS, min_size=1), min_size=1),
    st.fixed_dictionaries({name: st.integers(0, 9) for name in ("orders", "payments", "clicks")}),
)
def test_ranges_are_disjoint_and_whole(
    subscriptions: dict[str, frozenset[str]], counts: dict[str, int]
) -> None:
    assigned = assign_ranges(subscriptions, counts)
    found = sorted(place for places in assigned.values() for place in places)
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    assert found == sorted((topic, n) for topic in wanted for n in range(counts[topic]))
    for member, places in assigned.items():
        assert {topic for topic, _ in places} <= subscriptions[member]
