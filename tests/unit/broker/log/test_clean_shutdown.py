"""How a life ended is said once, whatever other workers had begun (S8)."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from tidemark_broker.log.clean_shutdown import STORED_BOOT_RECORD, CleanShutdown
from tidemark_broker.log.disk import OsDisk
from tidemark_protocol.controller_messages import BootRecord
from tidemark_protocol.ids import BrokerEpoch

from tests.support.waiting import HANG_SECONDS

BOOT_RECORD = BootRecord("boot-1", "pod-1", "claim-1", BrokerEpoch(5))


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
    clean_shutdown = CleanShutdown(tmp_path, disk)
    with ThreadPoolExecutor(2) as workers:
        stamping = workers.submit(clean_shutdown.stamp, BOOT_RECORD)
        assert disk.begun.wait(HANG_SECONDS)
        removing = workers.submit(clean_shutdown.remove_stored_boot_record)
        with pytest.raises(TimeoutError):
            removing.result(0.05)  # it waits: what comes later would be taken for true
        disk.let_go.set()
        stamping.result(HANG_SECONDS)
        removing.result(HANG_SECONDS)
    assert not (tmp_path / STORED_BOOT_RECORD).exists()


def test_after_the_end_no_stamp_comes(tmp_path: Path) -> None:
    clean_shutdown = CleanShutdown(tmp_path, OsDisk())
    clean_shutdown.remove_stored_boot_record()
    clean_shutdown.stamp(BOOT_RECORD)
    assert not (tmp_path / STORED_BOOT_RECORD).exists()


def test_what_recovery_found_does_not_keep_this_life_from_its_stamp(tmp_path: Path) -> None:
    previous = CleanShutdown(tmp_path, OsDisk())
    previous.stamp(BOOT_RECORD)
    clean_shutdown = CleanShutdown(tmp_path, OsDisk())
    clean_shutdown.take()
    clean_shutdown.weigh(only_a_torn_tail=False)
    assert clean_shutdown.disk_stamp is None
    clean_shutdown.stamp(replace(BOOT_RECORD, broker_epoch=BrokerEpoch(6)))
    assert (tmp_path / STORED_BOOT_RECORD).exists()
