"""Run a chaos experiment on a `tidemark dev` that runs already, with a topic of its own.

Only processes of that run are struck. They are found by the data directory: its brokers name it in
their command lines, and the controller is their parent. Neither is started, ended or removed here;
the topic of the workload is deleted after a run that passed.
"""

import asyncio
import os
import signal
from collections.abc import MutableMapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

from tidemark_client.cluster_status import ClusterStatus
from tidemark_client.credentials import TOKEN_FILE
from tidemark_client.errors import EXIT_USAGE, CommandFailed
from tidemark_client.http_session import HttpSession, TimeLimits
from tidemark_client.local_secret import person_headers
from tidemark_client.manifests import apply_at_controller, read_manifests
from tidemark_client.targets import controller_status
from tidemark_client.trust import is_local_tls

from tidemark_chaos.environments import child_processes
from tidemark_chaos.environments.chaos_environment import Notify
from tidemark_chaos.environments.chaos_processes import POOL, ChaosProcesses
from tidemark_chaos.heal_journal import HealJournal
from tidemark_chaos.links import CONTROLLER, Place
from tidemark_chaos.spec import ExperimentSpec, FaultName, Role, topic_manifest

BROKER_MODULE = "tidemark_broker.main"
LIMITS = TimeLimits(10.0)
NOT_FOUND = 404
OF_WHO_STARTED_IT = (FaultName.KILL, FaultName.TERMINATE)
# What needs a cluster that the experiment has set up or may restart.
NOT_ITS_OWN = {
    FaultName.NODE_DOWN: "its links have no proxies; use kill or pause",
    FaultName.NETWORK_CUT: "its links have no proxies; use pause",
    FaultName.NETWORK_DELAY: "its links have no proxies; use pause",
    FaultName.NETWORK_LOSS: "its links have no proxies; use pause",
    FaultName.BANDWIDTH: "its links have no proxies; use pause",
    FaultName.DISK_FULL: "its brokers have no volumes of their own",
    FaultName.DISK_SLOW: "its brokers have no volumes of their own",
    FaultName.DISK_ERROR: "its brokers have no volumes of their own",
}


@dataclass(frozen=True, slots=True)
class RunningCluster:
    controller_pid: int
    controller_url: str
    brokers: int
    data: Path


def controller_of(words: list[str], data: Path) -> str:
    """Return the controller that a command line names; "" if it is no broker with data there."""
    flags = dict(pairwise(words))
    directory = Path(flags.get("--data-dir", ""))
    is_here = directory.parent == data / "brokers" / POOL.replace("/", ".")
    return flags.get("--controllers", "") if is_here and BROKER_MODULE in words else ""


async def find_cluster(data: Path) -> RunningCluster:
    """Return the `tidemark dev` of a data directory. Raises CommandFailed."""
    data = await asyncio.to_thread(data.resolve)
    for pid in await asyncio.to_thread(_process_ids):
        address = controller_of(child_processes.command_line(pid), data)
        parent = child_processes.parent_of(pid) if address else None
        if parent is None or parent <= 1:  # a broker whose controller is gone is about to end
            continue
        url = controller_url(address)
        status = await _status(url)
        if status is not None:
            use_admin_token(data, os.environ)
            return RunningCluster(parent, url, len(status.brokers), data)
    raise CommandFailed(
        expected=f"a running `tidemark dev` with the data directory {data}",
        found="no broker with data there, or no response of its controller",
        to_do="start it, or name its data directory with --data-dir",
        exit_code=EXIT_USAGE,
    )


def controller_url(address: str) -> str:
    port = address.rpartition(":")[2]
    has_tls = port.isdecimal() and is_local_tls(int(port))
    return f"{'https' if has_tls else 'http'}://{address}"


def use_admin_token(data: Path, environment: MutableMapping[str, str]) -> None:
    """Let the workload authenticate as `admin` of a `tidemark dev --auth`, unless told who it is.

    The commands that this process starts have its environment.
    """
    token_file = data / "tokens" / "admin"
    if not environment.get(TOKEN_FILE) and token_file.is_file():
        environment[TOKEN_FILE] = str(token_file)


