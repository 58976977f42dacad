"""Define the errors of a log directory, each with its operands.

A full disk differs from every other I/O error: the first is survivable (produce is rejected, reads
continue), after the second nothing more is written (S8: an fsync that failed may have dropped pages
that the kernel now calls clean).

`IoFailure` tells what an I/O error means for one log: lack of room (disk, descriptors) rejects,
any other error ends all writes (S8).
"""

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from tidemark_protocol.ids import Offset

from tidemark_broker.kafka_wire.records.errors import CorruptBatch, StorageError

DISK_FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT})

# Nothing was written, and later it may be: no disk failed. The last two: no descriptor is left.
NO_ROOM_ERRORS = DISK_FULL_ERRORS | {errno.EMFILE, errno.ENFILE}


class DirectoryLocked(StorageError):
    def __init__(self, path: Path, holder_pid: int | None) -> None:
        holder = "another process" if holder_pid is None else f"process {holder_pid}"
        super().__init__(f"log directory {path} is in use by {holder}; wait for it to end")
        self.path = path
        self.holder_pid = holder_pid


class WrongVolume(StorageError):
    """An error: the volume belongs to another broker or cluster, or its owner is unknown."""

    def __init__(self, path: Path, expected: str, found: str) -> None:
        super().__init__(
            f"{path} is the volume of another broker: expected {expected}, found {found};"
            " mount the right volume, or empty this one to start without data"
        )
        self.path = path
        self.expected = expected
        self.found = found


class UnsafeFilesystem(StorageError):
    """An error: the filesystem's locks and caches are not those of one kernel (S13)."""

    def __init__(self, path: Path, filesystem: str) -> None:
        super().__init__(
            f"{path} is on {filesystem}: expected a local filesystem (ext4, xfs, ...),"
            " because locks on network and FUSE filesystems do not exclude a second broker"
        )
        self.path = path
        self.filesystem = filesystem


class DiskFull(StorageError):
    """An error: nothing was written; log end, files and epochs are as before the call (S10)."""


class LocalLogCorrupt(CorruptBatch):
    """An error: corruption was found where this log was to be changed or read.

    Nothing was changed. `offset` is of the corrupt batch, or of one behind it.
    """

    def __init__(self, offset: int, met: CorruptBatch) -> None:
        super().__init__(met.position, met.expected, met.found)
        self.offset = offset
        self.is_unreadable = met.is_unreadable


class StorageFailed(StorageError):
    """An error: an I/O error other than a full disk. The log rejects every further write."""


class OffsetOutOfRange(StorageError):
    def __init__(self, offset: Offset, log_start_offset: Offset, log_end_offset: Offset) -> None:
        super().__init__(
            f"offset {offset} is out of range: the log holds {log_start_offset} to {log_end_offset}"
        )
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class OffsetGap(StorageError):
    """An error: replicated batches do not continue this log."""

    def __init__(self, expected: Offset, found: Offset) -> None:
        super().__init__(f"expected a batch at offset {expected}, found one at {found}")
        self.expected = expected
        self.found = found


def is_storage_failure(error: Exception) -> bool:
    """Return whether nothing more may be written after this error (S8)."""
    return isinstance(error, StorageFailed | OSError)


class IoFailure:
    """The reason why a log rejects writes; empty while it accepts them. Never reset."""

    def __init__(self, directory: Path) -> None:
        self.reason = ""
        self._directory = directory

    def ensure_writable(self) -> None:
        """Raise StorageFailed if the log rejects writes."""
        if self.reason:
            raise StorageFailed(f"{self._directory} accepts no more writes: {self.reason}")

    def note(self, reason: str) -> None:
        """Record why the log rejects writes; the first reason stays."""
        self.reason = self.reason or reason

    def failed_by(self, error: OSError, action: str) -> DiskFull | StorageFailed:
        """Return the error to raise; after a full disk the log is unchanged and writable."""
        if error.errno in NO_ROOM_ERRORS and not self.reason:
            return DiskFull(f"cannot {action} in {self._directory}: {error}; nothing was written")
        return self.broken_by(error, action)

    def broken_by(self, error: OSError, action: str) -> StorageFailed:
        """Return the error to raise, and reject all further writes, also after a full disk."""
        self.note(f"could not {action}: {error}")
        return StorageFailed(f"cannot {action} in {self._directory}: {error}")

    @contextlib.contextmanager
    def breaking(self, action: str) -> Iterator[None]:
        """Reject all further writes if the body fails.

        Raises StorageFailed.
        """
        try:
            yield
        except OSError as error:
            raise self.broken_by(error, action) from error
