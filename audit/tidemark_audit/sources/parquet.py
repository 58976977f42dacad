"""Read tall Parquet: a row is one sample, with columns for name, labels, time and value.

Column names: `__name__`, `metric` or `name`; `timestamp`, `timestamp_ms`, `tsms`, `ts` or `time`
(integers are milliseconds, Arrow timestamps are converted); `value`; each other string or integer
column is a label, and so is a map column `labels`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tidemark_audit.aggregation.samples import Floats, Longs, SampleBatch
from tidemark_audit.metrics.families import READ_NAMES, BadLabels, SeriesKey, series_key
from tidemark_audit.sources.batches import BATCH_SAMPLES
from tidemark_audit.sources.source import LATEST_MS, Slice, SourceError, Window, unit_of

NAME_COLUMNS = ("__name__", "metric", "name")
# As milliseconds these are days in 1970, as seconds our times.
SECONDS_OF_TODAY = range(10**9, 10**11)
TIME_COLUMNS = ("timestamp_ms", "tsms", "timestamp", "ts", "time")
MAP_COLUMN = "labels"


@dataclass(frozen=True, slots=True)
class _Columns:
    name: str
    time: str
    labels: tuple[str, ...]
    has_map: bool


@dataclass(frozen=True, slots=True)
class ParquetSlice:
    path: Path
    row_groups: tuple[int, ...]

    @property
    def place(self) -> str:
        return f"{self.path} row groups {self.row_groups[0]}..{self.row_groups[-1]}"

    def read(self) -> Iterator[SampleBatch]:
        try:
            with pq.ParquetFile(self.path, memory_map=True) as file:
                columns = columns_of(file.schema_arrow, self.place)
                file = pq.ParquetFile(
                    self.path, memory_map=True, read_dictionary=[columns.name, *columns.labels]
                )
                wanted = [columns.name, columns.time, "value", *columns.labels]
                if columns.has_map:
                    wanted.append(MAP_COLUMN)
                for group in self.row_groups:
                    table = file.read_row_group(group, columns=wanted, use_threads=False)
                    yield _batch(table, columns)
        except (pa.ArrowException, OSError, BadLabels) as error:
            raise unreadable(self.place, error) from error


@dataclass(frozen=True, slots=True)
class Parquet:
    path: Path
    kind: str = "tall Parquet"
    is_live: bool = False

    @property
    def place(self) -> str:
        return str(self.path)

    def slices(self, window: Window) -> Sequence[Slice]:
        try:
            metadata = pq.read_metadata(self.path)
            schema = pq.read_schema(self.path)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(self.place, error) from error
        columns = columns_of(schema, self.place)
        time_column = metadata.schema.names.index(columns.time)
        slices: list[Slice] = []
        pending: list[int] = []
        rows = 0
        for group in range(metadata.num_row_groups):
            described = metadata.row_group(group)
            if _is_outside(described.column(time_column).statistics, window):
                continue
            if pending and rows + described.num_rows > BATCH_SAMPLES:
                slices.append(ParquetSlice(self.path, tuple(pending)))
                pending, rows = [], 0
            pending.append(group)
            rows += described.num_rows
        if pending:
            slices.append(ParquetSlice(self.path, tuple(pending)))
        return slices

    def histogram_series(self) -> int:
        return 0  # only families that the audit reads are looked for

    def ends_ms(self) -> int | None:
        try:
            metadata = pq.read_metadata(self.path)
            columns = columns_of(pq.read_schema(self.path), self.place)
        except (pa.ArrowException, OSError) as error:
            raise unreadable(self.place, error) from error
        time_column = metadata.schema.names.index(columns.time)
        found = [
            metadata.row_group(group).column(time_column).statistics
            for group in range(metadata.num_row_groups)
        ]
        ends = [each.max for each in found if each is not None and each.has_min_max]
        is_known = len(ends) == len(found) and all(isinstance(end, int) for end in ends)
        return max(ends, default=None) if is_known else None

    def first_batch(self, window: Window) -> SampleBatch | None:
        slices = self.slices(window)
        return next(iter(slices[0].read())) if slices else None


def unreadable(place: str, error: Exception) -> SourceError:
    return SourceError(
        place,
        expected="a complete Parquet file of samples",
        found=str(error),
        to_do="write or copy the file again",
    )


def columns_of(schema: pa.Schema, place: str) -> _Columns:
    name = next((column for column in NAME_COLUMNS if column in schema.names), None)
    time = next((column for column in TIME_COLUMNS if column in schema.names), None)
    if name is None or time is None or "value" not in schema.names:
        raise SourceError(
            place,
            expected=f"columns value, one of {', '.join(NAME_COLUMNS)} and one of"
            f" {', '.join(TIME_COLUMNS)}",
            found=", ".join(schema.names),
            to_do="rename the columns when exporting",
        )
    labels = tuple(
        field.name
        for field in schema
        if field.name not in (name, time, "value")
        and (
            pa.types.is_string(field.type)
            or pa.types.is_large_string(field.type)
            or pa.types.is_integer(field.type)
            or pa.types.is_dictionary(field.type)
        )
    )
    has_map = MAP_COLUMN in schema.names and pa.types.is_map(schema.field(MAP_COLUMN).type)
    return _Columns(name, time, labels, has_map)


def _is_outside(statistics: pq.Statistics | None, window: Window) -> bool:
    if statistics is None or not statistics.has_min_max or not isinstance(statistics.min, int):
        return False
    before = window.start_ms is not None and statistics.max < window.start_ms
    after = window.end_ms is not None and statistics.min >= window.end_ms
    return before or after


def _batch(table: pa.Table, columns: _Columns) -> SampleBatch:
    table = _read_rows(table.combine_chunks(), columns)
    if columns.has_map:
        # Rare and slow: each distinct map as text is a label column of its own.
        return _of_maps(table, columns)
    names = (columns.name, *columns.labels)
    indices = [_indices(_encoded(table[name])) for name in names]
    # Rows of a series mostly stand together: one look per stretch, not per row.
    begins = np.ones(table.num_rows, dtype=np.bool_)
    if table.num_rows:
        begins[1:] = False
    for each in indices:
        begins[1:] |= each[1:] != each[:-1]
    starts = np.flatnonzero(begins)
    return _of_intervals(table, columns, starts, _codes([each[starts] for each in indices]))


def _read_rows(table: pa.Table, columns: _Columns) -> pa.Table:
    """Return the rows of families that the audit reads."""
    encoded = _encoded(table[columns.name])
    known = np.array([word in READ_NAMES for word in encoded.dictionary.to_pylist()], dtype=bool)
    if encoded.null_count == 0 and known.all():
        return table
    known = np.append(known, False)
    return table.filter(pa.array(known[_indices(encoded)]))


def _encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks) if whole.num_chunks else pa.array([], whole.type)
    return whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()


def _indices(encoded: pa.DictionaryArray) -> NDArray[Any]:
    """Return the indices into the dictionary; a null's is one past its end."""
    indices = encoded.indices
    if indices.null_count:
        indices = pc.fill_null(indices, len(encoded.dictionary))
    return np.asarray(indices.to_numpy(zero_copy_only=False))


