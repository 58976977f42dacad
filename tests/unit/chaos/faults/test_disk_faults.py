"""Disk faults are written down before they are done, and heal however they end."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tidemark_chaos.environments.volumes import Volume, VolumeError
from tidemark_chaos.faults.disk_faults import DiskFaults
from tidemark_chaos.heal_journal import JOURNAL, HealJournal
from tidemark_chaos.schedule import PlannedFault
from tidemark_chaos.spec import FaultName, Role
from tidemark_client.errors import CommandFailed


class FakeVolume(Volume):
    """Note what is done, and what the journal had then."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / "image", directory / "volume")
        self.path.mkdir()
        self.journal = directory / JOURNAL
        self.done: list[str] = []
        self.busy = 0  # how often it cannot be replaced
        self.error = ""

    def fill(self) -> None:
        self._note("fill", "delete")

    def empty(self) -> None:
        self.done.append("empty")

    def slow(self, seconds: float, stop: threading.Event) -> None:
        self._note("freeze", "thaw")
        stop.wait()
        self.done.append("thaw")

    def break_down(self) -> None:
        self.done.append("break")

    def replace(self) -> None:
        self.busy -= 1
        if self.busy >= 0:
            raise VolumeError("target is busy")
        self.done.append("replace")

    def _note(self, what: str, undo: str) -> None:
        if self.error:
            raise VolumeError(self.error)
        assert f'"{undo}"' in self.journal.read_text()
        self.done.append(what)


async def no_process(_: int) -> int | None:
    return None


def planned(kind: FaultName, for_seconds: float) -> PlannedFault:
    return PlannedFault(
        1, kind, Role.LEADER, 0, 1, for_seconds, for_seconds, 0.0, delay_seconds=0.1
    )


def nothing(*_: object) -> None:
    """Notice nothing."""


CASES = [
    (FaultName.DISK_FULL, ["fill", "empty"]),
    (FaultName.DISK_SLOW, ["freeze", "thaw"]),
    (FaultName.DISK_ERROR, ["break", "replace"]),
]


@pytest.mark.parametrize(("kind", "done"), CASES)
def test_a_disk_fault_ends_after_its_time(kind: FaultName, done: list[str], tmp_path: Path) -> None:
    volume, journal = FakeVolume(tmp_path), HealJournal(tmp_path)
    told: list[str] = []

    def tell(_: float, text: str) -> None:
        told.append(text)

    faults = DiskFaults({0: volume}, journal, no_process)
    asyncio.run(faults.strike(planned(kind, 0.05), (0,), tell, tell))
    assert volume.done == done
    assert len(told) == 2
    assert not (tmp_path / JOURNAL).exists() or '"undo":[]' in (tmp_path / JOURNAL).read_text()


@pytest.mark.parametrize("ended_by", ["cancellation", "heal"])
@pytest.mark.parametrize(("kind", "done"), CASES)
def test_a_disk_fault_that_is_ended_early_heals(
    kind: FaultName, done: list[str], ended_by: str, tmp_path: Path
) -> None:
    async def ended() -> None:
        began = asyncio.Event()

        def begun(*_: object) -> None:
            began.set()

        striking = asyncio.create_task(
            faults.strike(planned(kind, 60.0), (0,), begun, nothing), name="strike"
        )
        await began.wait()
        await asyncio.to_thread(wait_until, lambda: volume.done == done[:1])
        if ended_by == "heal":
            faults.heal()
        striking.cancel()
        await asyncio.gather(striking, return_exceptions=True)

    volume = FakeVolume(tmp_path)
    faults = DiskFaults({0: volume}, HealJournal(tmp_path), no_process)
    asyncio.run(asyncio.wait_for(ended(), 30))
    assert volume.done == done


def wait_until(is_so: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(1000):
        if is_so():
            return
        waiting.wait(0.01)
    raise AssertionError("it did not come")


def test_a_volume_that_is_used_is_replaced_when_it_is_free(tmp_path: Path) -> None:
    volume = FakeVolume(tmp_path)
    volume.busy = 2
    faults = DiskFaults({0: volume}, HealJournal(tmp_path), no_process)
    asyncio.run(faults.strike(planned(FaultName.DISK_ERROR, 0.01), (0,), nothing, nothing))
    assert volume.done == ["break", "replace"]


@pytest.mark.parametrize("kind", [FaultName.DISK_FULL, FaultName.DISK_SLOW])
def test_what_the_kernel_refuses_ends_the_experiment_with_its_words(
    kind: FaultName, tmp_path: Path
) -> None:
    volume = FakeVolume(tmp_path)
    volume.error = "Operation not supported"
    faults = DiskFaults({0: volume}, HealJournal(tmp_path), no_process)
    with pytest.raises(CommandFailed, match="Operation not supported"):
        asyncio.run(faults.strike(planned(kind, 5.0), (0,), nothing, nothing))
