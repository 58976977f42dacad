"""No stored recovery point lies above a cut that new batches follow, whatever fails after it."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.records.errors import StorageError
from tidemark_broker.log.checkpoint_formats import RECOVERY_POINTS, decode_offsets
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.log.partition_log import LogSettings, PartitionLog
from tidemark_protocol.ids import BrokerEpoch, BrokerId, Offset

from tests.regression.simulated_node import Node
from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import TOPIC_ID, append, values_of

KEY = (TOPIC_ID, 0)
ONE_RECORD = LogSettings(segment_bytes=100)


def with_five_durable_records(directory: LogManager) -> PartitionLog:
    log = directory.create_log("orders", TOPIC_ID, 0)
    for number in range(5):
        append(log, b"old %d" % number, epoch=1)
    directory.checkpoint_recovery_points()
    return log


SYNCS: dict[str, Callable[[LogManager], None]] = {
    "recovery points": lambda directory: directory.checkpoint_recovery_points(),
    "watermarks": lambda directory: directory.checkpoint_high_watermarks({KEY: Offset(6)}),
    "flush": lambda directory: directory.logs[KEY].flush(),
}


@pytest.mark.parametrize("io_failure", ["the life that cut", "the one after it"])
@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("seed", range(5))
def test_what_followed_a_cut_is_written_again_after_a_failed_sync(
    seed: int, sync: str, io_failure: str
) -> None:
    node = Node(seed, ONE_RECORD)
    directory = node.boots()
    log = with_five_durable_records(directory)
    log.truncate_to(Offset(1))
    for number in range(5):
        append(log, b"new %d" % number, epoch=2)
    node.volume.lose_write_backs(1, lambda path: path.endswith(".log"))
    if io_failure == "the life that cut":
        with pytest.raises(StorageError):
            SYNCS[sync](directory)
        node.is_killed()
    else:
        node.is_killed()
        with pytest.raises(StorageError):
            node.boots()
        node.is_killed()
    again = node.boots()
    again.write_clean_stop(BrokerEpoch(2))
    node.loses_power()
    expected = [(0, b"old 0"), *((1 + number, b"new %d" % number) for number in range(5))]
    assert values_of(node.boots().logs[KEY]) == expected


def opened(path: Path, disk: FaultyDisk) -> LogManager:
    return LogManager.open(path, disk, broker_id=BrokerId(1), settings=ONE_RECORD)


def stored(path: Path) -> Offset:
    return decode_offsets((path / RECOVERY_POINTS).read_bytes())["orders", 0]


def test_a_cut_above_the_stored_point_writes_nothing(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = with_five_durable_records(opened(tmp_path, disk))
    append(log, b"more", epoch=1)
    disk.done.clear()
    log.truncate_to(Offset(5))
    assert ("write", RECOVERY_POINTS) not in disk.done
    log.truncate_to(Offset(3))
    assert ("write", RECOVERY_POINTS) in disk.done
    assert stored(tmp_path) == 3


def test_a_cut_by_recovery_lowers_it_too(tmp_path: Path) -> None:
    directory = opened(tmp_path, FaultyDisk())
    log = with_five_durable_records(directory)
    directory.close()
    path = log.segments[2].path
    path.write_bytes(path.read_bytes()[:-1])
    again = opened(tmp_path, FaultyDisk())
    assert again.logs[KEY].log_end_offset == 2
    assert stored(tmp_path) == 2


def test_without_space_for_it_the_file_goes_and_the_log_is_cut(tmp_path: Path) -> None:
    disk = FaultyDisk()
    directory = opened(tmp_path, disk)
    log = with_five_durable_records(directory)
    disk.io_failure["write"] = errno.ENOSPC
    log.truncate_to(Offset(3))
    assert log.log_end_offset == 3
    assert not (tmp_path / RECOVERY_POINTS).exists()
    disk.io_failure.clear()
    directory.checkpoint_recovery_points()
    assert stored(tmp_path) == 3


def test_where_it_cannot_be_lowered_nothing_is_cut(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = with_five_durable_records(opened(tmp_path, disk))
    disk.io_failure["write"] = errno.EIO
    with pytest.raises(StorageError):
        log.truncate_to(Offset(3))
    assert [segment.size_bytes > 0 for segment in log.segments] == [True] * 5