def _codes(columns: Sequence[NDArray[Any]]) -> Longs:
    """Return one number for each combination of values."""
    code: Longs = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        _, code = np.unique(code * len(values) + place, return_inverse=True)
    return code.astype(np.int64)


def _of_intervals(table: pa.Table, columns: _Columns, starts: Longs, codes: Longs) -> SampleBatch:
    """Return the batch of a table whose intervals have the series `codes`.

    Series are numbered as they appear, so rows that are in order stay so.
    """
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(first), dtype=np.int32)
    number[order] = np.arange(len(first), dtype=np.int32)
    chosen = pa.array(starts[first[order]])
    rows = table.select([columns.name, *columns.labels]).take(chosen).to_pylist()
    keys: list[SeriesKey] = []
    for row in rows:
        labels = {name: str(text) for name, text in row.items() if text is not None}
        labels["__name__"] = labels.pop(columns.name)
        key = series_key(labels)
        assert key is not None, "rows of other families were filtered out"
        keys.append(key)
    lengths = np.diff(np.append(starts, table.num_rows))
    return SampleBatch(
        tuple(keys),
        np.repeat(number[inverse], lengths),
        _milliseconds(table[columns.time]),
        _values(table),
    )


def _values(table: pa.Table) -> Floats:
    column = table["value"].combine_chunks().cast(pa.float64())
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def _of_maps(table: pa.Table, columns: _Columns) -> SampleBatch:
    place: dict[SeriesKey, int] = {}
    series_of = np.empty(table.num_rows, dtype=np.int32)
    names = table[columns.name].cast(pa.string()).to_pylist()
    for row, (name, pairs) in enumerate(zip(names, table[MAP_COLUMN].to_pylist(), strict=True)):
        key = series_key({**dict(pairs or ()), "__name__": name})
        assert key is not None, "rows of other families were filtered out"
        series_of[row] = place.setdefault(key, len(place))
    return SampleBatch(
        tuple(place),
        series_of,
        _milliseconds(table[columns.time]),
        _values(table),
    )


def _milliseconds(column: pa.ChunkedArray) -> Longs:
    if column.null_count:
        raise BadLabels("a sample without a time")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
    if pa.types.is_floating(column.type):  # seconds, as the API writes them
        seconds = np.asarray(column.to_numpy())
        bad = seconds[~(np.abs(seconds) <= LATEST_MS / 1000)]
        if len(bad):
            raise BadLabels(f"a time of {bad[0]:.16g} seconds{unit_of(float(bad[0]))}")
        return np.rint(seconds * 1000.0).astype(np.int64)
    at_ms = np.asarray(column.cast(pa.int64()).to_numpy())
    if len(at_ms) and int(at_ms.max()) in SECONDS_OF_TODAY:
        raise BadLabels(
            f"times up to {at_ms.max()}, which look like whole seconds: write milliseconds, or"
            " seconds as floating point"
        )
    return at_ms
