"""What is kept for checkpoints on a full volume, and that nobody else gets it."""

import errno
import threading
from pathlib import Path

import pytest
from tidemark_broker.log import disk_reserve
from tidemark_broker.log.corruption_marker import KnownCorruption
from tidemark_broker.log.disk import DiskSpace
from tidemark_broker.log.disk_reserve import RESERVE, RESERVE_BYTES, DiskReserve, reserve_bytes
from tidemark_broker.log.errors import DiskFull
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.log.partition_log import LogSettings
from tidemark_protocol.ids import BrokerEpoch, BrokerId, ControllerEpoch, Offset

from tests.support.log_fixtures import TOPIC_ID, append, batch_of, values_of
from tests.support.small_volume import SmallVolume
from tests.support.waiting import HANG_SECONDS, wait_for

KIBIBYTE = 1024
VOLUME_BYTES = 320 * KIBIBYTE  # its reserve is 4 KiB
HELD_BYTES = 4 * KIBIBYTE


@pytest.fixture
def volume(tmp_path: Path) -> SmallVolume:
    return SmallVolume(tmp_path, VOLUME_BYTES)


def opened(volume: SmallVolume) -> LogManager:
    return LogManager.open(volume.path, volume, broker_id=BrokerId(1), settings=LogSettings())


def keep(directory: LogManager, volume: SmallVolume) -> None:
    directory.reserve.keep(volume.space(volume.path))


def held_bytes(volume: SmallVolume) -> int:
    return (volume.path / RESERVE).stat().st_size


def fill(volume: SmallVolume) -> Path:
    """By whom does not matter."""
    path = volume.path / "somebody-else"
    with path.open("ab") as file:
        file.write(bytes(volume.free_bytes))
    return path


def record_epochs(directory: LogManager, number: int) -> None:
    directory.record_epochs(BrokerEpoch(number), ControllerEpoch(number))


def test_it_is_a_fraction_of_a_small_volume_and_bounded_on_a_large_one() -> None:
    assert reserve_bytes(DiskSpace(0, VOLUME_BYTES)) == HELD_BYTES
    assert reserve_bytes(DiskSpace(0, 10**13)) == RESERVE_BYTES


def test_small_files_are_written_in_it_once_there_is_no_other_space(volume: SmallVolume) -> None:
    directory = opened(volume)
    keep(directory, volume)
    assert held_bytes(volume) == HELD_BYTES
    fill(volume)
    for number in (1, 2, 3):  # each takes the place of the one before
        record_epochs(directory, number)
    assert held_bytes(volume) == 0
    directory.checkpoint_recovery_points()
    directory.checkpoint_high_watermarks({})
    directory.close()
    assert opened(volume).highest_controller_epoch == 3


def test_without_it_a_full_volume_refuses_small_files_as_ever(volume: SmallVolume) -> None:
    directory = opened(volume)
    fill(volume)
    keep(directory, volume)
    with pytest.raises(DiskFull):
        record_epochs(directory, 1)


def test_records_never_get_it(volume: SmallVolume) -> None:
    directory = opened(volume)
    keep(directory, volume)
    log = directory.create_log("orders", TOPIC_ID, 0)
    append(log, b"kept")
    fill(volume)
    with pytest.raises(DiskFull):
        append(log, b"too many")
    assert held_bytes(volume) == HELD_BYTES, "released for an append"
    record_epochs(directory, 1)
    free_bytes = volume.free_bytes
    assert free_bytes > len(batch_of(b"x").data)
    with pytest.raises(DiskFull, match="except the reserve for checkpoints"):
        append(log, b"x")
    with pytest.raises(DiskFull):
        directory.create_log("orders", TOPIC_ID, 1)
    assert volume.free_bytes == free_bytes
    assert values_of(log) == [(0, b"kept")]


def test_what_is_known_of_damage_gets_it(volume: SmallVolume) -> None:
    """Or a kill would forget it, and the replica count again with what it cannot read (0066)."""
    directory = opened(volume)
    keep(directory, volume)
    log = directory.create_log("orders", TOPIC_ID, 0)
    fill(volume)
    log.corruption_marker.set(KnownCorruption(Offset(3), "a reason", is_reported=True))
    directory.close()
    (again,) = opened(volume).logs.values()
    assert again.corruption_marker.corruption == KnownCorruption(
        Offset(3), "a reason", is_reported=True
    )


