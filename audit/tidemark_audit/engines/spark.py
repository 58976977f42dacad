"""Run the kernel on Spark.

1. `spark.range(slices)`, one task a slice: Python opens the slice itself and returns summaries, so
no raw sample crosses between the JVM and Python. Summaries leave it packed, a row for each bucket
of partitions: to the JVM they are bytes, which it moves and does not parse.

2. Buckets are shuffled (at most MOST_PARTITIONS of them): all series of a partition meet in one
task, which merges them. The merged rows are cached; they are small (a row a series).

3. The driver takes what says how to judge (`_Scrape`: counts, brokers, operator, lag bands) and
passes it as `Context` to one more pass over the cached rows, which makes each partition's facts.

The driver holds facts, never samples. It needs only a SparkSession, classic or Connect.
"""

import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tidemark_audit.aggregation.merge import merge
from tidemark_audit.aggregation.samples import Longs
from tidemark_audit.aggregation.summaries import EMPTY, KEY_COLUMNS, AggregationSettings
from tidemark_audit.analysis.context import Context, Intervals
from tidemark_audit.analysis.partition import PartitionAnalysis, analysis_of, from_bytes, to_bytes
from tidemark_audit.engines.engine import (
    FamilyCounts,
    Observed,
    Progress,
    Request,
    added_counts,
    family_counts,
    is_without_topic,
    make_context,
    observed,
    window_of,
)
from tidemark_audit.engines.planning import (
    rows_for_intervals,
    scrape_intervals,
    summarize_slice,
)
from tidemark_audit.sources.source import SourceError

MOST_PARTITIONS = 64
_BUCKETS = "bucket int, payload binary"
_RETAINED = "payload binary, look binary"
_PAYLOAD = "payload binary"
_MARK = "tidemark-source-error:"
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class _Scrape:
    """Hold what the driver must know of one task's rows before any can be judged."""

    counts: list[FamilyCounts]
    without_topic: bytes
    for_intervals: bytes


class SparkEngine:
    name = "spark"

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def observe(self, request: Request, progress: Progress) -> Observed:
        progress(0, len(request.slices))
        kept = self._merged(request).persist()
        try:
            scrapes = [
                msgspec.msgpack.decode(bytes(row.look), type=_Scrape)
                for row in kept.select("look").collect()
            ]
            progress(len(request.slices), len(request.slices))
            counts = added_counts(each for look in scrapes for each in look.counts)
            window = window_of(request, counts)
            small = _unpacked(look.without_topic for look in scrapes)
            context = make_context(small, window, _intervals(request, scrapes))
            partitions = _analysis(kept, context)
            if request.what_if is None:
                return observed(counts, small, partitions, context)
            what_if = _analysis(kept, replace(context, what_if=request.what_if))
            return observed(counts, small, partitions, context, what_if)
        except Exception as error:
            raise _as_source_error(error) from error
        finally:
            kept.unpersist()

    def summaries(self, request: Request, progress: Progress) -> pa.Table:
        progress(0, len(request.slices))
        try:
            rows = self._merged(request).select("payload").collect()
            return _unpacked(bytes(row.payload) for row in rows)
        except Exception as error:
            raise _as_source_error(error) from error

    def _merged(self, request: Request) -> DataFrame:
        slices, window, settings = tuple(request.slices), request.window, request.settings
        count = max(1, len(slices))
        buckets = min(MOST_PARTITIONS, count)

        def read(batches: Batches) -> Batches:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    try:
                        summaries = list(summarize_slice(slices[number], window, settings))
                    except SourceError as error:
                        raise RuntimeError(_MARK + _error_text(error)) from error
                    yield from _in_buckets(summaries, buckets)

        summaries = self._spark.range(len(slices), numPartitions=count).mapInArrow(read, _BUCKETS)
        return summaries.repartition(buckets, "bucket").mapInArrow(_merger(settings), _RETAINED)


def _in_buckets(batches: list[pa.RecordBatch], count: int) -> Batches:
    """Yield a row for each bucket that has any summary.

    All series of a partition are in one bucket, whichever process asks.
    """
    if not batches:
        return
    table = pa.Table.from_batches(batches)
    bucket = _bucket_of(table, count)
    numbers = np.unique(bucket)
    packed = [_packed(table.take(pa.array(np.flatnonzero(bucket == number)))) for number in numbers]
    yield pa.RecordBatch.from_arrays(
        [pa.array(numbers, pa.int32()), pa.array(packed, pa.binary())], names=["bucket", "payload"]
    )


def _bucket_of(table: pa.Table, count: int) -> Longs:
    names = ("cluster", "topic", "topic_id", "partition")
    places = zip(*(table[name].to_pylist() for name in names), strict=True)
    return np.array([zlib.crc32(repr(place).encode()) % count for place in places], dtype=np.int64)


def _merger(settings: AggregationSettings) -> Any:
    def merge_partition(batches: Batches) -> Batches:
        merged = merge(_unpacked(_payloads(batches)), settings)
        if merged.num_rows:
            look = _Scrape(
                family_counts(merged),
                _packed(is_without_topic(merged)),
                _packed(rows_for_intervals(merged)),
            )
            columns = ([_packed(merged)], [msgspec.msgpack.encode(look)])
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, pa.binary()) for column in columns], names=["payload", "look"]
            )

    return merge_partition


def _intervals(request: Request, scrapes: list[_Scrape]) -> Intervals:
    if request.interval_ms is not None:
        return Intervals(request.interval_ms, request.interval_ms)
    rows = _unpacked(look.for_intervals for look in scrapes)
    return scrape_intervals(rows.sort_by([(name, "ascending") for name in KEY_COLUMNS]))


def _analysis(kept: DataFrame, context: Context) -> list[PartitionAnalysis]:
    def evaluate(batches: Batches) -> Batches:
        analysis = analysis_of(_unpacked(_payloads(batches)), context)
        packed = pa.array([to_bytes(each) for each in analysis], pa.binary())
        yield pa.RecordBatch.from_arrays([packed], names=["payload"])

    rows = kept.select("payload").mapInArrow(evaluate, _PAYLOAD).collect()
    return [from_bytes(bytes(row.payload)) for row in rows]


def _payloads(batches: Batches) -> Iterator[bytes]:
    for batch in batches:
        yield from batch.column("payload").to_pylist()


def _packed(table: pa.Table) -> bytes:
    """Encode a table as an Arrow stream, with its schema."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _unpacked(packed: Iterable[bytes]) -> pa.Table:
    tables = [pa.ipc.open_stream(each).read_all() for each in packed]
    return pa.concat_tables(tables) if tables else EMPTY


def _error_text(error: SourceError) -> str:
    fields = [error.place, error.expected, error.found, error.to_do]
    return msgspec.json.encode(fields).hex()


def _as_source_error(error: Exception) -> Exception:
    """Restore a worker's SourceError, which Spark returns as text in an exception of its own."""
    text = str(error)
    if _MARK not in text:
        return error
    digits = re.match("[0-9a-f]*", text.split(_MARK, 1)[1])
    assert digits is not None, "an empty match is a match"
    place, expected, found, to_do = msgspec.json.decode(bytes.fromhex(digits[0]))
    return SourceError(place, expected=expected, found=found, to_do=to_do)
