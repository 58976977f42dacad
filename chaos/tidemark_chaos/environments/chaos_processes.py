"""Run the cluster of a chaos experiment on this machine, with the workload that it names.

Its processes are in the heal journal while they run: a runner that was killed is cleaned up after.
"""

import asyncio
import os
import shutil
import signal
from pathlib import Path

import msgspec

from tidemark_chaos.environments.processes import (
    BROKERS,
    RECORD_TIMEOUT_MS,
    ProcessesEnvironment,
)
from tidemark_chaos.heal_journal import HealJournal
from tidemark_chaos.spec import ExperimentSpec, Workload
from tidemark_chaos.workload_log import Event, decode_event

PLAIN_TIMEOUT_MS = 5_000  # without idempotence: then the outcome is unknown
EVENTS = "workload.ndjson"


class ChaosProcesses(ProcessesEnvironment):
    name = "chaos"
    opening = f"A controller and {BROKERS} brokers, as processes of this machine."
    is_audited = False
    brokers = BROKERS

    def __init__(self, spec: ExperimentSpec, *, out: Path, journal: HealJournal) -> None:
        """Create it; `out` gets the workload's events, logs and data."""
        super().__init__(
            manifest=_manifest(spec.workload),
            events=out / EVENTS,
            interval_ms=1000 / spec.workload.records_per_second,
            directory=out / "data",
        )
        self.topic_name = spec.workload.topic
        self.events = out / EVENTS
        self.keeps_data = False
        self._workload = spec.workload
        self._journal = journal
        self._is_restarting = False
        self._position = 0  # in the file of events

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
        return options

    async def start_workload(self) -> None:
        await super().start_workload()
        assert self._load is not None
        self._journal.add("stop", self._load.pid, "the workload")

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

    async def _start_cluster(self) -> None:
        await super()._start_cluster()
        self._journal.add("stop", self.operator_pid, "the operator and its brokers")

    async def rest(self, brokers: tuple[int, ...]) -> None:
        """Wait until these brokers would be restarted without a delay."""
        for broker_id in sorted(await self.worn_brokers() & set(brokers)):
            await self.renew(broker_id)

    def note_struck(self, brokers: tuple[int, ...]) -> None:
        now = asyncio.get_running_loop().time()
        self._struck_at.update(dict.fromkeys(brokers, now))

    def _remove_data(self) -> None:
        if not self.keeps_data:
            super()._remove_data()

    def _check_cluster(self) -> None:
        if not self._is_restarting:
            super()._check_cluster()


def _manifest(workload: Workload) -> str:
    topic = {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": workload.topic},
        "spec": {
            "partitions": workload.partitions,
            "replicationFactor": workload.replication_factor,
            "config": dict(workload.config),
        },
    }
    return msgspec.json.encode(topic).decode()  # JSON is YAML
