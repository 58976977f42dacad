"""Read JSON of APIs: series as Prometheus and VictoriaMetrics export them.

    {"metric": {...}, "values": [[1700000000.5, "3"], ...]}       a series of an API answer
    {"metric": {...}, "values": [3, ...], "timestamps": [1700000000500, ...]}   /api/v1/export
    {"status": "success", "data": {"resultType": "matrix", "result": [...]}}    a whole answer
    [{"metric": {...}, "values": [...]}, ...]                     promtool query -o json

A file with one of them a line is read in slices of lines. A file in which one takes many lines, or
several are on one line, is read document by document. The labels are decoded as JSON, the numbers
by numpy after the brackets are removed. Native histograms are skipped.
"""

import mmap
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from tidemark_audit.aggregation.samples import Floats, Longs, SampleBatch
from tidemark_audit.metrics.families import BadLabels, SeriesKey, series_key
from tidemark_audit.sources.batches import BatchBuilder, values_of_text
from tidemark_audit.sources.source import (
    EARLIEST_MS,
    LATEST_MS,
    Slice,
    SourceError,
    Window,
    unit_of,
)
from tidemark_audit.sources.text_file import READ_BYTES, TO_ITS_END, TextFile

SLICE_BYTES = 32 << 20
FIRST_DOCUMENTS = 2000
MOST_UNPACKED_BYTES = 2 << 30
_DECORATION = b'[]" \t\r\n'
# Between two documents there is no comma, which no place within one can look like: what closes a
# string is not followed by a name.
_BORDER = re.compile(rb'[}\]]\s*(?=(?:\[\s*)?\{\s*"[A-Za-z]+"\s*:)')
_RESPONDED = re.compile(rb'\s*\{\s*"(?:status|data|warnings|infos|error|errorType)"\s*:')
_HISTOGRAMS = re.compile(rb'"histograms"\s*:')


class _Line(msgspec.Struct):
    metric: dict[str, str]
    values: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    timestamps: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    histograms: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Response(msgspec.Struct):
    status: str
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: str = ""
    warnings: list[str] = []


class _Matrix(msgspec.Struct):
    result: list[_Line]
    result_type: str = msgspec.field(name="resultType", default="")


_LINE = msgspec.json.Decoder(_Line)
_LINES = msgspec.json.Decoder(list[_Line])
_RESPONSE = msgspec.json.Decoder(_Response)
_MATRIX = msgspec.json.Decoder(_Matrix)


class NotARange(ValueError):
    """Report that a document is of one moment, not of a range."""


@dataclass(frozen=True, slots=True)
class JsonSlice:
    """Read the lines that begin in [begin, end) of the file, or all of it, document by document."""

    file: TextFile
    begin: int
    end: int
    is_in_lines: bool

    @property
    def place(self) -> str:
        return f"{self.file.path} bytes {self.begin}..{self.end}"

    def read(self) -> Iterator[SampleBatch]:
        builder = BatchBuilder()
        for offset, document in self.documents():
            for key, at_ms, values in series_of(document, f"{self.file.path}, byte {offset}"):
                builder.add(key, at_ms, values)
                if builder.is_full:
                    yield builder.take()
        yield builder.take()

    def documents(self) -> Iterator[tuple[int, bytes]]:
        if self.is_in_lines:
            lines = self.file.lines(self.begin, self.end)
            yield from ((offset, line) for offset, line in lines if line.strip())
        else:
            yield from _documents_of(self.file)


@dataclass(frozen=True, slots=True)
class JsonExport:
    file: TextFile
    kind: str = "API JSON"
    is_live: bool = False

    @property
    def place(self) -> str:
        return str(self.file.path)

    def slices(self, window: Window) -> Sequence[Slice]:
        del window  # a line holds all its times: the kernel cuts
        if not self._is_in_lines():
            return [self._whole()]
        window_parts = self.file.window_parts(SLICE_BYTES)
        return [JsonSlice(self.file, begin, end, is_in_lines=True) for begin, end in window_parts]

    def _whole(self) -> JsonSlice:
        return JsonSlice(self.file, 0, TO_ITS_END, is_in_lines=self._is_in_lines())

    def _is_in_lines(self) -> bool:
        """Return whether the first document ends where the first line does."""
        first = next((line for _, line in self.file.lines() if line.strip()), b"")
        return first.rstrip().endswith((b"}", b"]")) and first.strip() != b"[]"

    def ends_ms(self) -> int | None:
        return None

    def first_batch(self, window: Window) -> SampleBatch | None:
        del window
        builder = BatchBuilder()
        for count, (offset, document) in enumerate(self._whole().documents()):
            if count == FIRST_DOCUMENTS or builder.is_full:
                break
            for series in series_of(document, f"{self.place}, byte {offset}"):
                builder.add(*series)
        return builder.take()

    def histogram_series(self) -> int:
        found, tail = 0, b""
        with self.file.opened() as file:
            while window_part := file.read(READ_BYTES):
                data = tail + window_part
                ends = [match.end() for match in _HISTOGRAMS.finditer(data)]
                found += len(ends)
                tail = data[max(ends[-1] if ends else 0, len(data) - 64) :]
        return found


