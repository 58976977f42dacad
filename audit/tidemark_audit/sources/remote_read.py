"""Read Prometheus's remote read with streamed XOR chunks: raw samples with stale markers.

Frames are a length, a CRC-32C and a ChunkedReadResponse (prompb/remote.proto). Chunks of another
encoding raise `UnsupportedEncoding`, and the caller asks for plain samples (`remote_read_samples`).
"""

from collections.abc import Iterator, Sequence

import crc32c
import numpy as np

from tidemark_audit.aggregation.samples import SampleBatch
from tidemark_audit.metrics.families import SeriesKey, series_key
from tidemark_audit.sources.batches import BATCH_SAMPLES, MOST_RESPONSE_SAMPLES
from tidemark_audit.sources.http_server import Response, TooLarge, TruncatedResponse
from tidemark_audit.sources.protobuf import (
    BadMessage,
    fields,
    labels_of,
    signed,
    snappy_literals,
    varint,
    write_bytes,
    write_number,
)
from tidemark_audit.sources.xor_chunks import BadChunk, decode, samples_in

CONTENT_TYPE = "application/x-streamed-protobuf"
SAMPLES, STREAMED_XOR_CHUNKS = 0, 1
REGEX_MATCH = 2
XOR = 1
MOST_FRAME_BYTES = 16 << 20  # Prometheus makes them of one MiB
PENDING_BYTES = 32 << 20
CHUNKS_AT_ONCE = BATCH_SAMPLES // 120


class UnsupportedEncoding(Exception):
    """Report chunks of an encoding that is not decoded here."""


class Corrupt(ValueError):
    """Report a frame that does not match its checksum, or holds no chunks."""


def request_body(start_ms: int, end_ms: int, names: str, accepted: Sequence[int]) -> bytes:
    """Return a FetchParams for [start, end] of the families whose names match the expression.

    `accepted` are response types, the best first; a server uses the first that it supports.
    """
    matcher = (
        write_number(1, REGEX_MATCH) + write_bytes(2, b"__name__") + write_bytes(3, names.encode())
    )
    query = write_number(1, start_ms) + write_number(2, end_ms) + write_bytes(3, matcher)
    types = b"".join(write_number(2, number) for number in accepted)
    return snappy_literals(write_bytes(1, query) + types)


def batches(stream: Response) -> Iterator[SampleBatch]:
    """Yield the batches of a streamed response.

    However the server divides them, memory holds at most a few frames and the samples of one
    answer. Raises Damaged, BadLabels, UnsupportedEncoding, TruncatedResponse, TooLarge.
    """
    if not stream.says_its_length:
        raise Corrupt("frames without a Content-Length, so that the end is unknown")
    pending = _Pending()
    try:
        for frame in _frames(stream):
            pending.add(frame)
            if pending.is_full:
                yield pending.take()
        yield pending.take()
    except (BadMessage, BadChunk) as error:
        raise Corrupt(str(error)) from error


def _frames(stream: Response) -> Iterator[memoryview]:
    while True:
        length = _stream_varint(stream)
        if length is None:
            return
        if not 0 < length <= MOST_FRAME_BYTES:
            raise Corrupt(f"a frame of {length} bytes")
        head = _exactly(stream, 4)
        data = _exactly(stream, length)
        if crc32c.crc32c(data) != int.from_bytes(head, "big"):
            raise Corrupt(f"a frame of {length} bytes that does not match its checksum")
        yield memoryview(data)


def _stream_varint(stream: Response) -> int | None:
    """Return the next varint, or None at the end of the stream."""
    data = b""
    while len(data) < 10:
        byte = stream.read(1)
        if not byte:
            if data:
                raise TruncatedResponse("the response ends within the length of a frame")
            return None
        data += byte
        if byte[0] < 0x80:
            return varint(data, 0)[0]
    raise Corrupt("a frame without a length")


def _exactly(stream: Response, length: int) -> bytes:
    data = b""
    while len(data) < length:
        window_part = stream.read(length - len(data))
        if not window_part:
            raise TruncatedResponse(
                f"the response ends {length - len(data)} bytes before the end of its frame"
            )
        data += window_part
    return data


class _Pending:
    """Hold the chunks of some frames, and the series of each."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.samples = 0
        self._bytes = 0
        self._series_of: list[int] = []
        self._place: dict[SeriesKey, int] = {}

    @property
    def is_full(self) -> bool:
        return (
            len(self.chunks) >= CHUNKS_AT_ONCE
            or self.samples >= BATCH_SAMPLES
            or self._bytes >= PENDING_BYTES
        )

    def add(self, frame: memoryview) -> None:
        self._bytes += len(frame)
        for number, value in fields(frame):
            if number == 1 and isinstance(value, memoryview):
                self._add_series(value)

    def _add_series(self, message: memoryview) -> None:
        pairs: list[memoryview] = []
        chunks: list[bytes] = []
        for number, value in fields(message):
            if number == 1 and isinstance(value, memoryview):
                pairs.append(value)
            elif number == 2 and isinstance(value, memoryview):
                chunks.append(_chunk(value))
        key = series_key(labels_of(pairs))
        if key is None:
            return
        self.samples += sum(samples_in(chunk) for chunk in chunks)
        if self.samples > MOST_RESPONSE_SAMPLES:
            raise TooLarge(f"a response of more than {MOST_RESPONSE_SAMPLES} samples")
        self.chunks += chunks
        self._series_of += [self._place.setdefault(key, len(self._place))] * len(chunks)

    def take(self) -> SampleBatch:
        counts, times, values = decode(self.chunks)
        batch = SampleBatch(
            tuple(self._place),
            np.repeat(np.array(self._series_of, dtype=np.int32), counts),
            times,
            values,
        )
        self.chunks, self._series_of, self._place = [], [], {}
        self.samples = self._bytes = 0
        return batch


def _chunk(message: memoryview) -> bytes:
    kind, data = 0, b""
    for number, value in fields(message):
        if number == 3 and isinstance(value, int):
            kind = signed(value)
        elif number == 4 and isinstance(value, memoryview):
            data = bytes(value)
    if kind != XOR:
        raise UnsupportedEncoding(f"chunks of encoding {kind}")
    return data
