"""Large bodies are worked on a slice at a time: others get the loop in between, by counts."""

import asyncio
import json
from collections.abc import Awaitable, Callable

from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.http.media_types import EmbeddedFormat
from tidemark_broker.http.produce_bodies import RECORDS_PER_SLICE as OPENED_PER_SLICE
from tidemark_broker.http.produce_bodies import ProducedRecord, decode_body
from tidemark_broker.http.record_batches import RECORDS_PER_SLICE, SIZED_PER_SLICE, build_batches

COUNT = 10_000


async def turns_of(work: Callable[[], Awaitable[object]]) -> int:
    """How many turns of the loop others had until it was done."""
    task = asyncio.ensure_future(work())
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns


def test_the_records_of_a_large_body_are_opened_in_slices() -> None:
    record = {"key": "k", "value": [1], "headers": [{"key": "h", "value": "AA=="}]}
    body = json.dumps({"records": [record] * COUNT}).encode()
    turns = asyncio.run(
        turns_of(lambda: decode_body(body, EmbeddedFormat.JSON, HttpLimits())),
    )
    assert turns >= COUNT // OPENED_PER_SLICE


def test_batches_of_many_records_are_built_in_slices() -> None:
    records = [ProducedRecord(b"k", b"v", (("h", b"x"),) * 5, None, None)] * COUNT
    turns = asyncio.run(
        turns_of(lambda: build_batches(records, now_ms=1, batch_bytes=10**7)),
    )
    assert turns >= COUNT // SIZED_PER_SLICE + COUNT // RECORDS_PER_SLICE
