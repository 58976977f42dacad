"""What clients of a group give the coordinator to keep, and what it keeps, on bytes that are almost
right: refused or read, and never dear."""

import random
from collections.abc import Callable
from functools import partial

import pytest
from tidemark_broker.coordinator.core.consumer_protocol import (
    MalformedAssignment,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from tidemark_broker.coordinator.core.offsets_records import (
    CommittedOffset,
    GroupMetadata,
    MalformedGroupRecord,
    MemberMetadata,
    OffsetKey,
    decode_key,
    decode_metadata,
    decode_offset,
    encode_key,
    encode_metadata,
    encode_offset,
)
from tidemark_broker.kafka_wire.messages.primitives import MalformedFrame

from tests.fuzz.hostile import bombs, cost, mutated

MEMBER = MemberMetadata("m", "i", "c", "/h", 60_000, 10_000, encode_subscription(("t",)), b"mine")
EACH: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "assignment": (decode_assignment, encode_assignment((("t", 0), ("t", 7), ("u", 1)))),
    "subscription": (decode_subscription, encode_subscription(("orders", "clicks"))),
    "key": (decode_key, encode_key(OffsetKey("g", "t", 3))),
    "offset": (decode_offset, encode_offset(CommittedOffset(5, 1, "note", 1_000, -1))),
    "metadata": (
        decode_metadata,
        encode_metadata(GroupMetadata("consumer", 3, "range", "m", 1_000, (MEMBER,))),
    ),
}


def refusing(decode: Callable[[bytes], object], raw: bytes) -> None:
    try:
        decode(raw)
    except (MalformedAssignment, MalformedGroupRecord) as error:
        raise MalformedFrame(str(error)) from error


@pytest.mark.parametrize("kind", EACH)
def test_almost_good_bytes_cost_little(kind: str) -> None:
    decode, good = EACH[kind]
    chance = random.Random(1)
    for _ in range(300):
        wrong = mutated(good, chance)
        assert cost(partial(refusing, decode), wrong).excess(len(wrong)) == ""


@pytest.mark.parametrize("kind", EACH)
def test_bombs_are_defused(kind: str) -> None:
    decode, _ = EACH[kind]
    for raw in bombs(3000):
        assert cost(partial(refusing, decode), raw).excess(len(raw)) == ""
