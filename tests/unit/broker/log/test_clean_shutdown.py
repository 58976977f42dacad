"""How a life ended is said once, whatever other workers had begun (S8)."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from tidemark_broker.log.clean_shutdown import BOOT_STAMP, StartProofs
from tidemark_broker.log.disk import OsDisk
from tidemark_protocol.controller_messages import BootStamp
from tidemark_protocol.ids import BrokerEpoch

from tests.support.waiting import HANG_SECONDS

STAMP = BootStamp("boot-1", "pod-1", "claim-1", BrokerEpoch(5))


class SlowDisk(OsDisk):
    """Its writes take until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.let_go = Event(), Event()

    def write_atomically(self, path: Path, data: bytes, *, durable: bool) -> None:
        self.begun.set()
        assert self.let_go.wait(HANG_SECONDS)
        super().write_atomically(path, data, durable=durable)


def test_a_stamp_that_was_on_its_way_is_removed_too(tmp_path: Path) -> None:
    """Else a life whose disk failed would pass for one that was only killed."""
    disk = SlowDisk()
    proofs = StartProofs(tmp_path, disk)
    with ThreadPoolExecutor(2) as workers:
        stamping = workers.submit(proofs.stamp, STAMP)
        assert disk.begun.wait(HANG_SECONDS)
        removing = workers.submit(proofs.remove_stamp)
        with pytest.raises(TimeoutError):
            removing.result(0.05)  # it waits: what comes later would be taken for true
        disk.let_go.set()
        stamping.result(HANG_SECONDS)
        removing.result(HANG_SECONDS)
    assert not (tmp_path / BOOT_STAMP).exists()


def test_after_the_end_no_stamp_comes(tmp_path: Path) -> None:
    proofs = StartProofs(tmp_path, OsDisk())
    proofs.remove_stamp()
    proofs.stamp(STAMP)
    assert not (tmp_path / BOOT_STAMP).exists()


def test_what_recovery_found_does_not_keep_this_life_from_its_stamp(tmp_path: Path) -> None:
    previous = StartProofs(tmp_path, OsDisk())
    previous.stamp(STAMP)
    proofs = StartProofs(tmp_path, OsDisk())
    proofs.take()
    proofs.weigh(only_a_torn_tail=False)
    assert proofs.disk_stamp is None
    proofs.stamp(replace(STAMP, broker_epoch=BrokerEpoch(6)))
    assert (tmp_path / BOOT_STAMP).exists()
