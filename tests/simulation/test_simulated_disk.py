"""What a simulated volume keeps, loses and refuses."""

import errno
import inspect
from pathlib import Path
from random import Random

import pytest
from tidemark_broker.log.disk import Disk, DiskFile

from tests.simulation.engine.disk import SimulatedDisk, SimulatedFile, Volume
from tests.simulation.engine.loop import ProcessDied

FILE = Path("/data/log")


class Process:
    """A mounter."""

    def __init__(self) -> None:
        self.is_alive = True
        self.process_id = 7
        self.spent_us = 0

    def spend(self, microseconds: int) -> None:
        self.spent_us += microseconds

    def charge_call(self, kind: str) -> None:
        """Work takes no time here."""

    def kill(self) -> None:
        self.is_alive = False


class Harness:
    def __init__(self, seed: int = 0) -> None:
        self.now_us = 0
        self.volume = Volume(Random(seed), lambda: self.now_us, lambda: self.now_us)
        self.process = Process()
        self.disk = SimulatedDisk(self.volume, self.process)
        self.disk.make_directory(Path("/data"))
        self.disk.sync_directory(Path("/"))

    def durable_file(self, data: bytes) -> DiskFile:
        file = self.disk.open(FILE, create=True)
        file.write_at(0, [data])
        file.sync()
        self.disk.sync_directory(FILE.parent)
        return file

    def after_power_loss(self) -> bytes | None:
        self.volume.lose_power()
        disk = SimulatedDisk(self.volume, Process())
        return disk.read(FILE) if disk.exists(FILE) else None


def methods(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}


def test_it_is_a_disk() -> None:
    assert methods(Disk) <= methods(SimulatedDisk)
    assert methods(DiskFile) <= methods(SimulatedFile)


@pytest.mark.parametrize("seed", range(20))
def test_what_was_synced_survives_a_power_loss(seed: int) -> None:
    bench = Harness(seed)
    file = bench.durable_file(b"one")
    file.write_at(3, [b"two"])
    file.sync()
    assert bench.after_power_loss() == b"onetwo"


def test_unsynced_data_is_kept_lost_torn_or_full_of_holes() -> None:
    found = set()
    for seed in range(200):
        bench = Harness(seed)
        file = bench.durable_file(b"base")
        file.write_at(4, [b"AA"])
        file.write_at(6, [b"BB"])
        found.add(bench.after_power_loss())
    assert {b"base", b"baseAA", b"baseAABB", b"baseA", b"base\0\0BB", b"baseAAB"} <= found
    assert all(data is not None and data.startswith(b"base") for data in found)


def test_an_overwrite_and_a_cut_may_be_undone_by_a_power_loss() -> None:
    found = set()
    for seed in range(200):
        bench = Harness(seed)
        file = bench.durable_file(b"abcdef")
        file.write_at(0, [b"XY"])
        file.truncate(3)
        found.add(bench.after_power_loss())
    assert {b"abcdef", b"XYcdef", b"XYc", b"abc"} <= found


def test_a_new_name_may_be_lost_until_its_directory_is_synced() -> None:
    found = set()
    for seed in range(40):
        bench = Harness(seed)
        file = bench.disk.open(FILE, create=True)
        file.write_at(0, [b"data"])
        file.sync()
        found.add(bench.after_power_loss())
    assert found == {None, b"data"}


def test_a_removed_file_that_a_power_loss_gives_back_has_lost_what_was_not_synced() -> None:
    found = set()
    for seed in range(40):
        bench = Harness(seed)
        bench.durable_file(b"synced").write_at(6, [b", not synced"])
        bench.disk.remove(FILE)
        data = bench.after_power_loss()
        found.add(data)
        assert data is None or data.startswith(b"synced")
        again = bench.after_power_loss()
        assert again == data  # what is on the platter stays
    assert {None, b"synced", b"synced, not synced"} < found


def test_a_durable_replacement_is_whole_the_old_or_the_new_file() -> None:
    found = set()
    for seed in range(60):
        bench = Harness(seed)
        bench.disk.write_atomically(FILE, b"old", durable=True)
        bench.disk.write_atomically(FILE, b"newer", durable=False)
        found.add(bench.after_power_loss())
        bench.disk.write_atomically(FILE, b"newest", durable=True)
        assert bench.after_power_loss() == b"newest"
    assert {b"old", b"newer", b""} <= found


def test_a_killed_process_leaves_what_it_wrote() -> None:
    bench = Harness()
    bench.disk.open(FILE, create=True).write_at(0, [b"data"])
    bench.process.kill()
    assert SimulatedDisk(bench.volume, Process()).read(FILE) == b"data"


