"""Run the cluster of a chaos experiment on this machine, with the workload that it names.

Its processes are in the heal journal while they run: a runner that was killed is cleaned up after.
"""

import asyncio
import os
import shutil
import signal
from itertools import pairwise
from pathlib import Path

import msgspec
from tidemark_client.errors import CommandFailed

from tidemark_chaos.environments import child_processes, volumes
from tidemark_chaos.environments.processes import (
    BROKERS,
    RECORD_TIMEOUT_MS,
    ProcessesEnvironment,
)
from tidemark_chaos.environments.volumes import Volume, VolumeError
from tidemark_chaos.heal_journal import HealJournal
from tidemark_chaos.links import CONTROLLER, Links, Place
from tidemark_chaos.spec import (
    OF_THE_DISK,
    OF_THE_NETWORK,
    ExperimentSpec,
    FaultName,
    topic_manifest,
)
from tidemark_chaos.workload_log import Event, decode_event

PLAIN_TIMEOUT_MS = 5_000  # without idempotence: then the outcome is unknown
EVENTS = "workload.ndjson"
POOL = "default/default"
OVER_LINKS = OF_THE_NETWORK | {FaultName.NODE_DOWN}


class ChaosProcesses(ProcessesEnvironment):
    name = "chaos"
    opening = f"A controller and {BROKERS} brokers, as processes of this machine."
    brokers = BROKERS

    def __init__(self, spec: ExperimentSpec, *, out: Path, journal: HealJournal) -> None:
        """Create it; `out` gets the workload's events, logs and data."""
        super().__init__(
            topic=spec.workload.topic,
            manifest=topic_manifest(spec.workload),
            events=out / EVENTS,
            interval_ms=1000 / spec.workload.records_per_second,
            directory=out / "data",
        )
        self.events = out / EVENTS
        self.keeps_data = False
        self._workload = spec.workload
        self._journal = journal
        self._is_restarting = False
        self._position = 0  # in the file of events
        self._pids: dict[Place, int] = {}
        self._has_links = any(fault.kind in OVER_LINKS for fault in spec.faults)
        self._are_links_open = False
        self.links = Links(self._pid_of_place, (CONTROLLER, *range(BROKERS)))
        if self._has_links:
            self.ports = ProcessesEnvironment.ports + 3 * BROKERS
        self.volumes: dict[int, Volume] = {}
        if any(fault.kind in OF_THE_DISK for fault in spec.faults):
            brokers = self.data / "brokers" / "default.default"
            self.volumes = {
                broker: Volume(
                    self._directory / "volumes" / f"{broker}.ext4", brokers / f"{broker}"
                )
                for broker in range(BROKERS)
            }
        self._are_volumes_mounted = False

    @property
    def data(self) -> Path:
        """Return the data directory of `tidemark dev`."""
        return self._directory / "data"

    async def prepare(self) -> None:
        """Delete what an earlier experiment left in the directory."""
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        for log in self.events.parent.glob(f"{self.name}-*.log"):
            log.unlink()

    def load_options(self) -> list[str]:
        workload = self._workload
        options = ["--acks", workload.acks, "--producers", str(workload.producers)]
        if workload.idempotence:
            options += ["--idempotent", "--timeout-ms", str(RECORD_TIMEOUT_MS)]
        else:
            in_flight = str(workload.producers)
            options += ["--timeout-ms", str(PLAIN_TIMEOUT_MS), "--in-flight", in_flight]
        racks = [f"rack-{number % BROKERS}" for number in range(1, workload.consumers)]
        for rack in dict.fromkeys(racks):
            options += ["--rack", rack]
        return [*options, "--group-consumers", str(workload.group_consumers)]

    async def start_workload(self) -> None:
        await super().start_workload()
        assert self._load is not None
        # It has nothing to lose, and would wait for a cluster that is gone.
        self._journal.add("kill", self._load.pid, "the workload")

    async def new_events(self) -> list[Event]:
        """Return what the workload wrote since the last call. Raises CommandFailed if it ended."""

        def read_on() -> list[Event]:
            with self.events.open("rb") as file:
                file.seek(self._position)
                data = file.read()
            whole = data.rfind(b"\n") + 1
            self._position += whole
            found = []
            for line in data[:whole].splitlines():
                try:
                    found.append(decode_event(line))
                except (msgspec.DecodeError, msgspec.ValidationError):
                    continue  # `verify` counts them
            return found

        return await asyncio.to_thread(read_on)

    def check_workload(self) -> None:
        """Check that the workload still runs. Raises CommandFailed."""
        if self._load is not None and self._load.returncode is not None:
            raise self._ended("a running workload", "load")

    async def pid_of(self, broker_id: int) -> int | None:
        """Return a broker's process id from the process table: the operator may be paused."""
        return self._pid_of_place(broker_id)

    @property
    def operator_pid(self) -> int:
        assert self._cluster is not None
        return self._cluster.pid

    async def restart_operator(self, number: signal.Signals) -> None:
        """Send the operator a signal, wait for its end and start it again.

        Its brokers end with it: it is their parent in local mode.
        """
        assert self._cluster is not None and self._port_range is not None
        self._is_restarting = True
        try:
            os.kill(self._cluster.pid, number)
            await self._cluster.wait()
            self._journal.remove("stop", self._cluster.pid)
            await self._start_cluster()
            await self.until(self._is_answering, "a response of the new operator")
        finally:
            self._is_restarting = False

    def cluster_command(self, first_port: int, data: Path) -> list[str]:
        command = super().cluster_command(first_port, data)
        if self._has_links:
            command += ["--proxy-port", str(first_port + ProcessesEnvironment.ports)]
        return command

    async def _open_links(self) -> None:
        """Open a proxy for each broker's way to the controller, and in front of its two ports."""
        assert self._port_range is not None
        self._are_links_open = True
        first = self._port_range.first
        proxy = first + ProcessesEnvironment.ports
        for broker in range(BROKERS):
            open_link = self.links.open_link
            await open_link(proxy + broker, CONTROLLER, first, dialer=broker)
            await open_link(proxy + BROKERS + broker, broker, first + 1 + broker)
            await open_link(proxy + 2 * BROKERS + broker, broker, first + 1 + BROKERS + broker)

    def _pid_of_place(self, place: Place) -> int | None:
        """Return the process that dials, as the process table has it: brokers are restarted."""
        if self._cluster is None:
            return None
        if place == CONTROLLER:
            return self._cluster.pid
        return self._broker_pid(self._cluster.pid, place)

    def _broker_pid(self, parent: int, broker_id: int) -> int | None:
        known = self._pids.get(broker_id)
        if known is None or not _is_broker(known, broker_id):
            self._pids = {
                each: pid
                for pid in child_processes.descendants(parent)
                for each in range(self.brokers)
                if _is_broker(pid, each)
            }
        return self._pids.get(broker_id)

    async def tear_down(self) -> None:
        await super().tear_down()
        await self.links.close()

    async def _start_cluster(self) -> None:
        if self._has_links and not self._are_links_open:
            await self._open_links()
        if self.volumes and not self._are_volumes_mounted:
            self._are_volumes_mounted = True
            await asyncio.to_thread(self._mount_volumes)
        await super()._start_cluster()
        self._journal.add("stop", self.operator_pid, "the operator and its brokers")

    async def rest(self, brokers: tuple[int, ...]) -> bool:
        """Wait until these brokers restart without a delay; return whether that took time."""
        worn = sorted(await self.worn_brokers() & set(brokers))
        for broker_id in worn:
            await self.renew(broker_id)
        return bool(worn)

    def note_struck(self, brokers: tuple[int, ...]) -> None:
        now = asyncio.get_running_loop().time()
        self._struck_at.update(dict.fromkeys(brokers, now))

    def _mount_volumes(self) -> None:
        try:
            for broker, volume in self.volumes.items():
                self._journal.add_path("unmount", volume.path, f"the volume of broker {broker}")
                volume.create()
        except VolumeError as error:
            raise CommandFailed(
                expected="a volume for each broker",
                found=str(error),
                to_do="remove the disk faults, or see that loop devices are free (losetup -a)",
            ) from error

    def _remove_data(self) -> None:
        for volume in self.volumes.values():
            try:
                if self.keeps_data and volume.path.is_mount():
                    volume.keep()
                volumes.unmount(volume.path)
            except VolumeError as error:
                raise CommandFailed(
                    expected=f"{volume.path} to be unmounted",
                    found=str(error),
                    to_do=f"end what uses it, then: umount {volume.path}",
                ) from error
        if not self.keeps_data:
            super()._remove_data()

    def _check_cluster(self) -> None:
        if not self._is_restarting:
            super()._check_cluster()


def _is_broker(pid: int, broker_id: int) -> bool:
    flags = dict(pairwise(child_processes.command_line(pid)))
    return (flags.get("--broker-id"), flags.get("--pool")) == (str(broker_id), POOL)
