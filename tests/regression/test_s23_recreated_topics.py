"""S23: a topic recreated while its broker is down must not inherit the old one's checkpoints."""

import shutil
from pathlib import Path

import pytest
from tidemark_broker.log import checkpoint_formats
from tidemark_broker.log.log_config import LogSettings
from tidemark_broker.log.log_manager import LogManager
from tidemark_protocol.ids import BrokerId, Offset

from tests.support.faulty_disk import FaultyDisk
from tests.support.log_fixtures import OTHER_TOPIC_ID, TOPIC_ID, append, values_of

OLD, NEW = (TOPIC_ID, 0), (OTHER_TOPIC_ID, 0)


class Killed(Exception):
    pass


class DiskThatDies(FaultyDisk):
    """The process is killed before its so-manieth call."""

    def __init__(self, calls: int) -> None:
        super().__init__()
        self.calls_left = calls

    def check(self, operation: str, path: Path) -> None:
        if self.calls_left == 0:
            raise Killed
        self.calls_left -= 1
        super().check(operation, path)

    def make_directory(self, path: Path) -> None:
        self.check("make_directory", path)
        super().make_directory(path)


def opened(path: Path, disk: FaultyDisk | None = None) -> LogManager:
    return LogManager.open(
        path, disk or FaultyDisk(), broker_id=BrokerId(1), settings=LogSettings()
    )


@pytest.fixture
def old_volume(tmp_path: Path) -> Path:
    """What the broker had when it went: three records of the old topic, all committed."""
    path = tmp_path / "volume"
    directory = opened(path)
    log = directory.create_log("orders", TOPIC_ID, 0)
    for value in (b"a", b"b", b"c"):
        append(log, value)
    log.advance_log_start(Offset(2))
    directory.checkpoint_recovery_points()
    directory.checkpoint_high_watermarks({OLD: Offset(3)})
    directory.close()
    return path


def calls_of_the_recreation(path: Path) -> int:
    disk = DiskThatDies(10_000)
    directory = opened(path, disk)
    before = disk.calls_left
    directory.create_log("orders", OTHER_TOPIC_ID, 0)
    directory.close()
    return before - disk.calls_left


def test_a_kill_at_any_step_of_the_recreation_exposes_nothing_uncommitted(
    old_volume: Path, tmp_path: Path
) -> None:
    shutil.copytree(old_volume, tmp_path / "measured")
    calls = calls_of_the_recreation(tmp_path / "measured")
    assert calls > 8
    survivors = set()
    for step in range(calls + 1):
        path = tmp_path / f"killed-{step}"
        shutil.copytree(old_volume, path)
        disk = DiskThatDies(10_000)
        directory = opened(path, disk)
        disk.calls_left = step
        try:
            log = directory.create_log("orders", OTHER_TOPIC_ID, 0)
            append(log, b"uncommitted")
        except Killed:
            pass
        directory.close()
        again = opened(path)
        survivors |= set(again.logs)
        if NEW in again.logs:
            # Records of the new topic, if any, are above its high watermark.
            assert (again.high_watermarks[NEW], again.logs[NEW].log_start_offset) == (0, 0)
            assert OLD not in again.logs
        elif OLD in again.logs:
            assert values_of(again.logs[OLD])[-1] == (2, b"c")
        else:
            assert len(list(path.glob("orders-0.*-stray"))) == 1, "the old one is kept"
        again.close()
    assert survivors == {OLD, NEW}


def test_an_old_entry_left_by_a_removed_topic_is_gone_before_the_new_directory_is(
    tmp_path: Path,
) -> None:
    """Deleted and created again under one name within a checkpoint's interval."""
    disk = FaultyDisk()
    directory = opened(tmp_path / "volume", disk)
    append(directory.create_log("orders", TOPIC_ID, 0), b"a")
    directory.checkpoint_high_watermarks({OLD: Offset(1)})
    directory.checkpoint_recovery_points()
    directory.remove_logs([(TOPIC_ID, 0)])
    disk.done.clear()
    directory.create_log("orders", OTHER_TOPIC_ID, 0)
    operations = [name for operation, name in disk.done if operation in ("write", "rename")]
    directory_made = operations.index("orders-0")
    for name in (
        checkpoint_formats.HIGH_WATERMARKS,
        checkpoint_formats.RECOVERY_POINTS,
        checkpoint_formats.LOG_STARTS,
    ):
        assert operations.index(name) < directory_made
