"""A server, wrong or hostile, that sends more than anybody asked for: a clear error, in bounds."""

import itertools
from collections.abc import Iterator

import crc32c
import numpy as np
import pytest
from tidemark_audit.aggregation.samples import SampleBatch
from tidemark_audit.metrics.families import SeriesKey
from tidemark_audit.sources.batches import BATCH_SAMPLES, MOST_RESPONSE_SAMPLES
from tidemark_audit.sources.http_server import TooLarge
from tidemark_audit.sources.prometheus import Prometheus, within_memory
from tidemark_audit.sources.protobuf import write_bytes, write_number, write_varint
from tidemark_audit.sources.source import Slice, SourceError, Window
from tidemark_audit.sources.xor_chunks import BadChunk, decode

from tests.support.audit_exports import Export, partition
from tests.unit.audit.small_prometheus import Reply, Requested, SmallPrometheus, serving
from tests.unit.audit.sources.test_xor_chunks import encode

BASE_MS = 1_700_000_000_000
LENGTH_MS = 240_000
MOST_OF_A_CHUNK = 65_535


@pytest.fixture
def prometheus() -> SmallPrometheus:
    export = Export(length_ms=LENGTH_MS, step_ms=2000)
    partition(export)
    return SmallPrometheus(export, base_ms=BASE_MS)


@pytest.fixture
def url(prometheus: SmallPrometheus) -> Iterator[str]:
    with serving(prometheus) as address:
        yield address


def slices(url: str) -> list[Slice]:
    return list(Prometheus(url).slices(Window(BASE_MS, BASE_MS + LENGTH_MS)))


def bomb() -> Reply:
    """Five megabytes that are twenty million samples: a value that stands takes two bits."""
    times = [BASE_MS + number for number in range(MOST_OF_A_CHUNK)]
    chunk = write_number(3, 1) + write_bytes(4, encode(times, [1.0] * MOST_OF_A_CHUNK))
    name = write_bytes(1, b"__name__") + write_bytes(2, b"tidemark_partition_replicas")
    many = 1 + MOST_RESPONSE_SAMPLES // MOST_OF_A_CHUNK
    message = write_bytes(1, write_bytes(1, name) + write_bytes(2, chunk) * many)
    frame = write_varint(len(message)) + crc32c.crc32c(message).to_bytes(4, "big") + message
    kind = "application/x-streamed-protobuf; proto=prometheus"
    return Reply(frame, headers={"Content-Type": kind}, chunked=True)


def test_a_frame_that_would_unpack_to_gigabytes_is_an_error_with_the_window(
    prometheus: SmallPrometheus, url: str
) -> None:
    (part,) = slices(url)
    sent = bomb()
    prometheus.instead = lambda requested: sent
    with pytest.raises(SourceError, match="a response of more than 16000000 samples"):
        list(part.read())


def test_an_answer_that_never_ends_is_too_large() -> None:
    batch = SampleBatch(
        (SeriesKey("partition_replicas"),),
        np.zeros(BATCH_SAMPLES, dtype=np.int32),
        np.zeros(BATCH_SAMPLES, dtype=np.int64),
        np.zeros(BATCH_SAMPLES),
    )
    with pytest.raises(TooLarge):
        for _ in within_memory(itertools.repeat(batch)):
            pass


def test_series_without_samples_are_not_taken_without_end() -> None:
    keys = tuple(SeriesKey("partition_replicas", partition=number) for number in range(10_000))
    none = np.empty(0)
    batch = SampleBatch(keys, none.astype(np.int32), none.astype(np.int64), none)
    with pytest.raises(TooLarge):
        for _ in within_memory(itertools.repeat(batch)):
            pass


def test_a_chunk_that_says_it_has_more_than_it_can_hold_takes_no_memory() -> None:
    with pytest.raises(BadChunk, match="says it has 65535 samples"):
        decode([b"\xff\xff" + bytes(30)] * 1000)


def test_slices_are_cut_by_the_series_of_a_cluster_that_is_gone_by_the_end(
    prometheus: SmallPrometheus, url: str
) -> None:
    def counted(requested: Requested) -> Reply | None:
        if not requested.query.startswith("count("):
            return None
        is_gone = requested.end_ms > BASE_MS + LENGTH_MS // 2
        result = "" if is_gone else '{"metric": {}, "value": [0, "100000"]}'
        document = f'{{"status": "success", "data": {{"result": [{result}]}}}}'
        return Reply(document.encode())

    prometheus.instead = counted
    assert len(slices(url)) == 4
