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

from tidemark_audit.engines.engine import Engine, Progress, Request
from tidemark_audit.kernel.summaries import KernelSettings
from tidemark_audit.sources.kept_summaries import SummarySlice, unreadable
from tidemark_audit.sources.source import Source, Window

_PREFIX = "summaries-"


def with_checkpoint(
    directory: Path,
    engine: Engine,
    sources: Sequence[Source],
    window: Window,
    settings: KernelSettings,
    progress: Progress,
) -> tuple[list[SummarySlice], Window, KernelSettings]:
    """Reads what no file holds yet, keeps it, and gives the files that make up the window.

    The window's start moves up to where a file begins, for a summary cannot be cut.
    """
    if window.start_ms is None or window.end_ms is None:
        raise unreadable(directory, "no window: say --window, or --start and --end")
    directory.mkdir(parents=True, exist_ok=True)
    places = " ".join(sorted(source.place for source in sources))
    kept = [each for each in _files(directory) if each.end_ms <= window.end_ms]
    for old in [each for each in kept if each.end_ms <= window.start_ms]:
        old.path.unlink()
    kept = [each for each in kept if each.start_ms >= window.start_ms]
    for each in kept:
        settings = _settings_of(each.path, places)
    read_from = kept[-1].end_ms if kept else window.start_ms
    if read_from < window.end_ms:
        new = Window(read_from, window.end_ms)
        slices = [part for source in sources for part in source.slices(new)]
        summaries = engine.summaries(Request(slices, new, settings), progress)
        kept.append(_write(directory, summaries, new, settings, places))
    return kept, Window(kept[0].start_ms, window.end_ms), settings


def _files(directory: Path) -> list[SummarySlice]:
    """In order of time. A file that another run was just writing has no such name yet."""
    found = []
    for path in directory.glob(f"{_PREFIX}*.parquet"):
        start, _, end = path.stem.removeprefix(_PREFIX).partition("-")
        if not (start.isdecimal() and end.isdecimal()):
            raise unreadable(path, "a name that is none of ours")
        found.append(SummarySlice(path, int(start), int(end)))
    found.sort(key=lambda each: each.start_ms)
    for before, after in itertools.pairwise(found):
        if before.end_ms != after.start_ms:
            raise unreadable(after.path, f"a gap or an overlap after {before.path.name}")
    return found


def _write(
    directory: Path, summaries: pa.Table, window: Window, settings: KernelSettings, places: str
) -> SummarySlice:
    assert window.start_ms is not None
    assert window.end_ms is not None
    path = directory / f"{_PREFIX}{window.start_ms}-{window.end_ms}.parquet"
    said = {
        "tidemark.break_gap_ms": str(settings.break_gap_ms),
        "tidemark.band_ms": str(settings.band_ms),
        "tidemark.sources": places,
    }
    unfinished = path.with_suffix(".new")
    pq.write_table(summaries.replace_schema_metadata(said), unfinished, compression="zstd")
    unfinished.rename(path)
    return SummarySlice(path, window.start_ms, window.end_ms)


def _settings_of(path: Path, places: str) -> KernelSettings:
    try:
        said = {key.decode(): text.decode() for key, text in pq.read_schema(path).metadata.items()}
        if said["tidemark.sources"] != places:
            raise unreadable(path, f"summaries of {said['tidemark.sources']}, not of {places}")
        return KernelSettings(int(said["tidemark.break_gap_ms"]), int(said["tidemark.band_ms"]))
    except (pa.ArrowException, OSError, KeyError, ValueError, AttributeError) as error:
        raise unreadable(path, str(error)) from error