def test_a_sync_that_lost_its_write_back_leaves_data_in_memory_only() -> None:
    bench = Harness()
    file = bench.durable_file(b"old")
    file.write_at(3, [b"lost"])
    bench.volume.lose_write_backs(1)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.sync()  # clean, says the kernel
    file.write_at(7, [b"late"])
    file.sync()
    assert file.read_at(0, 100) == b"oldlostlate"
    assert bench.after_power_loss() == b"old\0\0\0\0late"


def test_memory_pressure_takes_what_a_failed_sync_left_in_memory() -> None:
    bench = Harness()
    file = bench.durable_file(b"old")
    file.write_at(3, [b"lost"])
    bench.volume.lose_write_backs(1)
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.write_at(7, [b"late"])
    assert bench.volume.drop_lost_pages() == 1
    assert file.read_at(0, 100) == b"old\0\0\0\0late"
    assert bench.volume.drop_lost_pages() == 0


def test_the_next_sync_hears_of_pages_that_the_kernel_could_not_write_back() -> None:
    bench = Harness()
    file = bench.durable_file(b"old")
    file.write_at(3, [b"lost"])
    assert bench.volume.lose_pages(lambda path: True) == 1
    assert file.read_at(0, 100) == b"old"
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    file.sync()


def test_a_full_disk_cuts_a_write_short_and_then_refuses() -> None:
    bench = Harness()
    file = bench.durable_file(b"")
    bench.volume.space_bytes = 5
    assert file.write_at(0, [b"abc", b"defg"]) == 5
    with pytest.raises(OSError, match="No space") as raised:
        file.write_at(5, [b"x"])
    assert raised.value.errno == errno.ENOSPC
    assert file.write_at(0, [b"ABCDE"]) == 5  # no growth
    file.truncate(2)
    assert file.write_at(2, [b"xyz!"]) == 3


def test_a_process_may_die_between_the_calls_of_one_job() -> None:
    bench = Harness()
    bench.durable_file(b"old")
    bench.volume.crash_in(3, bench.process.kill)
    with pytest.raises(ProcessDied):
        bench.disk.write_atomically(FILE, b"new", durable=True)
    with pytest.raises(ProcessDied):
        bench.disk.read(FILE)
    assert SimulatedDisk(bench.volume, Process()).read(FILE) == b"old"


def test_a_process_may_die_in_a_call_after_a_file_got_its_name() -> None:
    bench = Harness()
    bench.durable_file(b"old")
    bench.volume.crash_at(".swap", 2, bench.process.kill)
    bench.disk.rename(FILE, FILE.with_name("log.swap"))
    assert bench.disk.read(FILE.with_name("log.swap")) == b"old"
    with pytest.raises(ProcessDied):
        bench.disk.rename(FILE.with_name("log.swap"), FILE)
    assert not SimulatedDisk(bench.volume, Process()).exists(FILE)
    bench.volume.crash_at(".swap", 1, bench.process.kill)
    bench.volume.forget_crash()
    again = Process()
    SimulatedDisk(bench.volume, again).open(FILE.with_name("other.swap"), create=True)
    assert SimulatedDisk(bench.volume, again).read(FILE.with_name("other.swap")) == b""


def test_a_kill_in_the_middle_of_a_write_leaves_a_part_of_it_and_no_later_call_anything() -> None:
    found = set()
    for seed in range(40):
        bench = Harness(seed)
        file = bench.durable_file(b"old")
        bench.volume.crash_in(1, bench.process.kill, cuts_writes=True)
        for data in (b"new", b"late"):
            with pytest.raises(ProcessDied):
                file.write_at(3, [data])
        found.add(SimulatedDisk(bench.volume, Process()).read(FILE))
    assert found == {b"old", b"oldn", b"oldne", b"oldnew"}


def test_one_process_holds_the_lock_until_it_is_dead() -> None:
    bench = Harness()
    lock = bench.disk.lock(FILE)
    assert bench.disk.read(FILE) == b"7"
    second = SimulatedDisk(bench.volume, Process())
    with pytest.raises(BlockingIOError):
        second.lock(FILE)
    bench.process.kill()
    bench.volume.release_locks(bench.process)
    second.lock(FILE)
    lock.release()  # too late to free another's


def test_a_slow_disk_costs_the_calling_thread_its_time() -> None:
    bench = Harness()
    file = bench.durable_file(b"x")
    bench.volume.slow_call_us, bench.volume.slow_until_us = 1000, 10_000
    for _ in range(20):
        file.read_at(0, 1)
    assert 0 < bench.process.spent_us < 20_000
    spent_us, bench.now_us = bench.process.spent_us, 10_000
    file.read_at(0, 1)
    assert bench.process.spent_us == spent_us


def test_a_flipped_bit_is_one_bit() -> None:
    bench = Harness()
    bench.durable_file(b"\0" * 64)
    assert bench.volume.flip_bit(lambda path: path == str(FILE)).startswith(str(FILE))
    assert sum(byte.bit_count() for byte in bench.disk.read(FILE)) == 1
    assert bench.volume.flip_bit(lambda path: False) == ""