def not_possible(spec: ExperimentSpec) -> list[str]:
    """Return a sentence for each fault that a cluster cannot have that others started."""
    problems = []
    for number, fault in enumerate(spec.faults):
        place = f"spec.faults[{number}].kind"
        if fault.kind in NOT_ITS_OWN:
            reason = NOT_ITS_OWN[fault.kind]
            problems.append(f"{place}: {fault.kind} is not possible on a running cluster: {reason}")
        elif fault.target.role is Role.CONTROLLER and fault.kind in OF_WHO_STARTED_IT:
            problems.append(
                f"{place}: {fault.kind} of the controller is not possible on a running cluster:"
                " the command that started it would have to run again; use pause"
            )
    return problems


class ChaosRunningCluster(ChaosProcesses):
    def __init__(
        self, spec: ExperimentSpec, cluster: RunningCluster, *, out: Path, journal: HealJournal
    ) -> None:
        super().__init__(spec, out=out, journal=journal)
        self._running = cluster
        self._controller_url = cluster.controller_url
        self._manifest = topic_manifest(spec.workload, deletion_policy="Delete")
        self._is_topic_ours = False
        self.brokers = cluster.brokers
        self.opening = f"The running cluster of {cluster.data}: {cluster.brokers} brokers."

    @property
    def data(self) -> Path:
        return self._running.data

    @property
    def operator_pid(self) -> int:
        return self._running.controller_pid

    async def restart_operator(self, number: signal.Signals) -> None:
        raise AssertionError("rejected before: the controller belongs to others")

    async def set_up(self, tell: Notify) -> None:
        """Apply the topic. Raises CommandFailed if there is one of that name."""
        if await self._has_topic():
            raise CommandFailed(
                expected=f"no topic {self.topic_name}: the workload has one of its own",
                found="one that exists",
                to_do="choose another spec.workload.topic, or delete that topic",
                exit_code=EXIT_USAGE,
            )
        tell(f"applying the topic {self.topic_name}")
        self._is_topic_ours = True
        await apply_at_controller(self._controller_url, read_manifests(self._manifest))
        tell("waiting until every partition has a leader and all replicas in sync")
        await self.until(self._is_in_sync, f"{self.topic_name} to be led and in sync")

    async def tear_down(self) -> None:
        await super().tear_down()
        if self._is_topic_ours and not self.keeps_data:
            await self._request("DELETE")

    def _pid_of_place(self, place: Place) -> int | None:
        if place == CONTROLLER:
            return self.operator_pid
        return self._broker_pid(self.operator_pid, place)

    def _check_cluster(self) -> None:
        if not child_processes.command_line(self.operator_pid):
            raise CommandFailed(
                expected="a running `tidemark dev`",
                found=f"process {self.operator_pid} has ended",
                to_do=f"read the logs in {self.data / 'logs'}",
            )

    def _keep_logs(self) -> None:
        """Do nothing: logs stay where they are."""

    def _remove_data(self) -> None:
        """Do nothing: the data belongs to others."""

    async def _has_topic(self) -> bool:
        return await self._request("GET") != NOT_FOUND

    async def _request(self, method: Literal["GET", "DELETE"]) -> int:
        """Read or delete the topic's object; return the status. Raises CommandFailed."""
        url = f"{self._controller_url}/v1/topics/{self.topic_name}"
        session = HttpSession()
        try:
            if method == "GET":
                response = await session.get(url, LIMITS)
            else:
                headers = await person_headers(self._controller_url)
                response = await session.delete(url, LIMITS, headers=headers)
        except OSError as error:
            raise CommandFailed(
                expected=f"a response to {method} {url}",
                found=str(error) or type(error).__name__,
                to_do="see `tidemark status`",
            ) from error
        finally:
            await session.close()
        return response.status


async def _status(url: str) -> ClusterStatus | None:
    session = HttpSession()
    try:
        return await controller_status(url, session)
    finally:
        await session.close()


def _process_ids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
