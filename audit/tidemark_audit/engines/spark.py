"""The kernel on Spark. How it is cut and where what runs:

1. `spark.range(slices)`, one task a slice: Python opens the slice itself and gives summaries, so
   that no raw sample crosses between the JVM and Python.
2. Summaries are repartitioned by topic and partition: all series of a partition meet in one task,
   which merges them. This table is kept; it is small (a row a series).
3. One more pass over it makes each partition's facts. Rows without a topic (brokers, operator,
   lag bands) go to the driver and, as `Context`, to every task.

The driver holds facts, never samples. It needs nothing but a SparkSession, classic or Connect.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tidemark_audit.engines.engine import (
    FamilyCounts,
    Observed,
    Progress,
    Request,
    added_counts,
    family_counts,
    make_context,
    observed,
    window_of,
)
from tidemark_audit.engines.planning import LOOKED_AT, scrape_intervals, summarize_slice
from tidemark_audit.facts.context import Context, Intervals
from tidemark_audit.facts.partition import PartitionFacts, facts_of, from_bytes, to_bytes
from tidemark_audit.families import FAMILIES, PREFIX
from tidemark_audit.kernel.merge import merge
from tidemark_audit.kernel.summaries import EMPTY, KEY_COLUMNS, SCHEMA, KernelSettings
from tidemark_audit.sources.source import SourceError

MOST_PARTITIONS = 64
_PAYLOAD = pa.schema([pa.field("payload", pa.binary(), nullable=False)])
_MARK = "tidemark-source-error:"
Batches = Iterator[pa.RecordBatch]


class SparkEngine:
    name = "spark"

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def observe(self, request: Request, progress: Progress) -> Observed:
        progress(0, len(request.slices))
        merged = self._merged(request).persist()
        try:
            counts = self._counts(merged)
            progress(len(request.slices), len(request.slices))
            window = window_of(request, counts)
            small = _collected(merged.filter(F.col("topic") == ""))
            context = make_context(small, window, self._intervals(request, merged))
            partitions = self._facts(merged, context)
            if request.what_if is None:
                return observed(counts, small, partitions, context)
            what_if = self._facts(merged, replace(context, what_if=request.what_if))
            return observed(counts, small, partitions, context, what_if)
        except Exception as error:
            raise _as_source_error(error) from error
        finally:
            merged.unpersist()

    def summaries(self, request: Request, progress: Progress) -> pa.Table:
        progress(0, len(request.slices))
        try:
            return _collected(self._merged(request))
        except Exception as error:
            raise _as_source_error(error) from error

    def _merged(self, request: Request) -> DataFrame:
        slices, window, settings = tuple(request.slices), request.window, request.settings

        def read(batches: Batches) -> Batches:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    try:
                        yield from summarize_slice(slices[number], window, settings)
                    except SourceError as error:
                        raise RuntimeError(_MARK + _error_text(error)) from error

        count = max(1, len(slices))
        partitions = min(MOST_PARTITIONS, count)
        summaries = self._spark.range(len(slices), numPartitions=count).mapInArrow(
            read, from_arrow_schema(SCHEMA)
        )
        together = summaries.repartition(partitions, "cluster", "topic", "topic_id", "partition")
        return together.mapInArrow(_merger(settings), from_arrow_schema(SCHEMA))

    def _counts(self, merged: DataFrame) -> list[FamilyCounts]:
        def count(batches: Batches) -> Batches:
            counted = family_counts(_table(batches))
            yield _payloads([msgspec.msgpack.encode(each) for each in counted])

        rows = merged.mapInArrow(count, from_arrow_schema(_PAYLOAD)).collect()
        return added_counts(
            msgspec.msgpack.decode(bytes(row.payload), type=FamilyCounts) for row in rows
        )

    def _intervals(self, request: Request, merged: DataFrame) -> Intervals:
        if request.interval_ms is not None:
            return Intervals(request.interval_ms, request.interval_ms)
        names = {
            exporter: [
                name.removeprefix(PREFIX)
                for name, family in FAMILIES.items()
                if family.exporter is exporter
            ]
            for exporter in {family.exporter for family in FAMILIES.values()}
        }
        tables = [
            _collected(
                merged.filter(F.col("family").isin(wanted) & (F.col("band_start_ms") < 0))
                .orderBy(*KEY_COLUMNS)
                .limit(LOOKED_AT)
            )
            for _, wanted in sorted(names.items())
        ]
        return scrape_intervals(pa.concat_tables(tables))

    def _facts(self, merged: DataFrame, context: Context) -> list[PartitionFacts]:
        def judge(batches: Batches) -> Batches:
            yield _payloads([to_bytes(facts) for facts in facts_of(_table(batches), context)])

        rows = merged.mapInArrow(judge, from_arrow_schema(_PAYLOAD)).collect()
        return [from_bytes(bytes(row.payload)) for row in rows]


def _merger(settings: KernelSettings) -> Any:
    def merge_partition(batches: Batches) -> Batches:
        yield from merge(_table(batches), settings).to_batches()

    return merge_partition


def _table(batches: Batches) -> pa.Table:
    tables = [pa.Table.from_batches([batch]).cast(SCHEMA) for batch in batches]
    return pa.concat_tables(tables) if tables else EMPTY


def _collected(rows: DataFrame) -> pa.Table:
    return rows.toArrow().cast(SCHEMA)


def _payloads(payloads: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"payload": payloads}, schema=_PAYLOAD)


def _error_text(error: SourceError) -> str:
    fields = [error.place, error.expected, error.found, error.to_do]
    return msgspec.json.encode(fields).hex()


def _as_source_error(error: Exception) -> Exception:
    """A worker's SourceError comes back as text in Spark's own exception."""
    text = str(error)
    if _MARK not in text:
        return error
    digits = re.match("[0-9a-f]*", text.split(_MARK, 1)[1])
    assert digits is not None, "an empty match is a match"
    place, expected, found, to_do = msgspec.json.decode(bytes.fromhex(digits[0]))
    return SourceError(place, expected=expected, found=found, to_do=to_do)
