"""Summaries that earlier runs kept, so that a scheduled audit reads only what is new.

One Parquet file for each stretch of time that was read; since summaries merge exactly, an audit of
four weeks out of 28 daily files is the audit of the samples. Files older than the window are
removed. A file says which sources and which kernel settings it is of.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark_audit.aggregation.summaries import AggregationSettings
from tidemark_audit.engines.engine import Engine, Progress, Request
from tidemark_audit.sources.checkpointed_summaries import SummarySlice, unreadable
from tidemark_audit.sources.source import Source, SourceError, Window

_PREFIX = "summaries-"
_LOOK_BACK = "look-back.parquet"  # of what stood when the window began; made anew by each run
PARTS_OF_WINDOW = 8  # of a running Prometheus: the window starts at most so much of it early


def with_checkpoint(
    directory: Path,
    engine: Engine,
    sources: Sequence[Source],
    window: Window,
    settings: AggregationSettings,
    progress: Progress,
) -> tuple[list[SummarySlice], Window, AggregationSettings]:
    """Read what no file holds yet, store it, and return the files that make up the window.

    The window starts where a file does, as a summary cannot be cut: a little early, or late if more
    is asked for than was ever read. Raises SourceError.
    """
    if window.start_ms is None or window.end_ms is None:
        raise SourceError(
            str(directory),
            expected="a window for an audit with a checkpoint",
            found="none",
            to_do="use --window, or --start and --end",
        )
    start_ms, end_ms = window.start_ms, window.end_ms
    try:
        directory.mkdir(parents=True, exist_ok=True)
        found = _files(directory)
        places = " ".join(sorted(source.place for source in sources))
        for each in found:
            settings = _settings_of(each.path, places)
        if found and found[-1].end_ms > end_ms:
            raise unreadable(
                found[-1].path, f"summaries later than the end of the window, {end_ms} ms"
            )
        kept = [each for each in found if each.end_ms > start_ms]
        for new in _unread(kept[-1].end_ms if kept else start_ms, window, sources):
            slices = [part for source in sources for part in source.slices(new)]
            summaries = engine.summaries(Request(slices, new, settings), progress)
            kept.append(_write(_path(directory, new), summaries, new, settings, places))
        # What is no longer needed goes last: until here nothing was lost.
        for old in found:
            if old.end_ms <= start_ms:
                old.path.unlink()
        whole = Window(kept[0].start_ms, end_ms).looking_back()
        early = Window(whole.start_ms, whole.start_ms, whole.look_back_ms)
        slices = [part for source in sources for part in source.slices(early.to_read)]
        summaries = engine.summaries(Request(slices, early, settings), progress)
        path = directory / _LOOK_BACK
        look_back = _write(path, summaries, early.to_read, settings, places)
    except OSError as error:
        raise unreadable(directory, str(error)) from error
    return [look_back, *kept], whole, settings


def _unread(from_ms: int, window: Window, sources: Sequence[Source]) -> list[Window]:
    """Return the times that no file holds, cut so that a moving window can drop parts."""
    assert window.start_ms is not None
    assert window.end_ms is not None
    length = window.end_ms - from_ms
    longest = max(1, -(-(window.end_ms - window.start_ms) // PARTS_OF_WINDOW))
    # A file of samples would be read as a whole for each piece.
    count = -(-length // longest) if all(source.is_live for source in sources) else min(1, length)
    borders = [from_ms + length * number // count for number in range(count + 1)] if count else []
    return [Window(start, end) for start, end in itertools.pairwise(borders)]


def _files(directory: Path) -> list[SummarySlice]:
    """Return the checkpoint's files in order of time.

    A file that another run is writing has another name.
    """
    found = []
    for path in directory.glob(f"{_PREFIX}*.parquet"):
        start, _, end = path.stem.removeprefix(_PREFIX).partition("-")
        if not (start.isdecimal() and end.isdecimal()):
            raise unreadable(path, "a file name that is not of a checkpoint")
        found.append(SummarySlice(path, int(start), int(end)))
    found.sort(key=lambda each: each.start_ms)
    for before, after in itertools.pairwise(found):
        if before.end_ms != after.start_ms:
            raise unreadable(after.path, f"a gap or an overlap after {before.path.name}")
    return found


def _path(directory: Path, window: Window) -> Path:
    return directory / f"{_PREFIX}{window.start_ms}-{window.end_ms}.parquet"


def _write(
    path: Path, summaries: pa.Table, window: Window, settings: AggregationSettings, places: str
) -> SummarySlice:
    assert window.start_ms is not None
    assert window.end_ms is not None
    said = {
        "tidemark.break_gap_ms": str(settings.break_gap_ms),
        "tidemark.band_ms": str(settings.band_ms),
        "tidemark.sources": places,
    }
    unfinished = path.with_suffix(".new")
    pq.write_table(summaries.replace_schema_metadata(said), unfinished, compression="zstd")
    unfinished.rename(path)
    return SummarySlice(path, window.start_ms, window.end_ms)


def _settings_of(path: Path, places: str) -> AggregationSettings:
    try:
        said = {key.decode(): text.decode() for key, text in pq.read_schema(path).metadata.items()}
        if said["tidemark.sources"] != places:
            raise unreadable(path, f"summaries of {said['tidemark.sources']}, not of {places}")
        return AggregationSettings(
            int(said["tidemark.break_gap_ms"]), int(said["tidemark.band_ms"])
        )
    except (pa.ArrowException, OSError, KeyError, ValueError, AttributeError) as error:
        raise unreadable(path, str(error)) from error