def test_it_is_filled_again_once_there_is_room_for_more_than_it(volume: SmallVolume) -> None:
    directory = opened(volume)
    keep(directory, volume)
    log = directory.create_log("orders", TOPIC_ID, 0)
    other = fill(volume)
    record_epochs(directory, 1)
    keep(directory, volume)
    assert held_bytes(volume) == 0, "it would be released at the next checkpoint"
    with pytest.raises(DiskFull):
        append(log, b"a")
    other.unlink()
    keep(directory, volume)
    assert held_bytes(volume) == HELD_BYTES
    append(log, b"a")
    assert values_of(log) == [(0, b"a")]


def test_a_life_after_one_that_was_killed_meanwhile_gives_it_to_no_record(
    volume: SmallVolume,
) -> None:
    directory = opened(volume)
    keep(directory, volume)
    directory.create_log("orders", TOPIC_ID, 0)
    fill(volume)
    record_epochs(directory, 1)
    directory.close()
    directory = opened(volume)
    with pytest.raises(DiskFull):
        append(directory.logs[TOPIC_ID, 0], b"a")
    keep(directory, volume)
    with pytest.raises(DiskFull):
        append(directory.logs[TOPIC_ID, 0], b"a")
    record_epochs(directory, 2)
    assert directory.highest_broker_epoch == 2


def test_a_part_of_it_is_completed_or_lent_as_it_is(volume: SmallVolume) -> None:
    (volume.path / RESERVE).write_bytes(bytes(KIBIBYTE))
    directory = opened(volume)
    other = fill(volume)
    keep(directory, volume)
    assert held_bytes(volume) == KIBIBYTE
    record_epochs(directory, 1)
    assert held_bytes(volume) == 0
    other.unlink()
    (volume.path / RESERVE).write_bytes(bytes(KIBIBYTE))
    keep(directory, volume)
    assert held_bytes(volume) == HELD_BYTES


def test_one_that_somebody_removed_is_made_again(volume: SmallVolume) -> None:
    directory = opened(volume)
    keep(directory, volume)
    (volume.path / RESERVE).unlink()
    other = fill(volume)
    with pytest.raises(DiskFull):
        record_epochs(directory, 1)
    other.unlink()
    keep(directory, volume)
    assert held_bytes(volume) == HELD_BYTES


def test_high_watermarks_are_lowered_in_it_rather_than_forgotten(
    volume: SmallVolume,
) -> None:  # S31
    directory = opened(volume)
    keep(directory, volume)
    log = directory.create_log("orders", TOPIC_ID, 0)
    append(log, b"a")
    append(log, b"b")
    directory.checkpoint_high_watermarks({(TOPIC_ID, 0): Offset(2)})
    fill(volume)
    log.truncate_to(Offset(1))
    directory.close()
    assert opened(volume).high_watermarks[TOPIC_ID, 0] == 1


def test_a_write_of_records_that_began_before_is_waited_for(
    volume: SmallVolume, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would get some of the space that is given back."""
    monkeypatch.setattr(disk_reserve, "LONGEST_WRITE_SECONDS", HANG_SECONDS)
    reserve = DiskReserve(volume.path, volume)
    reserve.keep(volume.space(volume.path))
    fill(volume)
    has_begun, may_end = threading.Event(), threading.Event()

    def write() -> None:
        has_begun.set()
        assert may_end.wait(10)

    writing = threading.Thread(target=reserve.write_data, args=(write,))
    writing.start()
    assert has_begun.wait(10)
    path = volume.path / "checkpoint"
    lending = threading.Thread(
        target=reserve.checkpoints.write_atomically, args=(path, b"1"), kwargs={"durable": True}
    )
    lending.start()
    wait_for("a reserve that is lent", lambda: reserve.is_reserved, pause_seconds=0.001)
    assert held_bytes(volume) == HELD_BYTES
    may_end.set()
    lending.join(10)
    writing.join(10)
    assert path.read_bytes() == b"1"


def test_an_error_of_the_disk_is_no_want_of_space(volume: SmallVolume) -> None:  # S8
    directory = opened(volume)
    volume.io_failure["sync"] = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        keep(directory, volume)
