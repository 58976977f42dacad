"""S31: what was written down of a log before records went says something of later ones.

The watermark's file is synced, the log's last records are not. A power loss takes these, and the
log ends below its own watermark; or an election without proof cuts below it. New records follow,
which nobody else has. A kill brings the file back to life: a start believes it as far as the log
goes, and its broker shows them as committed, to readers and to whoever elects it.
"""

import errno
from pathlib import Path

import pytest
from tidemark_broker.log.checkpoint_formats import HIGH_WATERMARKS, OFFSETS
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.log.partition_log import LogSettings, PartitionLog
from tidemark_protocol.ids import BrokerId, Offset

from tests.regression.simulated_node import Node
from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import TOPIC_ID, append, values_of

KEY = (TOPIC_ID, 0)
OLD = [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]
SEEDS = range(20)  # each another fate of what was not synced


def with_committed_records(directory: LogManager, *, synced: int) -> PartitionLog:
    """Four, all below the watermark that is written down; so many of them synced."""
    log = directory.create_log("orders", TOPIC_ID, 0)
    for offset, value in OLD:
        append(log, value, epoch=1)
        if offset + 1 == synced:
            directory.checkpoint_recovery_points()
    directory.checkpoint_high_watermarks({KEY: Offset(4)})
    return log


def append_alone(log: PartitionLog) -> None:
    """As a leader whose followers copy nothing."""
    for number in range(6):
        append(log, b"uncommitted %d" % number, epoch=5)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_appended_where_a_power_loss_took_records_is_not_committed(seed: int) -> None:
    node = Node(seed, LogSettings())
    with_committed_records(node.boots(), synced=1)
    node.loses_power()
    directory = node.boots()
    left = directory.logs[KEY].log_end_offset
    assert directory.high_watermarks[KEY] == 4  # S9: the evidence, until it was heard
    node.registers(directory)
    directory.lower_high_watermarks()
    append_alone(directory.logs[KEY])
    node.is_killed()
    again = node.boots()
    assert again.high_watermarks[KEY] == left
    assert values_of(again.logs[KEY])[:left] == OLD[:left]


def end_epoch(node: Node, log: PartitionLog, ends: str) -> None:
    if ends == "killed":
        node.is_killed()
    else:
        log.flush()
        node.loses_power()


@pytest.mark.parametrize("ends", ["killed", "power lost"])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_follows_a_cut_below_the_watermark_is_not_committed(seed: int, ends: str) -> None:
    node = Node(seed, LogSettings())
    directory = node.boots()
    log = with_committed_records(directory, synced=4)
    log.truncate_to(Offset(1))
    append_alone(log)
    end_epoch(node, log, ends)
    assert node.boots().high_watermarks[KEY] == 1


@pytest.mark.parametrize("ends", ["killed", "power lost"])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_follows_a_cut_below_the_log_start_is_not_deleted(seed: int, ends: str) -> None:
    """Retention went further here than where the next leader's log ends."""
    node = Node(seed, LogSettings(segment_bytes=100))
    directory = node.boots()
    log = with_committed_records(directory, synced=4)
    log.advance_log_start(Offset(3))
    directory.checkpoint_recovery_points()
    log.delete_segments_below(Offset(3))
    log.truncate_to(Offset(1))
    append_alone(log)
    end_epoch(node, log, ends)
    again = node.boots().logs[KEY]
    assert (again.log_start_offset, again.log_end_offset) == (1, 7)


def opened(path: Path, disk: FaultyDisk) -> LogManager:
    return LogManager.open(path, disk, broker_id=BrokerId(1), settings=LogSettings())


def test_watermarks_that_were_looked_at_before_a_cut_are_not_written_after_it(
    tmp_path: Path,
) -> None:
    directory = opened(tmp_path, FaultyDisk())
    log = with_committed_records(directory, synced=4)
    truncations, watermarks = directory.truncations, {KEY: Offset(4)}
    log.truncate_to(Offset(1))
    append_alone(log)
    assert not directory.checkpoint_high_watermarks(watermarks, truncations=truncations)
    directory.close()
    assert opened(tmp_path, FaultyDisk()).high_watermarks[KEY] == 1


def test_no_watermark_is_written_past_the_end_of_its_log(tmp_path: Path) -> None:
    """A replica whose damage was cut off knows of a higher one than it has."""
    directory = opened(tmp_path, FaultyDisk())
    with_committed_records(directory, synced=4)
    directory.checkpoint_high_watermarks({KEY: Offset(9)})
    directory.close()
    assert opened(tmp_path, FaultyDisk()).high_watermarks[KEY] == 4


def test_without_space_for_a_lower_one_the_file_goes(tmp_path: Path) -> None:
    disk = FaultyDisk()
    directory = opened(tmp_path, disk)
    log = with_committed_records(directory, synced=4)
    disk.io_failure["write"] = errno.ENOSPC
    log.truncate_to(Offset(1))
    assert not (tmp_path / HIGH_WATERMARKS).exists()
    disk.io_failure.clear()
    directory.close()
    assert opened(tmp_path, FaultyDisk()).high_watermarks[KEY] == 0


def test_a_cut_above_the_watermark_writes_nothing(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = with_committed_records(opened(tmp_path, disk), synced=4)
    append_alone(log)
    disk.done.clear()
    log.truncate_to(Offset(4))
    assert ("write", HIGH_WATERMARKS) not in disk.done


def test_a_log_that_begins_anew_above_all_that_is_written_down_writes_nothing(
    tmp_path: Path,
) -> None:
    """A broker that was away for longer than records are kept does so with every partition, on its
    loop."""
    disk = FaultyDisk()
    directory = opened(tmp_path, disk)
    log = with_committed_records(directory, synced=4)
    disk.done.clear()
    log.truncate_fully_and_start_at(Offset(50))
    assert not {("write", name) for name in OFFSETS} & set(disk.done)
    append_alone(log)
    directory.close()
    again = opened(tmp_path, FaultyDisk())
    assert (again.logs[KEY].log_start_offset, again.logs[KEY].log_end_offset) == (50, 56)
    assert again.high_watermarks[KEY] == 50
