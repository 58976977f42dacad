"""Treat sectors that a disk cannot read while a log is open as corrupt batches (0089).

At a start it remains an I/O error, which may pass: taking it for the end of the log would remove
what no other replica may have.
"""

import contextlib
import errno
from collections.abc import Iterator

from tidemark_protocol.record_batch_writer import HEADER_BYTES

from tidemark_broker.kafka_wire.records.errors import UnreadableBatch
from tidemark_broker.log.disk import DiskFile


@contextlib.contextmanager
def unreadable_is_corrupt() -> Iterator[None]:
    """Raise UnreadableBatch for EIO in a body that only reads."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EIO:
            raise UnreadableBatch(error) from error
        raise


def read_ahead(file: DiskFile, position: int, size_bytes: int) -> bytes:
    """Read a batch's header, and more if all of it can be read.

    The bad sector may lie in a later batch. Raises OSError.
    """
    try:
        return file.read_at(position, size_bytes)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return file.read_at(position, min(size_bytes, HEADER_BYTES))
