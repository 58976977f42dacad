"""Decoders on bytes that are almost right: refused or read, and never dear."""

import pytest
from tidemark_broker.kafka_wire.messages.primitives import (
    MAX_ELEMENTS,
    MalformedFrame,
    unsigned_varint,
)

from tests.fuzz.corpus import attacked
from tests.fuzz.hostile import (
    FETCH,
    METADATA,
    PRODUCE,
    Cost,
    Decoder,
    bombs,
    cost,
    decoders,
    peak_bytes,
)
from tests.fuzz.java_peer import JavaPeer

EACH = list(decoders())
LARGEST_PEAK_BYTES = 20_000_000


def test_almost_good_bodies_cost_little() -> None:
    with JavaPeer() as java:
        found = attacked(java, seed=1, count=2, blows=4)
    assert found.dear == []
    assert found.refused > len(EACH)  # else the blows are too soft


@pytest.mark.parametrize(
    "decoder", EACH, ids=[f"{found.api_key}-v{found.version}-{found.side}" for found in EACH]
)
def test_bombs_are_defused(decoder: Decoder) -> None:
    for body in bombs(3000):
        try:
            decoder.decode(body)
        except MalformedFrame:
            continue


@pytest.mark.parametrize("api_key", [PRODUCE, FETCH, METADATA])
def test_a_frame_of_megabytes_becomes_no_more_than_some(api_key: int) -> None:
    *_, decoder = [found for found in EACH if (found.api_key, found.side) == (api_key, "request")]
    for filling in (b"\x01", b"\x02"):
        # As they are, and behind the greatest count that there may be.
        for head in (b"", unsigned_varint(MAX_ELEMENTS + 1)):
            body = head + filling * 400_000
            assert peak_bytes(decoder.decode, body) < LARGEST_PEAK_BYTES


def test_the_bounds_notice_what_is_dear() -> None:
    assert Cost(None, calls=10**6, peak_bytes=0).excess(100) == "1000000 calls for 100 bytes"
    dear = cost(lambda body: [bytes(1000) for _ in body], bytes(5000))
    assert "bytes at the peak" in dear.excess(5000)
