"""Read samples as a DataFrame by `spark.read.format("prometheus")`, for notebooks.

    from tidemark_audit.sources.data_source import PrometheusDataSource
    spark.dataSource.register(PrometheusDataSource)
    spark.read.format("prometheus").option("start", ...).option("end", ...).load("http://...")

Paths are those of `tidemark audit`; commas separate several. A stream (`readStream`, option
`start`) returns what has settled since the last batch. The audit itself does not use this: it never
sends raw samples through the JVM.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from tidemark_audit.aggregation.samples import SampleBatch, within
from tidemark_audit.metrics.families import PREFIX, SeriesKey
from tidemark_audit.sources.detect import sources_at
from tidemark_audit.sources.source import Slice, SourceError, Window

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

LABELS = tuple(name for name in SeriesKey._fields if name not in ("family", "partition"))
SCHEMA = (
    "metric string, " + ", ".join(f"{name} string" for name in LABELS) + ", partition int,"
    " tsms bigint, value double"
)
DEFAULT_SETTLE_MS = 300_000


@dataclass
class SlicePartition(InputPartition):
    """Hold a slice of a source, limited to [start, end)."""

    part: Slice
    window: Window

    def __post_init__(self) -> None:
        super().__init__(self.part.place)


class PrometheusDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "prometheus"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        return PrometheusReader(dict(self.options))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return PrometheusStreamReader(dict(self.options))


class PrometheusReader(DataSourceReader):
    """Read a source in batch.

    The options are path, start and end (ms since 1970) and tokenFile.
    """

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        self._window = Window(_number(options, "start"), _number(options, "end"))

    def partitions(self) -> Sequence[InputPartition]:
        return partitions_of(self._options, self._window)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SlicePartition)
        yield from rows_of(partition)


class PrometheusStreamReader(DataSourceStreamReader):
    """Read a source as a stream, with the options path, start, tokenFile and settle.

    `settle` is how many ms must have passed; default five minutes. Offsets are times: a batch holds
    [last end, now - settle).
    """

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options
        settle = _number(options, "settle")
        self._settle_ms = DEFAULT_SETTLE_MS if settle is None else settle
        self._start_ms = _number(options, "start")
        if self._start_ms is None:
            raise SourceError(
                options.get("path", ""),
                expected="option start for a stream, in ms since 1970",
                found="none",
                to_do="set the time of the first samples to read",
            )

    def initialOffset(self) -> dict[str, int]:
        assert self._start_ms is not None
        return {"ms": self._start_ms}

    def latestOffset(
        self, start: dict[str, int] | None = None, limit: "ReadLimit | None" = None
    ) -> dict[str, int]:
        """Return the last settled time.

        Spark 4.1 passes neither start nor limit; the limit of 4.2 is always "all there is", because
        no other is named.
        """
        del start, limit
        settled = int(time.time() * 1000) - self._settle_ms
        return {"ms": max(settled, self.initialOffset()["ms"])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        if start["ms"] >= end["ms"]:
            return []
        return partitions_of(self._options, Window(start["ms"], end["ms"]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SlicePartition)
        yield from rows_of(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: each batch is read again by its offsets."""


def partitions_of(options: dict[str, str], window: Window) -> list[SlicePartition]:
    """Return the partitions of the sources in the options.

    Raises SourceError.
    """
    token = options.get("tokenfile", options.get("tokenFile"))
    places = [place.strip() for place in options.get("path", "").split(",") if place.strip()]
    sources = sources_at(places, token_file=None if token is None else Path(token))
    return [SlicePartition(part, window) for source in sources for part in source.slices(window)]


def rows_of(partition: SlicePartition) -> Iterator[pa.RecordBatch]:
    for batch in partition.part.read():
        cut = within(batch, partition.window.start_ms, partition.window.end_ms)
        if len(cut):
            yield _rows(cut)


def _rows(batch: SampleBatch) -> pa.RecordBatch:
    def labels(name: str) -> pa.Array:
        words = pa.array([getattr(key, name) for key in batch.series])
        return words.take(pa.array(batch.series_of))

    metrics = pa.array([PREFIX + key.family for key in batch.series])
    numbers = np.array([key.partition for key in batch.series], dtype=np.int32)
    columns = {"metric": metrics.take(pa.array(batch.series_of))}
    columns |= {name: labels(name) for name in LABELS}
    columns |= {
        "partition": pa.array(numbers[batch.series_of]),
        "tsms": pa.array(batch.at_ms),
        "value": pa.array(batch.values, from_pandas=False),
    }
    return pa.RecordBatch.from_pydict(columns)


def _number(options: dict[str, str], name: str) -> int | None:
    """Return an option as a number, or None.

    Raises SourceError.
    """
    if name not in options:
        return None
    try:
        return int(options[name])
    except ValueError as error:
        raise SourceError(
            options.get("path", ""),
            expected=f"option {name} in ms since 1970",
            found=repr(options[name]),
            to_do="write it as a whole number",
        ) from error
