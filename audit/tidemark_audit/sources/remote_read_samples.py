"""Read remote read's older response: one snappy block with a message for each sample (SAMPLES).

Servers that do not support streamed chunks respond so, whatever was accepted. A sample's message is
a double and a time, usually 16 bytes (7 for the value 0, which is omitted): those are decoded by
numpy together, others one by one.
"""

import struct

import numpy as np
import pyarrow as pa

from tidemark_audit.aggregation.samples import Floats, Longs, SampleBatch
from tidemark_audit.metrics.families import series_key
from tidemark_audit.sources.batches import BatchBuilder
from tidemark_audit.sources.http_server import TooLarge
from tidemark_audit.sources.protobuf import BadMessage, fields, labels_of, signed, varint

CONTENT_TYPE = "application/x-protobuf"
MOST_BYTES = 128 << 20  # unpacked; a batch takes a third of it
_SAMPLE_TAG = 2 << 3 | 2
_VALUE_TAG = 1 << 3 | 1
_TIME_TAG = 2 << 3
_TIME_BYTES = 6  # of a varint of ms between 2004 and 2109
_LENGTH = 1 + 8 + 1 + _TIME_BYTES


def batch_of(answer: bytes) -> SampleBatch:
    """Decode a response.

    Raises BadMessage, BadLabels; TooLarge for what would need a gigabyte of memory.
    """
    builder = BatchBuilder()
    for result in _messages(memoryview(_unpacked(answer)), 1):
        for series in _messages(result, 1):
            key = series_key(labels_of(_messages(series, 1)))
            if key is not None:
                builder.add(key, *_samples(series))
    return builder.take()


def _unpacked(answer: bytes) -> bytes:
    size, _ = varint(answer, 0)
    if size > MOST_BYTES:
        raise TooLarge(f"a response of {size} bytes")
    try:
        return bytes(pa.decompress(answer, decompressed_size=size, codec="snappy", asbytes=True))
    except (pa.ArrowException, OSError) as error:
        raise BadMessage(f"data that is not a snappy block of {size} bytes ({error})") from error


def _messages(data: memoryview, wanted: int) -> list[memoryview]:
    return [
        value
        for number, value in fields(data)
        if number == wanted and isinstance(value, memoryview)
    ]


def _samples(series: memoryview) -> tuple[Longs, Floats]:
    messages = _messages(series, 2)
    times = np.zeros(len(messages), dtype=np.int64)
    values = np.zeros(len(messages), dtype=np.float64)
    lengths = np.array([len(message) for message in messages], dtype=np.int64)
    usual = np.flatnonzero(lengths == _LENGTH)
    rows = np.frombuffer(b"".join(messages[place] for place in usual), dtype=np.uint8)
    rows = rows.reshape(-1, _LENGTH)
    digits = rows[:, 10:]
    fits = (rows[:, 0] == _VALUE_TAG) & (rows[:, 9] == _TIME_TAG) & (digits[:, -1] < 0x80)
    fits &= (digits[:, :-1] >= 0x80).all(axis=1)
    shifts = 7 * np.arange(_TIME_BYTES, dtype=np.int64)
    taken = usual[fits]
    times[taken] = ((digits[fits].astype(np.int64) & 0x7F) << shifts).sum(axis=1)
    values[taken] = np.ascontiguousarray(rows[fits, 1:9]).view("<f8").ravel()
    for place in np.setdiff1d(np.arange(len(messages)), taken).tolist():
        times[place], values[place] = _sample(messages[place])
    return times, values


def _sample(message: memoryview) -> tuple[int, float]:
    """Return (time, value) of one message.

    Raises BadMessage.
    """
    at_ms, value, place = 0, 0.0, 0
    while place < len(message):
        tag, place = varint(message, place)
        if tag == _VALUE_TAG and place + 8 <= len(message):
            (value,) = struct.unpack_from("<d", message, place)
            place += 8
        elif tag == _TIME_TAG:
            number, place = varint(message, place)
            at_ms = signed(number)
        else:
            raise BadMessage(f"a sample with a field of tag {tag}")
    return at_ms, value
