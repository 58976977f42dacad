"""Which snapshots of producers stay for the next start to read."""

from pathlib import Path

from tidemark_broker.log.disk import OsDisk
from tidemark_broker.log.partition_log import PartitionLog
from tidemark_protocol.ids import Offset

from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import open_log
from tests.unit.broker.log.test_producer_state_manager import (
    THREE_A_SEGMENT,
    NoRoomForSnapshots,
    known,
    names,
    produce,
    reopened,
)


def log_that_lost_its_newest_snapshot(directory: Path, disk: FaultyDisk) -> PartitionLog:
    """The segment at 3 has none, as there was no room. One at 4 was written and synced, so the
    first segment went; a power cut left a name in the place of the one at 6."""
    log = open_log(directory, NoRoomForSnapshots(), settings=THREE_A_SEGMENT)
    produce(log, 0, producer_id=8)
    for sequence in range(3):
        produce(log, sequence)
    log.small_writes = OsDisk()
    log.advance_log_start(Offset(3))
    assert log.delete_segments_below(Offset(3)) == 0
    log.flush()
    assert log.delete_segments_below(Offset(3)) == 1
    for sequence in range(3, 7):
        produce(log, sequence)
    assert names(log, ".log") == [3, 6]
    assert names(log, ".producers") == [4]
    (directory / f"{6:020d}.producers").touch()
    return open_log(directory, disk, log_start_offset=Offset(3), settings=THREE_A_SEGMENT)


def test_a_snapshot_that_a_start_read_stays_below_one_that_a_power_cut_left_torn(
    tmp_path: Path,
) -> None:
    """I8: what it tells of is nowhere else, and the next start has to read it too."""
    disk = FaultyDisk()
    log = log_that_lost_its_newest_snapshot(tmp_path / "log", disk)
    assert 8 in known(log)
    assert 4 in names(log, ".producers")
    log.flush()
    assert ("sync", f"{4:020d}.producers") in disk.done
    assert 8 in known(reopened(log, 3))


def test_a_snapshot_that_a_start_read_stays_until_a_newer_one_is_synced(tmp_path: Path) -> None:
    """I8: a former life may have let go of segments by it; a roll's is not synced."""
    log = log_that_lost_its_newest_snapshot(tmp_path / "log", FaultyDisk())
    for sequence in range(7, 10):
        produce(log, sequence)
    assert names(log, ".producers") == [4, 6, 9]
    (tmp_path / "log" / f"{9:020d}.producers").write_bytes(b"")
    assert 8 in known(reopened(log, 3))
    log.flush()
    for sequence in range(10, 16):
        produce(log, sequence)
    assert 4 not in names(log, ".producers")
