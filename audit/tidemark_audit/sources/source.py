"""Define a source of samples for the engines, and its errors.

A slice is sent to another process, so it is small and holds where its samples are, not the samples.
Foreign bytes never end the audit in a traceback: what cannot be read is a `SourceError` with its
place.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tidemark_audit.aggregation.samples import SampleBatch

# What a calendar knows; a sample outside of it is damaged, or its time is in another unit.
EARLIEST_MS = -62_135_596_800_000
LATEST_MS = 253_402_300_799_999


class SourceError(Exception):
    """Report something that cannot be read; `place` is a file, a line of it, or an address."""

    def __init__(self, place: str, *, expected: str, found: str, to_do: str) -> None:
        super().__init__(place, expected, found, to_do)
        self.place = place
        self.expected = expected
        self.found = found
        self.to_do = to_do

    def __str__(self) -> str:
        return f"{self.place}: expected {self.expected}, found {self.found}; {self.to_do}"

    def __reduce__(self) -> tuple[object, ...]:  # it crosses from Spark's workers to the driver
        return _source_error, (self.place, self.expected, self.found, self.to_do)


def _source_error(place: str, expected: str, found: str, to_do: str) -> SourceError:
    return SourceError(place, expected=expected, found=found, to_do=to_do)


_UNITS = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}


def unit_of(number: float) -> str:
    """Return ` (milliseconds?)` for a number that is a time of this century in that unit.

    Else "".
    """
    for unit, per_second in _UNITS.items():
        if 1e9 <= abs(number) / per_second < 1e11:
            return f" ({unit}?)"
    return ""


TAIL_MS = 600_000  # of a file, where its last sample of a family that is read should lie
LOOK_BACK_MS = 300_000  # as Prometheus itself looks back for what stands at a moment


@dataclass(frozen=True, slots=True)
class Window:
    """Hold the times [start, end) in ms; None leaves that end to the samples."""

    start_ms: int | None = None
    end_ms: int | None = None
    look_back_ms: int = 0  # read before the start: what stood there tells what is new after it

    def looking_back(self) -> "Window":
        """Return the window with samples before its start; one that begins at 0 has none."""
        most = LOOK_BACK_MS if self.start_ms is None else min(LOOK_BACK_MS, max(0, self.start_ms))
        return replace(self, look_back_ms=most)

    @property
    def to_read(self) -> "Window":
        start = None if self.start_ms is None else self.start_ms - self.look_back_ms
        return Window(start, self.end_ms)


class Slice(Protocol):
    """Define a part of a source that one task reads; picklable."""

    @property
    def place(self) -> str: ...

    def read(self) -> Iterator[SampleBatch]:
        """Yield batches of bounded size.

        Raises SourceError.
        """


class Source(Protocol):
    @property
    def place(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def is_live(self) -> bool:
        """Return whether samples are still added, so that the newest are not settled."""

    def slices(self, window: Window) -> Sequence[Slice]:
        """Return slices that together hold each sample of the window once.

        Raises SourceError.
        """

    def ends_ms(self) -> int | None:
        """Return a time that none of its samples is after, if the source stores one.

        Raises SourceError.
        """

    def first_batch(self, window: Window) -> SampleBatch | None:
        """Return a few of its series, from which the scrape interval is estimated.

        They are of the window, because the interval may have changed. Raises SourceError.
        """

    def histogram_series(self) -> int:
        """Return how many series of native histograms a file has, which the audit does not read.

        Raises SourceError.
        """


def last_sample_ms(sources: Sequence[Source]) -> int | None:
    """Return the time of the newest sample of all sources.

    Reads everything, except where a source stores when it ends. Raises SourceError.
    """
    newest: int | None = None
    for source in sources:
        end = source.ends_ms()
        if newest is not None and end is not None and end <= newest:
            continue
        found = None if end is None else _newest(source, Window(end - TAIL_MS))
        found = _newest(source, Window()) if found is None else found
        newest = max((each for each in (newest, found) if each is not None), default=None)
    return newest


def _newest(source: Source, window: Window) -> int | None:
    batches = (batch for part in source.slices(window) for batch in part.read() if len(batch))
    return max((int(batch.at_ms.max()) for batch in batches), default=None)
