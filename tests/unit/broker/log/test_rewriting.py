"""What a start without a stop proof writes once more: the same bytes, and no more than is owed."""

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tidemark_broker.log.disk import Buffer, DiskFile, OsDisk
from tidemark_broker.log.errors import DiskFull, StorageFailed
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.log.partition_log import LogSettings, PartitionLog
from tidemark_broker.log.recovery import write_again
from tidemark_broker.log.segment import SCAN_BYTES
from tidemark_protocol.ids import BrokerId, Offset

from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import TOPIC_ID, append, open_log, values_of

TWO_BATCHES = LogSettings(segment_bytes=200)
FIRST = 2  # records in the first segment


@dataclass
class RecordedFile:
    file: DiskFile
    name: str
    writes: list[tuple[str, int, int]]
    most_bytes: int

    def write_at(self, position: int, buffers: Sequence[Buffer]) -> int:
        data = b"".join(buffers)[: self.most_bytes]
        self.writes.append((self.name, position, len(data)))
        return self.file.write_at(position, [data])

    def read_at(self, position: int, size_bytes: int) -> bytes:
        return self.file.read_at(position, size_bytes)

    def size_bytes(self) -> int:
        return self.file.size_bytes()

    def truncate(self, size_bytes: int) -> None:
        self.file.truncate(size_bytes)

    def sync(self) -> None:
        self.file.sync()


class RecordingDisk(OsDisk):
    """What is written to files where."""

    def __init__(self, most_bytes: int = 1 << 30) -> None:
        super().__init__()
        self.writes: list[tuple[str, int, int]] = []
        self._most_bytes = most_bytes  # in one write

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        file = super().open(path, create=create)
        return RecordedFile(file, path.name, self.writes, self._most_bytes)


def a_log(path: Path) -> PartitionLog:
    """Two segments of two batches of one record each."""
    log = open_log(path, settings=TWO_BATCHES)
    for number in range(4):
        append(log, b"value %d" % number)
    assert [segment.base_offset for segment in log.segments] == [0, FIRST]
    return log


@pytest.mark.parametrize(
    ("recovery_point", "written"),
    [
        (0, {0: 0, 2: 0}),
        (1, {0: 1, 2: 0}),
        (2, {2: 0}),
        (3, {2: 1}),
        (4, {}),
    ],
)
def test_it_begins_at_the_batch_that_holds_the_recovery_point(
    tmp_path: Path, recovery_point: int, written: dict[int, int]
) -> None:
    """`written`: base offset of a segment -> how many of its batches stay untouched."""
    log = a_log(tmp_path)
    before = {segment.path.name: segment.path.read_bytes() for segment in log.segments}
    disk = RecordingDisk()
    write_again(disk, tmp_path, Offset(recovery_point))
    batch_bytes = log.segments[0].size_bytes // 2
    assert disk.writes == [
        (f"{base:020d}.log", kept * batch_bytes, (2 - kept) * batch_bytes)
        for base, kept in written.items()
    ]
    assert before == {segment.path.name: segment.path.read_bytes() for segment in log.segments}


def test_a_recovery_point_within_a_batch_begins_at_that_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, b"one")
    append(log, b"two", b"three", b"four")
    disk = RecordingDisk()
    write_again(disk, tmp_path, Offset(2))
    position = log.segments[0].find(Offset(2)).position
    assert disk.writes == [
        (log.segments[0].path.name, position, log.segments[0].size_bytes - position)
    ]


@pytest.mark.parametrize("most_bytes", [1 << 30, 100_000])
def test_a_large_segment_is_written_piece_by_piece_and_whole(
    tmp_path: Path, most_bytes: int
) -> None:
    log = open_log(tmp_path)
    for number in range(5):
        append(log, bytes([number]) * (SCAN_BYTES * 2 // 3))
    before = log.segments[0].path.read_bytes()
    disk = RecordingDisk(most_bytes)
    write_again(disk, tmp_path, Offset(1))
    end = log.segments[0].find(Offset(1)).position
    for _, position, size_bytes in disk.writes:
        assert (position, size_bytes <= SCAN_BYTES) == (end, True)
        end += size_bytes
    assert end == len(before)
    assert log.segments[0].path.read_bytes() == before


def test_behind_a_header_that_is_none_all_is_written(tmp_path: Path) -> None:
    log = a_log(tmp_path)
    path = log.segments[0].path
    data = bytearray(path.read_bytes())
    data[len(data) // 2 + 16] ^= 1  # the magic of the second batch
    path.write_bytes(data)
    disk = RecordingDisk()
    write_again(disk, tmp_path, Offset(2 + 1))
    assert [name for name, _, _ in disk.writes] == [log.segments[1].path.name]
    disk.writes.clear()
    log.segments[1].path.unlink()
    write_again(disk, tmp_path, Offset(3))
    assert disk.writes == [(path.name, len(data) // 2, len(data) // 2)]


def test_a_disk_that_writes_nothing_ends_it(tmp_path: Path) -> None:
    a_log(tmp_path)
    with pytest.raises(OSError, match="wrote nothing of"):
        write_again(RecordingDisk(most_bytes=0), tmp_path, Offset(0))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_without_space_the_start_is_refused_and_says_what_to_do(
    tmp_path: Path, number: int
) -> None:
    directory = LogManager.open(tmp_path, OsDisk(), broker_id=BrokerId(1), settings=LogSettings())
    append(directory.create_log("orders", TOPIC_ID, 0), b"one")
    directory.close()
    disk = FaultyDisk()
    disk.io_failure["write_at"] = number
    with pytest.raises(DiskFull, match="free space on the volume"):
        LogManager.open(tmp_path, disk, broker_id=BrokerId(1), settings=LogSettings())
    disk.io_failure["write_at"] = errno.EIO
    with pytest.raises(StorageFailed):
        LogManager.open(tmp_path, disk, broker_id=BrokerId(1), settings=LogSettings())
    disk.io_failure.clear()
    again = LogManager.open(tmp_path, disk, broker_id=BrokerId(1), settings=LogSettings())
    assert values_of(again.logs[TOPIC_ID, 0]) == [(0, b"one")]
