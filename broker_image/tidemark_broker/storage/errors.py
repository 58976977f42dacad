"""What can go wrong with a log directory, each with its operands.

A full disk is told apart from every other I/O error: the first is survivable (produce is refused,
reads go on), after the second nothing more is written (S8: an fsync that failed may have dropped
pages that the kernel now calls clean).
"""

from pathlib import Path

from tidemark_protocol.ids import Offset


class StorageError(Exception):
    """Anything this package raises on purpose."""


class CorruptBatch(StorageError):
    """A record batch that is not what its header or its place in the log says."""

    is_unreadable = False  # the disk could not read it: it may be sound, and readable later

    def __init__(self, position: int, expected: str, found: str) -> None:
        super().__init__(
            f"corrupt record batch at byte {position}: expected {expected}, found {found}"
        )
        self.position = position
        self.expected = expected
        self.found = found

    def moved_to(self, position: int) -> "CorruptBatch":
        """The same finding, told by its position in the file."""
        return type(self)(position, self.expected, self.found)


class CutBatch(CorruptBatch):
    """The bytes end before the batch does, as a write that was cut short leaves them."""


class UnreadableBatch(CorruptBatch):
    """The disk cannot read it any more: as lost as one that fails its CRC, and as little a reason
    to end all writing (0089). Whatever the drive said of a sector, a kernel answers EIO."""

    is_unreadable = True

    def __init__(self, error: OSError) -> None:
        super().__init__(0, "what was written", str(error))
        self.args = (f"unreadable record batch: {error}",)


class InvalidBatch(CorruptBatch):
    """An intact batch that a producer may not send (control batch, count against offsets)."""


class UnsupportedCompression(StorageError):
    """The records of this batch cannot be opened here; the batch itself is stored and served."""


class CannotCompact(StorageError):
    """Records that were packed tighter than we pack them: what is left of a segment would not fit
    into one. Nothing was changed by that step, and nothing is wrong with the disk."""


class DirectoryLocked(StorageError):
    def __init__(self, path: Path, holder_pid: int | None) -> None:
        holder = "another process" if holder_pid is None else f"process {holder_pid}"
        super().__init__(f"log directory {path} is in use by {holder}; wait for it to end")
        self.path = path
        self.holder_pid = holder_pid


class ForeignVolume(StorageError):
    """The volume belongs to another broker or cluster, or is not known to belong to this one."""

    def __init__(self, path: Path, expected: str, found: str) -> None:
        super().__init__(
            f"{path} belongs to somebody else: expected {expected}, found {found}; "
            "mount the right volume, or empty this one to start as a new replica"
        )
        self.path = path
        self.expected = expected
        self.found = found


class UnsafeFilesystem(StorageError):
    """A filesystem whose locks and caches are not those of one kernel (S13)."""

    def __init__(self, path: Path, filesystem: str) -> None:
        super().__init__(
            f"{path} is on {filesystem}: expected a filesystem of this machine's kernel "
            "(ext4, xfs, ...); network and FUSE filesystems cannot keep two brokers apart"
        )
        self.path = path
        self.filesystem = filesystem


class DiskFull(StorageError):
    """Nothing was written: log end, files and epochs are as before the call (S10)."""


class OwnLogDamaged(CorruptBatch):
    """Met where this log was to be changed, or looked through: nothing was changed. `offset`: of
    the batch, or of one behind it."""

    def __init__(self, offset: int, met: CorruptBatch) -> None:
        super().__init__(met.position, met.expected, met.found)
        self.offset = offset
        self.is_unreadable = met.is_unreadable


class StorageFailed(StorageError):
    """An I/O error other than a full disk. The log refuses every further write."""


class OffsetOutOfRange(StorageError):
    def __init__(self, offset: Offset, log_start_offset: Offset, log_end_offset: Offset) -> None:
        super().__init__(
            f"offset {offset} is out of range: the log holds {log_start_offset} to {log_end_offset}"
        )
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


class OffsetGap(StorageError):
    """Replicated batches that do not continue this log."""

    def __init__(self, expected: Offset, found: Offset) -> None:
        super().__init__(f"expected a batch at offset {expected}, found one at {found}")
        self.expected = expected
        self.found = found


def is_storage_failure(error: Exception) -> bool:
    """Errors after which nothing more may be written (S8)."""
    return isinstance(error, StorageFailed | OSError)
