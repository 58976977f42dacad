"""Errors of batches say where, what was expected and what was found, and keep their kind."""

import errno

import pytest
from tidemark_broker.kafka_wire.records.errors import (
    CorruptBatch,
    InvalidBatch,
    StorageError,
    TruncatedBatch,
    UnreadableBatch,
)


@pytest.mark.parametrize("kind", [CorruptBatch, TruncatedBatch, InvalidBatch])
def test_error_names_the_byte_and_keeps_its_kind_when_it_is_moved(
    kind: type[CorruptBatch],
) -> None:
    error = kind(5, "magic 2", "magic 1")
    assert str(error) == "corrupt record batch at byte 5: expected magic 2, found magic 1"
    moved = error.moved_to(1005)
    assert type(moved) is kind
    assert (moved.position, moved.expected, moved.found) == (1005, "magic 2", "magic 1")
    assert str(moved).startswith("corrupt record batch at byte 1005: ")
    assert not error.is_unreadable


def test_sector_that_the_disk_cannot_read_is_corruption_that_may_pass() -> None:
    error = UnreadableBatch(OSError(errno.EIO, "Input/output error"))
    assert isinstance(error, CorruptBatch) and isinstance(error, StorageError)
    assert error.is_unreadable
    assert str(error) == "unreadable record batch: [Errno 5] Input/output error"