def _documents_of(file: TextFile) -> Iterator[tuple[int, bytes]]:
    with file.opened() as opened:
        if not file.is_packed:
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                yield from _documents_in(mapped)
            return
        data = opened.read(MOST_UNPACKED_BYTES)
        if len(data) == MOST_UNPACKED_BYTES:
            raise SourceError(
                str(file.path),
                expected=f"less than {MOST_UNPACKED_BYTES >> 30} GiB of unpacked JSON",
                found="more",
                to_do="unpack it: gunzip",
            )
        yield from _documents_in(data)


def _documents_in(data: bytes | mmap.mmap) -> Iterator[tuple[int, bytes]]:
    begin = 0
    for border in _BORDER.finditer(data):
        yield begin, data[begin : border.end()]
        begin = border.end()
    if data[begin:].strip():
        yield begin, data[begin:]


def series_of(document: bytes, place: str) -> Iterator[tuple[SeriesKey, Longs, Floats]]:
    """Yield the series that the audit reads of one or several adjacent documents.

    Raises SourceError.
    """
    try:
        for one in _decoded(document, place):
            key = series_key(one.metric)
            if key is not None:
                yield (key, *_samples(one))
    except (msgspec.MsgspecError, BadLabels, ValueError) as error:
        to_do = (
            "export it again: this file is truncated, is not an export, or mixes lines"
            " with documents of several lines (jq -c . converts those to lines)"
        )
        if isinstance(error, NotARange):
            to_do = "query a range, such as tidemark_broker_epoch[1h], at /api/v1/query"
        raise SourceError(
            place,
            expected='a JSON object with "metric" and "values"',
            found=f"{document[:60].decode(errors='replace')!r}... of {len(document)} bytes"
            f" ({error})",
            to_do=to_do,
        ) from error


def _decoded(document: bytes, place: str) -> list[_Line]:
    try:
        return _of_one(document, place)
    except msgspec.DecodeError:
        parts = [part for _, part in _documents_in(document)]
        if len(parts) < 2:
            raise
        return [line for part in parts for line in _of_one(part, place)]


def _of_one(document: bytes, place: str) -> list[_Line]:
    if _RESPONDED.match(document):
        return _of_response(document, place)
    if document.lstrip().startswith(b"["):
        return _LINES.decode(document)
    return [_LINE.decode(document)]


def _of_response(line: bytes, place: str) -> list[_Line]:
    response = _RESPONSE.decode(line)
    if response.status != "success" or isinstance(response.data, msgspec.UnsetType):
        raise SourceError(
            place,
            expected="a response with status success",
            found=f"status {response.status!r} {response.error}",
            to_do="export it again: Prometheus rejected this query",
        )
    if response.warnings:
        # A selector has nothing to warn of but stores that did not answer (Thanos, remote storage).
        raise SourceError(
            place,
            expected="a complete response",
            found=f"a partial response: {'; '.join(response.warnings)}",
            to_do="retry when all stores respond; without them the audit would lack samples",
        )
    matrix = _MATRIX.decode(response.data)
    if matrix.result_type not in ("matrix", ""):
        raise NotARange(f"resultType {matrix.result_type}")
    return matrix.result


def _samples(line: _Line) -> tuple[Longs, Floats]:
    if isinstance(line.values, msgspec.UnsetType):
        if not isinstance(line.value, msgspec.UnsetType):
            raise NotARange("one value of each series")
        if isinstance(line.histograms, msgspec.UnsetType):
            raise ValueError("a series without values")
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float64)
    values = _numbers(bytes(line.values))
    if isinstance(line.timestamps, msgspec.UnsetType):
        if len(values) % 2:
            raise ValueError("a value without its time")
        times = values[::2]
        return _milliseconds(times, times * 1000.0, "seconds"), values[1::2].copy()
    times = _numbers(bytes(line.timestamps))
    if len(times) != len(values):
        raise ValueError(f"{len(values)} values with {len(times)} timestamps")
    return _milliseconds(times, times, "milliseconds"), values


def _milliseconds(written: Floats, times: Floats, unit: str) -> Longs:
    is_time = np.isfinite(times) & (times >= EARLIEST_MS) & (times <= LATEST_MS)
    if not is_time.all():
        bad = float(written[~is_time][0])
        raise ValueError(f"times in {unit} expected, {bad:.16g}{unit_of(bad)} is none")
    if unit == "milliseconds" and len(times) and unit_of(float(times.max())) == " (seconds?)":
        raise ValueError(f"times in {unit} expected, found {times.max():.16g} (seconds?)")
    return np.rint(times).astype(np.int64)


def _numbers(raw: bytes) -> Floats:
    """Return the numbers of a JSON array, of pairs or flat.

    Raises ValueError.
    """
    text = raw.translate(None, _DECORATION)
    if not text:
        return np.empty(0, dtype=np.float64)
    has_null = b"null" in text  # as VictoriaMetrics writes every NaN, stale markers above all
    if has_null:
        text = text.replace(b"null", b"nan")
    numbers = np.fromstring(text.decode("ascii"), dtype=np.float64, sep=",")
    if len(numbers) != text.count(b",") + 1:
        raise ValueError("a value that is not a number")
    return values_of_text(numbers) if has_null else numbers
