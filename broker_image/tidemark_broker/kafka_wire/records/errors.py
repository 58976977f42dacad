"""What is wrong with a record batch, or with a disk."""


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
