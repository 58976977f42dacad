"""A broker's volume on a kernel in memory, with what syncs lose and a power cut takes of it."""

from pathlib import Path
from random import Random

from tidemark_broker.log.clean_shutdown import Mount
from tidemark_broker.log.log_manager import LogManager
from tidemark_broker.log.partition_log import LogSettings
from tidemark_protocol.controller_messages import BootRecord
from tidemark_protocol.ids import BrokerEpoch, BrokerId

from tests.simulation.engine.disk import SimulatedDisk, Volume

PATH = Path("/data")


class Process:
    is_alive = True
    process_id = 7

    def spend(self, microseconds: int) -> None: ...
    def charge_call(self, kind: str) -> None: ...
    def kill(self) -> None: ...


class Node:
    def __init__(self, seed: int, settings: LogSettings) -> None:
        self.volume = Volume(Random(seed), lambda: 0, lambda: 0)
        self._settings = settings
        self._boots = 1

    @property
    def _mount(self) -> Mount:
        return Mount(f"boot-{self._boots}", "pod-1", "claim-1")

    def boots(self) -> LogManager:
        process = Process()
        directory = LogManager.open(
            PATH,
            SimulatedDisk(self.volume, process),
            broker_id=BrokerId(1),
            settings=self._settings,
            mount=self._mount,
        )
        directory.secure_logs()
        return directory

    def registers(self, directory: LogManager) -> None:
        directory.write_boot_record(BootRecord(*self._mount, BrokerEpoch(1)))

    def names(self, log: str) -> list[str]:
        return sorted(self.volume.image.directory(PATH / log).entries)

    def is_killed(self) -> None:
        self.volume.holders.clear()

    def loses_power(self) -> None:
        self.is_killed()
        self.volume.lose_power()
        self._boots += 1
