"""Record batches over HTTP as the log stores them (`application/vnd.kafka.recordbatch`).

Nothing in them is opened: compression, keys, idempotent producers and timestamps stay as they are.
Only headers are looked at, for offsets.
"""

import asyncio

import msgspec
from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.http.answers import Answer
from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.http.problems import HttpProblem
from tidemark_broker.http.produce_results import PRODUCE_ANSWER_TYPE
from tidemark_broker.storage.errors import CorruptBatch
from tidemark_broker.storage.record_batch import read_header

BATCHES_PER_SLICE = 500


class BatchesWritten(msgspec.Struct, frozen=True):
    """`offset` of the first record and `last_offset`; -1: written without acknowledgement."""

    partition: int
    offset: int
    last_offset: int


def offsets_in(body: bytes, limits: HttpLimits) -> int:
    """How many offsets the batches of a request take. Raises HttpProblem: 422."""
    view = memoryview(body)
    position = count = batches = 0
    try:
        while position < len(view):
            header = read_header(view, position)
            position += header.size_bytes
            count += header.last_offset_delta + 1
            batches += 1
            if batches > limits.batches:
                raise _invalid(f"expected at most {limits.batches} batches")
        if position > len(view):
            raise _invalid(f"the last batch ends {position - len(view)} bytes after the body")
    except CorruptBatch as error:
        raise _invalid(str(error)) from error
    if not batches:
        raise _invalid("expected a record batch, found nothing")
    return count


def batches_answer(partition: int, base_offset: int, offset_count: int) -> Answer:
    last_offset = base_offset + offset_count - 1 if base_offset >= 0 else -1
    written = BatchesWritten(partition, base_offset, last_offset)
    return Answer(200, msgspec.json.encode({"offsets": [written]}), PRODUCE_ANSWER_TYPE)


async def next_offset_of(data: bytes, offset: int) -> int:
    """After the last of the batches that were read; `offset` where there is none."""
    view = memoryview(data)
    position = batches = 0
    while position < len(view):
        header = read_header(view, position)
        position += header.size_bytes
        offset = max(offset, header.next_offset)
        batches += 1
        if batches % BATCHES_PER_SLICE == 0:
            await asyncio.sleep(0)
    return offset


def _invalid(detail: str) -> HttpProblem:
    return HttpProblem(ErrorCode.INVALID_RECORD, f"body: {detail}")
