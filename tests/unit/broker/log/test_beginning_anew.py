"""A log that is dropped to begin anew elsewhere, on a disk that fails meanwhile."""

import errno
from pathlib import Path

import pytest
from tidemark_broker.log.errors import StorageFailed
from tidemark_protocol.ids import Offset

from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import ALL, append, open_log


@pytest.mark.parametrize("operation", ["write", "write_at", "truncate", "open", "rename", "remove"])
def test_a_follower_whose_disk_fails_as_it_begins_so_starts_where_it_did(
    tmp_path: Path, operation: str
) -> None:
    """I1: its high watermark is there."""
    leader, disk = open_log(tmp_path / "leader"), FaultyDisk()
    append(leader, b"a", b"b", b"c")
    follower = open_log(tmp_path / "follower", disk)
    follower.truncate_fully_and_start_at(Offset(1))
    data = leader.read(Offset(1), max_bytes=1 << 20, end_offset=ALL)
    disk.io_failure = {operation: errno.EIO}
    with pytest.raises(StorageFailed):
        follower.append_as_follower(memoryview(data))
    assert (follower.log_start_offset, follower.log_end_offset) == (1, 1)


@pytest.mark.parametrize("operation", ["truncate", "open", "rename", "remove"])
def test_a_log_whose_disk_fails_as_it_begins_anew_has_segments_still(
    tmp_path: Path, operation: str
) -> None:
    """Who looks at it before its broker has ended finds them."""
    disk = FaultyDisk()
    log = open_log(tmp_path / "log", disk)
    append(log, b"a")
    append(log, b"b")
    disk.io_failure = {operation: errno.EIO}
    with pytest.raises(StorageFailed):
        log.truncate_fully_and_start_at(Offset(1))
    assert (log.log_start_offset, log.log_end_offset) == (0, 2)
    assert [segment.next_offset for segment in log.segments] == [2]
