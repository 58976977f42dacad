"""A checkpoint file rises durably, falls before a truncation, and is never ahead of the logs."""

import errno
import threading
from pathlib import Path

import pytest
from tidemark_broker.log.checkpoint_formats import (
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    TopicPartition,
)
from tidemark_broker.log.offset_checkpoint import OffsetCheckpoint
from tidemark_protocol.ids import Offset

from tests.support.faulty_disk import FaultyDisk

FIRST, SECOND = ("orders", 0), ("orders", 1)
OFFSETS: dict[TopicPartition, Offset] = {FIRST: Offset(10), SECOND: Offset(20)}


def a_checkpoint(
    directory: Path, name: str = HIGH_WATERMARKS
) -> tuple[OffsetCheckpoint, FaultyDisk]:
    disk = FaultyDisk()
    return OffsetCheckpoint(disk, directory / name, threading.RLock()), disk


def on_disk(directory: Path, name: str = HIGH_WATERMARKS) -> dict[TopicPartition, Offset]:
    return dict(a_checkpoint(directory, name)[0].read())


def writes(disk: FaultyDisk) -> int:
    return sum(operation == "write" for operation, _ in disk.done)


def test_offsets_are_read_as_they_were_written(tmp_path: Path) -> None:
    checkpoint, _ = a_checkpoint(tmp_path)
    checkpoint.write(OFFSETS)
    assert on_disk(tmp_path) == checkpoint.stored == OFFSETS


@pytest.mark.parametrize("content", [None, b"", b"nonsense", b"0\n1\norders 0 1"])
def test_file_that_is_missing_or_malformed_names_no_log(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / HIGH_WATERMARKS).write_bytes(content)
    assert on_disk(tmp_path) == {}


def test_file_is_written_once_while_nothing_changes(tmp_path: Path) -> None:
    checkpoint, disk = a_checkpoint(tmp_path)
    checkpoint.write(OFFSETS)
    checkpoint.write(dict(OFFSETS))
    assert writes(disk) == 1
    again, disk = a_checkpoint(tmp_path)
    again.read()
    again.write(OFFSETS)  # not known to be durable: a power loss may still take it
    assert writes(disk) == 1


def test_dropped_logs_leave_the_file_and_others_stay(tmp_path: Path) -> None:
    checkpoint, disk = a_checkpoint(tmp_path)
    checkpoint.write(OFFSETS)
    checkpoint.drop([("never", 0)])
    assert writes(disk) == 1
    checkpoint.drop([FIRST])
    assert on_disk(tmp_path) == {SECOND: 20}


def test_offsets_are_lowered_and_never_raised_by_a_truncation(tmp_path: Path) -> None:  # S31
    checkpoint, disk = a_checkpoint(tmp_path)
    checkpoint.write(OFFSETS)
    checkpoint.lower({FIRST: Offset(10), SECOND: Offset(99), ("never", 0): Offset(0)})
    assert writes(disk) == 1
    checkpoint.lower({FIRST: Offset(3), SECOND: Offset(99)})
    assert on_disk(tmp_path) == {FIRST: 3, SECOND: 20}
    assert checkpoint.truncations == 2


@pytest.mark.parametrize(
    ("name", "is_durable"), [(HIGH_WATERMARKS, True), (RECOVERY_POINTS, False)]
)
def test_lowered_recovery_points_are_synced_by_the_next_checkpoint(
    tmp_path: Path, name: str, is_durable: bool
) -> None:
    checkpoint, disk = a_checkpoint(tmp_path, name)
    checkpoint.write(OFFSETS)
    checkpoint.lower({FIRST: Offset(3)})
    written = writes(disk)
    checkpoint.write({FIRST: Offset(3), SECOND: Offset(20)})
    assert writes(disk) == written + (0 if is_durable else 1)


def test_without_space_for_a_lower_offset_no_log_is_trusted(tmp_path: Path) -> None:
    checkpoint, disk = a_checkpoint(tmp_path)
    checkpoint.write(OFFSETS)
    disk.io_failure["write"] = errno.ENOSPC
    checkpoint.lower({FIRST: Offset(3)})
    assert on_disk(tmp_path) == checkpoint.stored == {}
    assert ("sync_directory", tmp_path.name) in disk.done
    disk.io_failure.clear()
    checkpoint.write(OFFSETS)
    assert on_disk(tmp_path) == OFFSETS


def test_failing_disk_is_an_error_and_the_file_is_written_again(tmp_path: Path) -> None:
    checkpoint, disk = a_checkpoint(tmp_path)
    checkpoint.write(OFFSETS)
    disk.io_failure["write"] = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        checkpoint.lower({FIRST: Offset(3)})
    disk.io_failure.clear()
    written = writes(disk)
    checkpoint.write(OFFSETS)
    assert writes(disk) == written + 1
