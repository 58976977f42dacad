"""The answer to a consumer's Fetch, v4 to v18, in parts: records are not copied."""

from tidemark_broker.wire.fetch import (
    FetchResponse,
    PartitionAnswer,
    encode_fetch_response,
)
from tidemark_broker.wire.frames import Buffers, framed
from tidemark_broker.wire.primitives import (
    INT16,
    INT32,
    INT64,
    array_length,
    compact_string,
    nullable_string,
)

_FIRST_FLEXIBLE_VERSION = 12
_FIRST_VERSION_WITH_IDS = 13


def encode_consumer_fetch_response(response: FetchResponse, version: int) -> Buffers:
    """A whole frame. From v13 on it is the answer that replicas get."""
    if version >= _FIRST_VERSION_WITH_IDS:
        return encode_fetch_response(response)
    is_flexible = version >= _FIRST_FLEXIBLE_VERSION
    parts: Buffers = []
    head = bytearray(INT32.pack(response.correlation_id))
    if is_flexible:
        head += b"\x00"
    head += INT32.pack(response.throttle_ms)
    if version >= 7:
        head += INT16.pack(response.error) + INT32.pack(response.session_id)
    head += array_length(len(response.topics), is_flexible=is_flexible)
    for topic in response.topics:
        head += compact_string(topic.topic) if is_flexible else nullable_string(topic.topic)
        head += array_length(len(topic.partitions), is_flexible=is_flexible)
        for answer in topic.partitions:
            head += _before_records(answer, version)
            if answer.records:
                parts += (head, answer.records)
                head = bytearray()
            if is_flexible:
                head += b"\x00"
        if is_flexible:
            head += b"\x00"
    if is_flexible:
        head += b"\x00"
    parts.append(head)
    return framed(parts)


def _before_records(answer: PartitionAnswer, version: int) -> bytes:
    """With no transactions the last stable offset is the high watermark, and none is aborted."""
    is_flexible = version >= _FIRST_FLEXIBLE_VERSION
    watermark = INT64.pack(answer.high_watermark)
    out = INT32.pack(answer.partition) + INT16.pack(answer.error) + watermark + watermark
    if version >= 5:
        out += INT64.pack(answer.log_start_offset)
    out += array_length(-1, is_flexible=is_flexible)
    if version >= 11:
        out += INT32.pack(answer.preferred_replica)
    return out + array_length(len(answer.records), is_flexible=is_flexible)
