"""Lines of JSON, one series each, as APIs of Prometheus and VictoriaMetrics export them.

    {"metric": {...}, "values": [[1700000000.5, "3"], ...]}       a line of an API answer
    {"metric": {...}, "values": [3, ...], "timestamps": [1700000000500, ...]}   /api/v1/export
    {"status": "success", "data": {"resultType": "matrix", "result": [...]}}    a whole answer

The labels are decoded as JSON, the numbers by numpy after the brackets are cut out of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from tidemark_audit.families import BadLabels, SeriesKey, series_key
from tidemark_audit.kernel.samples import Floats, Longs, SampleBatch
from tidemark_audit.sources.batches import BatchBuilder, values_of_text
from tidemark_audit.sources.source import Slice, SourceError, Window

SLICE_BYTES = 32 << 20
FIRST_LINES = 2000
_DECORATION = b'[]" \t\r\n'


class _Line(msgspec.Struct):
    metric: dict[str, str]
    values: msgspec.Raw
    timestamps: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Answer(msgspec.Struct):
    status: str
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: str = ""
    warnings: list[str] = []


class _Matrix(msgspec.Struct):
    result: list[_Line]
    result_type: str = msgspec.field(name="resultType", default="")


_LINE = msgspec.json.Decoder(_Line)
_ANSWER = msgspec.json.Decoder(_Answer)
_MATRIX = msgspec.json.Decoder(_Matrix)


@dataclass(frozen=True, slots=True)
class JsonLinesSlice:
    """The lines that begin in [begin, end) of the file."""

    path: Path
    begin: int
    end: int

    @property
    def place(self) -> str:
        return f"{self.path} bytes {self.begin}..{self.end}"

    def read(self) -> Iterator[SampleBatch]:
        builder = BatchBuilder()
        for offset, line in self._lines():
            for key, at_ms, values in series_of(line, f"{self.path}, byte {offset}"):
                builder.add(key, at_ms, values)
                if builder.is_full:
                    yield builder.take()
        yield builder.take()

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        with self.path.open("rb") as file:
            if self.begin:  # the line that began before us belongs to who is before us
                file.seek(self.begin - 1)
                file.readline()
            while (offset := file.tell()) < self.end:
                line = file.readline()
                if not line:
                    return
                if line.strip():
                    yield offset, line


@dataclass(frozen=True, slots=True)
class JsonLines:
    path: Path
    kind: str = "API JSON lines"
    is_live: bool = False

    @property
    def place(self) -> str:
        return str(self.path)

    def slices(self, window: Window) -> Sequence[Slice]:
        del window  # a line holds all its times: the kernel cuts
        size = self.path.stat().st_size
        return [
            JsonLinesSlice(self.path, begin, min(begin + SLICE_BYTES, size))
            for begin in range(0, size, SLICE_BYTES)
        ]

    def ends_ms(self) -> int | None:
        return None

    def first_batch(self, window: Window) -> SampleBatch | None:
        del window
        builder = BatchBuilder()
        with self.path.open("rb") as file:
            for _ in range(FIRST_LINES):
                offset = file.tell()
                line = file.readline()
                if not line or builder.is_full:
                    break
                if line.strip():
                    for key, at_ms, values in series_of(line, f"{self.path}, byte {offset}"):
                        builder.add(key, at_ms, values)
        return builder.take()


def series_of(line: bytes, place: str) -> Iterator[tuple[SeriesKey, Longs, Floats]]:
    """The series of one line that the audit reads. Raises SourceError."""
    try:
        if line.lstrip().startswith(b'{"status"'):
            decoded = _of_answer(line, place)
        else:
            decoded = [_LINE.decode(line)]
        for one in decoded:
            key = series_key(one.metric)
            if key is not None:
                yield (key, *_samples(one))
    except (msgspec.MsgspecError, BadLabels, ValueError) as error:
        raise SourceError(
            place,
            expected='a JSON object with "metric" and "values"',
            found=f"{line[:60].decode(errors='replace')!r}... of {len(line)} bytes ({error})",
            to_do="export it again: this file is cut short or is no export",
        ) from error


def _of_answer(line: bytes, place: str) -> list[_Line]:
    answer = _ANSWER.decode(line)
    if answer.status != "success" or isinstance(answer.data, msgspec.UnsetType):
        raise SourceError(
            place,
            expected="an answer with status success",
            found=f"status {answer.status!r} {answer.error}",
            to_do="export it again: Prometheus refused this query",
        )
    if answer.warnings:
        # A selector has nothing to warn of but stores that did not answer (Thanos, remote storage).
        raise SourceError(
            place,
            expected="a whole answer",
            found=f"a part of one: {'; '.join(answer.warnings)}",
            to_do="ask again when every store answers; without them the audit would be of half",
        )
    matrix = _MATRIX.decode(answer.data)
    if matrix.result_type not in ("matrix", ""):
        raise ValueError(f"resultType {matrix.result_type}: ask for a range, as in up[1h]")
    return matrix.result


def _samples(line: _Line) -> tuple[Longs, Floats]:
    values = _numbers(bytes(line.values))
    if isinstance(line.timestamps, msgspec.UnsetType):
        if len(values) % 2:
            raise ValueError("a value without its time")
        return _milliseconds(values[::2] * 1000.0), values[1::2].copy()
    times = _numbers(bytes(line.timestamps))
    if len(times) != len(values):
        raise ValueError(f"{len(values)} values with {len(times)} timestamps")
    return _milliseconds(times), values


def _milliseconds(times: Floats) -> Longs:
    if not np.isfinite(times).all() or (np.abs(times) > 1e15).any():
        raise ValueError("a time that is no time")
    return np.rint(times).astype(np.int64)


def _numbers(raw: bytes) -> Floats:
    """The numbers of a JSON array, of pairs or flat. Raises ValueError."""
    text = raw.translate(None, _DECORATION)
    if not text:
        return np.empty(0, dtype=np.float64)
    has_null = b"null" in text  # as VictoriaMetrics writes every NaN, stale markers above all
    if has_null:
        text = text.replace(b"null", b"nan")
    numbers = np.fromstring(text.decode("ascii"), dtype=np.float64, sep=",")
    if len(numbers) != text.count(b",") + 1:
        raise ValueError("what is no number among the values")
    return values_of_text(numbers) if has_null else numbers
