"""Bytes that are almost a request, and what a decoder may cost on them.

Bounds are counts, never times: calls of Python functions and bytes at the peak, per byte of input.
"""

import contextlib
import random
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from tidemark_broker.kafka_wire.messages.api_versions import decode_api_versions_request
from tidemark_broker.kafka_wire.messages.fetch import (
    decode_fetch_request,
    decode_fetch_response,
    decode_older_fetch_request,
)
from tidemark_broker.kafka_wire.messages.primitives import (
    MAX_ELEMENTS,
    MalformedFrame,
    Reader,
    unsigned_varint,
)
from tidemark_broker.kafka_wire.messages.produce import decode_produce_request
from tidemark_broker.kafka_wire.messages.schema import Api

from tests.fuzz.own_tables import SIDES, own_tables, reread

CALLS_PER_BYTE = 40
FEWEST_CALLS = 500
PEAK_PER_BYTE = 300
FEWEST_PEAK_BYTES = 100_000
PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18


@dataclass(frozen=True)
class Decoder:
    """Of one kind of body; `decode` raises MalformedFrame or nothing."""

    api_key: int
    version: int
    side: str
    decode: Callable[[bytes], object]


def decoders() -> Iterator[Decoder]:
    for api in own_tables():
        for version in range(api.min_version, api.max_version + 1):
            for side in SIDES:
                yield Decoder(api.api_key, version, side, _by_table(api, version, side))
    for version in range(3, 14):
        is_flexible = version >= 9
        yield Decoder(
            PRODUCE, version, "request", _by_hand(decode_produce_request, version, is_flexible)
        )
    for version in range(4, 19):
        decode = decode_older_fetch_request if version < 15 else decode_fetch_request
        yield Decoder(FETCH, version, "request", _by_hand(decode, version, version >= 12))
    yield Decoder(FETCH, 17, "response", lambda body: decode_fetch_response(b"\0\0\0\1\0" + body))
    for version in range(6):
        decode_versions = _by_hand(decode_api_versions_request, version, version >= 3)
        yield Decoder(API_VERSIONS, version, "request", decode_versions)


def _by_table(api: Api, version: int, side: str) -> Callable[[bytes], object]:
    return lambda body: reread(api, version, side, body)


def _by_hand(
    decode: Callable[[Reader, int], object], version: int, is_flexible: bool
) -> Callable[[bytes], object]:
    header_tags = b"\x00" if is_flexible else b""
    return lambda body: decode(Reader(header_tags + body), version)


def mutated(body: bytes, chance: random.Random) -> bytes:
    """A few blows: to bits, lengths, the end, or a piece of it again and again."""
    found = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(found) + 1)
        match chance.randrange(6):
            case 0 if found:
                found[place % len(found)] ^= 1 << chance.randrange(8)
            case 1:
                del found[place:]
            case 2:
                found[place : place + 4] = chance.choice(LENGTHS)
            case 3:
                found[place:place] = chance.choice(LENGTHS)
            case 4:
                piece = bytes(found[place : place + chance.randint(1, 20)])
                found[place:place] = piece * chance.choice((1, 10, 200))
            case 5:
                found += chance.randbytes(chance.randrange(40))
    return bytes(found)


LENGTHS = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x0f",
    b"\x00\x01\x86\xa0",
    b"\xfe\xff\xff\xff\x0f",
    b"\x7f\xff",
    unsigned_varint(MAX_ELEMENTS + 1),
    b"\x00",
)


def bombs(size: int) -> Iterator[bytes]:
    """Long bodies of one thought: every byte a length, a count, an empty thing."""
    for filling in (b"\x00", b"\x01", b"\x02", b"\x7f", b"\xff", b"\x00\x00\x00\x01", b"\x02\x00"):
        for head in (b"", b"\x01", b"\x00\x00", *LENGTHS):
            yield head + filling * (size // len(filling))


@dataclass
class Cost:
    """`outcome`: None where it was read, else the refusal."""

    outcome: MalformedFrame | None
    calls: int
    peak_bytes: int

    def excess(self, size: int) -> str:
        """What is beyond the bounds, or nothing."""
        if self.calls > FEWEST_CALLS + CALLS_PER_BYTE * size:
            return f"{self.calls} calls for {size} bytes"
        if self.peak_bytes > FEWEST_PEAK_BYTES + PEAK_PER_BYTE * size:
            return f"{self.peak_bytes} bytes at the peak for {size} bytes"
        return ""


def cost(decode: Callable[[bytes], object], body: bytes) -> Cost:
    """Anything but MalformedFrame comes out as it is: it would be a bug."""
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    outcome: list[MalformedFrame] = []

    def decode_counted(wanted: bytes) -> None:
        sys.setprofile(count)
        try:
            decode(wanted)
        except MalformedFrame as error:
            outcome.append(error)
        finally:
            sys.setprofile(None)

    peak = peak_bytes(decode_counted, body)
    return Cost(outcome[0] if outcome else None, calls, peak)


def peak_bytes(decode: Callable[[bytes], object], body: bytes) -> int:
    tracemalloc.start()
    try:
        with contextlib.suppress(MalformedFrame):
            decode(body)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
