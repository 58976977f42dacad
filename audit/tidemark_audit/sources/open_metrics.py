"""Read text with a sample a line: OpenMetrics with timestamps, and `promtool tsdb dump`.

    tidemark_replica_is_leader{broker="1",topic="orders"} 1 1700000000.123 # {trace="x"} 1
    {__name__="tidemark_replica_is_leader", broker="1", topic="orders"} 1 1700000000123

The first has times in seconds and must end with `# EOF`, which shows that it is complete. The
second has milliseconds, and ends with its last line. A stale marker is `NaN`, as promtool prints
it. Exemplars are skipped, and so are lines of families that the audit does not read, whatever they
contain.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tidemark_audit.aggregation.samples import Floats, SampleBatch
from tidemark_audit.metrics.families import READ_NAMES, BadLabels, SeriesKey, series_key
from tidemark_audit.sources.batches import BATCH_SAMPLES, BatchBuilder, values_of_text
from tidemark_audit.sources.source import LATEST_MS, Slice, SourceError, Window, unit_of
from tidemark_audit.sources.text_file import TextFile

SLICE_BYTES = 64 << 20
FIRST_LINES = 20_000
EOF = b"# EOF"
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_LABEL = re.compile(rf"\s*(?:([a-zA-Z_][a-zA-Z0-9_]*)|({_QUOTED}))\s*=\s*({_QUOTED})\s*(?:,|$)")
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
_DUMPED = re.compile(rf"\{{\s*(?:[a-zA-Z_][a-zA-Z0-9_]*|{_QUOTED})\s*=".encode())
# What stands before a line's value; a label may hold anything between its quotes.
_SERIES = re.compile(rf'\s*([a-zA-Z_:][a-zA-Z0-9_:]*)?\s*(\{{(?:[^"}}]|{_QUOTED})*\}})?\s'.encode())
_NAME = re.compile(rb'\s*([a-zA-Z_:][a-zA-Z0-9_:]*)|.*?__name__="([^"]*)"')
_HISTOGRAM = re.compile(rb"\}\s*\{count:")


def is_dump(head: bytes) -> bool:
    return _DUMPED.match(head) is not None


@dataclass(frozen=True, slots=True)
class OpenMetricsSlice:
    """Read the lines that begin in [begin, end) of the file."""

    file: TextFile
    begin: int
    end: int
    times_per_second: int

    @property
    def place(self) -> str:
        return f"{self.file.path} bytes {self.begin}..{self.end}"

    def read(self) -> Iterator[SampleBatch]:
        reader = _Reader(self.file.path, self.times_per_second)
        for offset, line in self.file.lines(self.begin, self.end):
            reader.add(line, offset)
            if reader.samples >= BATCH_SAMPLES:
                yield reader.take()
        yield reader.take()


@dataclass(frozen=True, slots=True)
class OpenMetrics:
    file: TextFile
    is_dump: bool = False
    is_live: bool = False

    @property
    def kind(self) -> str:
        return "promtool tsdb dump" if self.is_dump else "OpenMetrics text"

    @property
    def place(self) -> str:
        return str(self.file.path)

    @property
    def times_per_second(self) -> int:
        return 1000 if self.is_dump else 1

    def slices(self, window: Window) -> Sequence[Slice]:
        del window  # samples stand in any order: the kernel cuts
        if self.is_dump:
            self._check_end(b"\n", "that ends with a line break", self.file.tail(1))
        else:
            self._check_end(EOF, "that ends with # EOF", self.file.tail(64).rstrip())
        return [
            OpenMetricsSlice(self.file, begin, end, self.times_per_second)
            for begin, end in self.file.window_parts(SLICE_BYTES)
        ]

    def _check_end(self, end: bytes, expected: str, tail: bytes) -> None:
        if not tail.endswith(end):
            raise SourceError(
                self.place,
                expected=f"{self.kind} {expected}",
                found="no such end of the file",
                to_do="export it again: it is truncated",
            )

    def ends_ms(self) -> int | None:
        return None

    def first_batch(self, window: Window) -> SampleBatch | None:
        del window
        reader = _Reader(self.file.path, self.times_per_second)
        for offset, line in itertools.islice(self.file.lines(), FIRST_LINES):
            reader.add(line, offset)
        return reader.take()

    def histogram_series(self) -> int:
        if not self.is_dump:  # the other form has no text for them
            return 0
        lines = (line for _, line in self.file.lines())
        return len({line[: found.start()] for line in lines if (found := _HISTOGRAM.search(line))})


class _Reader:
    """Parse lines; the text before a sample's value names its series."""

    def __init__(self, path: Path, times_per_second: int) -> None:
        self._path = path
        self._times_per_second = times_per_second
        self._keys: dict[bytes, SeriesKey | None] = {}
        self._samples: dict[SeriesKey, tuple[list[float], list[float]]] = {}
        self.samples = 0

    def add(self, line: bytes, offset: int) -> None:
        if line.startswith(b"#") or not line.strip():
            return
        try:
            if b" # " in line:
                line = _without_exemplar(line)
            series, value, time = line.rsplit(None, 2)
            key = self._keys[series] if series in self._keys else self._new(series)
            if key is not None:
                numbers = float(value), float(time)
                values, times = self._samples.setdefault(key, ([], []))
                values.append(numbers[0])
                times.append(numbers[1])
                self.samples += 1
        except (ValueError, BadLabels) as error:
            if not _is_read(line) or _HISTOGRAM.search(line):
                return
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
            seconds = np.array(times) / self._times_per_second
            self._check(seconds)
            at_ms = np.rint(seconds * 1000.0).astype(np.int64)
            builder.add(key, at_ms, values_of_text(np.array(values)))
        self._samples, self.samples = {}, 0
        return builder.take()

    def _check(self, seconds: Floats) -> None:
        bad = seconds[~(np.abs(seconds) <= LATEST_MS / 1000)]
        if len(bad):
            unit = "seconds" if self._times_per_second == 1 else "milliseconds"
            found = float(bad[0]) * self._times_per_second
            raise SourceError(
                str(self._path),
                expected=f"times in {unit} since 1970",
                found=f"{found:.16g}{unit_of(found)}",
                to_do=f"export it again with times in {unit}",
            )


def _without_exemplar(line: bytes) -> bytes:
    """Return the line up to the exemplar; a sharp within quotes is a label's."""
    found = _SERIES.match(line)
    behind = 0 if found is None else found.end()
    sample, sharp, _ = line[behind:].partition(b" # ")
    return line[:behind] + sample if sharp else line


def _is_read(line: bytes) -> bool:
    """Return whether the audit may read the line's family; True if its name is unclear."""
    found = _NAME.match(line)
    return found is None or (found[1] or found[2]).decode() in READ_NAMES


def labels_of(series: str) -> dict[str, str]:
    """Return the labels of `name{a="b"}`, with `__name__`.

    Raises ValueError.
    """
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
        labels[found[1] or _unquoted(found[2])] = _unquoted(found[3])
        place = found.end()
    return labels


def _unquoted(text: str) -> str:
    return re.sub(r"\\.", lambda m: _ESCAPES.get(m[0], m[0]), text[1:-1])
