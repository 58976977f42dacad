"""Replace segments by a compacted one, crash-safe at each step.

`X.log.cleaned` is written and synced, then renamed to `X.log.swap`, and the directory is synced:
from then on it counts. The segments that it replaces are renamed for deletion and it becomes
`X.log`. A start that finds a `.cleaned` file drops it, and one that finds a `.swap` completes it.
The ranges are known from the file: compaction leaves no holes, so a swap holds exactly the offsets
that it replaces. Kafka uses the same names (LogSegments, `.cleaned`, `.swap`).
"""

import threading
from collections.abc import Iterable
from pathlib import Path

from tidemark_protocol.ids import Offset

from tidemark_broker.kafka_wire.records.errors import CorruptBatch
from tidemark_broker.log.disk import Disk
from tidemark_broker.log.segment import INDEX_SUFFIXES, log_path, scan_batches

SWAP_SUFFIX = ".swap"
_LOG_SWAP = ".log" + SWAP_SUFFIX


class SegmentSwap:
    """The swaps of one log, between the worker that compacts it and the loop.

    What a run has written counts only while the log is as it was when the run began: each
    truncation on the loop calls `invalidate`, and a committed swap is undone then, durably, before
    the truncation.
    """

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        self._lock = threading.Lock()
        self._truncations = 0
        self._committed: Path | None = None

    def begin(self) -> int:
        """Return a mark of the log's present state, for `commit` and `is_valid`."""
        return self._truncations

    def commit(self, cleaned: Path, begun: int) -> bool:
        """Commit a cleaned file that is written and synced; return False if the log was truncated.

        Called in the worker. After True a restart completes the swap. Raises OSError.
        """
        with self._lock:
            if not self.is_valid(begun):
                self._disk.remove(cleaned)
                return False
            swap = cleaned.with_suffix(SWAP_SUFFIX)
            self._disk.rename(cleaned, swap)
            self._committed = swap
            self._disk.sync_directory(self._directory)
            return True

    # guard: swap-is-valid (B9)
    def is_valid(self, begun: int) -> bool:
        return begun == self._truncations

    def complete(self, path: Path) -> None:
        """Rename the replaced segments for deletion and the new file to `path`, on the loop."""
        with self._lock:
            assert self._committed is not None, f"no swap for {path} was committed"
            self._disk.rename(self._committed, path)
            self._committed = None

    # guard: truncation-voids-swap (B9)
    def invalidate(self) -> None:
        """Invalidate all swaps, before segments are truncated or deleted.

        Raises OSError.
        """
        with self._lock:
            self._truncations += 1
            if self._committed is not None:
                self._disk.remove(self._committed)
                self._disk.sync_directory(self._directory)
                self._committed = None


def remove_segment_files(disk: Disk, directory: Path, base_offset: Offset) -> None:
    path = log_path(directory, base_offset)
    for suffix in (*INDEX_SUFFIXES, ".log"):
        disk.remove(path.with_suffix(suffix))


# guard: start-finishes-swaps (I6)
def finish_swaps(disk: Disk, directory: Path, names: Iterable[str]) -> None:
    """Complete the committed swaps of a log before it is loaded.

    Raises OSError.
    """
    names = sorted(names)
    for name in names:
        if name.endswith(_LOG_SWAP):
            _finish(disk, directory, names, Offset(int(name.removesuffix(_LOG_SWAP))))
        elif name.endswith(SWAP_SUFFIX):
            disk.remove(directory / name)


def _finish(disk: Disk, directory: Path, names: Iterable[str], base_offset: Offset) -> None:
    path = log_path(directory, base_offset)
    swap = directory / f"{path.name}{SWAP_SUFFIX}"
    end_offset = _end_of(disk, swap, base_offset)
    if end_offset is None and path.name in names:
        disk.remove(swap)  # damaged since: what it would replace is still here
        return
    if end_offset is not None:
        for name in names:
            if name.endswith(".log") and base_offset < int(name.removesuffix(".log")) < end_offset:
                remove_segment_files(disk, directory, Offset(int(name.removesuffix(".log"))))
    for suffix in INDEX_SUFFIXES:
        disk.remove(path.with_suffix(suffix))  # they tell of the old file
    disk.rename(swap, path)
    disk.sync_directory(directory)


def _end_of(disk: Disk, path: Path, base_offset: Offset) -> Offset | None:
    """Return the offset after the file's last batch, or None if it is corrupt."""
    file = disk.open(path)
    end_offset = base_offset
    try:
        for _, header in scan_batches(
            file,
            start=0,
            end=file.size_bytes(),
            expected_offset=base_offset,
            verify_crc=True,
        ):
            end_offset = header.next_offset
    except CorruptBatch:
        return None
    return end_offset
