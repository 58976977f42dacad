"""OpenMetrics text with timestamps, as `promtool tsdb dump-openmetrics` and back-fills write it.

    tidemark_replica_is_leader{broker="1",topic="orders"} 1 1700000000.123

Times are seconds, and a stale marker is `NaN`, as promtool prints it. The text must end with
`# EOF`: without it nobody knows that it is whole.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tidemark_audit.families import BadLabels, SeriesKey, series_key
from tidemark_audit.kernel.samples import SampleBatch
from tidemark_audit.sources.batches import BATCH_SAMPLES, BatchBuilder, values_of_text
from tidemark_audit.sources.source import LATEST_MS, Slice, SourceError, Window

SLICE_BYTES = 64 << 20
FIRST_LINES = 20_000
EOF = b"# EOF"
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


@dataclass(frozen=True, slots=True)
class OpenMetricsSlice:
    """The lines that begin in [begin, end) of the file."""

    path: Path
    begin: int
    end: int

    @property
    def place(self) -> str:
        return f"{self.path} bytes {self.begin}..{self.end}"

    def read(self) -> Iterator[SampleBatch]:
        reader = _Reader(self.path)
        with self.path.open("rb") as file:
            if self.begin:
                file.seek(self.begin - 1)
                file.readline()
            while (offset := file.tell()) < self.end and (lines := file.readlines(1 << 20)):
                for line in lines:
                    if offset < self.end:
                        reader.add(line, offset)
                    offset += len(line)
                if reader.samples >= BATCH_SAMPLES:
                    yield reader.take()
        yield reader.take()


@dataclass(frozen=True, slots=True)
class OpenMetrics:
    path: Path
    kind: str = "OpenMetrics text"
    is_live: bool = False

    @property
    def place(self) -> str:
        return str(self.path)

    def slices(self, window: Window) -> Sequence[Slice]:
        del window  # samples stand in any order: the kernel cuts
        size = self.path.stat().st_size
        with self.path.open("rb") as file:
            file.seek(max(0, size - 64))
            if not file.read().rstrip().endswith(EOF):
                raise SourceError(
                    self.place,
                    expected="OpenMetrics text that ends with # EOF",
                    found="no such end",
                    to_do="export it again: it is cut short",
                )
        return [
            OpenMetricsSlice(self.path, begin, min(begin + SLICE_BYTES, size))
            for begin in range(0, size, SLICE_BYTES)
        ]

    def ends_ms(self) -> int | None:
        return None

    def first_batch(self, window: Window) -> SampleBatch | None:
        del window
        reader = _Reader(self.path)
        with self.path.open("rb") as file:
            for _ in range(FIRST_LINES):
                offset = file.tell()
                reader.add(file.readline(), offset)
        return reader.take()


class _Reader:
    """Lines to samples; the text before a sample's value names its series."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys: dict[bytes, SeriesKey | None] = {}
        self._samples: dict[SeriesKey, tuple[list[float], list[float]]] = {}
        self.samples = 0

    def add(self, line: bytes, offset: int) -> None:
        if line.startswith(b"#") or not line.strip():
            return
        try:
            series, value, seconds = line.rsplit(None, 2)
            key = self._keys[series] if series in self._keys else self._new(series)
            if key is not None:
                values, times = self._samples.setdefault(key, ([], []))
                times.append(float(seconds))
                values.append(float(value))
                self.samples += 1
        except (ValueError, BadLabels) as error:
            raise SourceError(
                f"{self._path}, byte {offset}",
                expected="name{labels} value seconds",
                found=f"{line[:80].decode(errors='replace')!r} ({error})",
                to_do="export it again with timestamps, as promtool tsdb dump-openmetrics does",
            ) from error

    def _new(self, series: bytes) -> SeriesKey | None:
        key = series_key(labels_of(series.decode()))
        self._keys[series] = key
        return key

    def take(self) -> SampleBatch:
        builder = BatchBuilder()
        for key, (values, times) in self._samples.items():
            seconds = np.array(times)
            if not (np.abs(seconds) <= LATEST_MS / 1000).all():
                raise SourceError(
                    str(self._path),
                    expected="times in seconds since 1970",
                    found="a time that is no time",
                    to_do="export it again",
                )
            at_ms = np.rint(seconds * 1000.0).astype(np.int64)
            builder.add(key, at_ms, values_of_text(np.array(values)))
        self._samples, self.samples = {}, 0
        return builder.take()


def labels_of(series: str) -> dict[str, str]:
    """`name{a="b"}` as labels with `__name__`. Raises ValueError."""
    name, brace, rest = series.partition("{")
    labels = {"__name__": name.strip()}
    if not brace:
        return labels
    text = rest.rstrip()
    if not text.endswith("}"):
        raise ValueError("labels without their closing brace")
    place, text = 0, text[:-1]
    while place < len(text.rstrip()):
        found = _LABEL.match(text, place)
        if found is None:
            raise ValueError(f"no label at {text[place : place + 20]!r}")
        labels[found[1]] = re.sub(r"\\.", lambda m: _ESCAPES.get(m[0], m[0]), found[2])
        place = found.end()
    return labels
