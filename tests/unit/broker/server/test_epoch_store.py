"""Epochs are on disk before a response counts; a full disk makes it wait, a failed one ends it."""

from pathlib import Path

import pytest
from tidemark_broker.server import epoch_store
from tidemark_broker.server.epoch_store import LogDirectoryEpochStore
from tidemark_protocol.ids import BrokerEpoch, ControllerEpoch

from tests.support.faulty_disk import FaultyDisk
from tests.support.in_process_pool import InProcessPool
from tests.support.waiting import run

NO_SPACE = 28


class Stored:
    def __init__(self, path: Path) -> None:
        self.pool = InProcessPool(path, brokers=())
        self.disk = FaultyDisk()
        self.broker = self.pool.start(1, self.disk)
        self.problems: list[str] = []
        self.store = LogDirectoryEpochStore(
            self.broker.directory, self.broker.partitions, record_problem=self.record
        )

    def record(self, during: str, problem: str) -> None:
        self.problems.append(during)
        self.disk.io_failure.clear()

    def epochs(self) -> tuple[int, int]:
        directory = self.broker.directory
        return directory.highest_broker_epoch, directory.highest_controller_epoch


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path)


def test_higher_epochs_are_stored_and_equal_ones_write_nothing(stored: Stored) -> None:
    async def scenario() -> None:
        assert await stored.store.store(BrokerEpoch(7), ControllerEpoch(5))
        assert stored.epochs() == (7, 5)
        written = len(stored.disk.done)
        assert await stored.store.store(BrokerEpoch(7), ControllerEpoch(5))
        assert len(stored.disk.done) == written

    run(scenario)


def test_a_full_disk_makes_the_response_wait(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epoch_store, "RETRY_SECONDS", 0.001)

    async def scenario() -> None:
        stored.disk.io_failure["write"] = NO_SPACE
        assert await stored.store.store(BrokerEpoch(7), ControllerEpoch(5))
        assert stored.problems == ["a response is deferred, no disk space"]
        assert stored.epochs() == (7, 5)

    run(scenario)


def test_a_failed_disk_ends_serving_and_the_response_does_not_count(stored: Stored) -> None:  # S8
    async def scenario() -> None:
        stored.disk.io_failure["write"] = 5
        assert not await stored.store.store(BrokerEpoch(7), ControllerEpoch(5))
        assert len(stored.broker.storage_errors) == 1

    run(scenario)
