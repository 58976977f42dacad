"""Define the errors of record batches and of disks."""


class StorageError(Exception):
    """The base of all errors that this package raises on purpose."""


class CorruptBatch(StorageError):
    """An error: a record batch does not match its header or its place in the log."""

    is_unreadable = False  # the disk could not read it: it may be sound, and readable later

    def __init__(self, position: int, expected: str, found: str) -> None:
        super().__init__(
            f"corrupt record batch at byte {position}: expected {expected}, found {found}"
        )
        self.position = position
        self.expected = expected
        self.found = found

    def moved_to(self, position: int) -> "CorruptBatch":
        """Return the same error with its position in the file."""
        return type(self)(position, self.expected, self.found)


class TruncatedBatch(CorruptBatch):
    """An error: the bytes end before the batch does, as an interrupted write leaves them."""


class UnreadableBatch(CorruptBatch):
    """An error: the disk cannot read the batch any more.

    It is as lost as a batch that fails its CRC, and no more a reason to end all writes (0089). The
    kernel answers EIO for any sector that the drive cannot read.
    """

    is_unreadable = True

    def __init__(self, error: OSError) -> None:
        super().__init__(0, "what was written", str(error))
        self.args = (f"unreadable record batch: {error}",)


class InvalidBatch(CorruptBatch):
    """An error: an intact batch that a producer may not send.

    For example a control batch, or a count of records that contradicts its offsets.
    """


class UnsupportedCompression(StorageError):
    """An error: the batch cannot be decompressed here; it is stored and served as it is."""


class CannotCompact(StorageError):
    """An error: the records left of a segment would not fit into one.

    Its producer compressed better than we do. The step changed nothing, and the disk is well.
    """
