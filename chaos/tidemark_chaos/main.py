"""Run a ChaosExperiment object from the pod of its Job, or heal what such a run left.

usage: tidemark-chaos run|heal NAME

`run` writes progress and verdict into the object's status and the report into a ConfigMap. Exit
code 0: the status says how it ended, and all is healed; else the controller starts `heal`.
"""

import asyncio
import importlib.metadata
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from tidemark_client.errors import CommandFailed

from tidemark_chaos.environments.chaos_environment import Tell
from tidemark_chaos.environments.in_cluster import InCluster, heal, owner_of
from tidemark_chaos.environments.pods_api import Manifest, PodsApi
from tidemark_chaos.faults.pod_faults import PodFaults, impossible_in_cluster
from tidemark_chaos.report.config_map import report_config_map
from tidemark_chaos.report.results import ChaosReport, Verdict, chaos_report
from tidemark_chaos.runner import ChaosRun
from tidemark_chaos.schedule import PlannedFault
from tidemark_chaos.spec import ChaosExperiment, InvalidExperiment, Role, parse_experiment

PLURAL = "chaosexperiments"
MAX_REASONS = 20
MAX_SENTENCE = 1000
STOPPED = "the run was stopped (SIGTERM to its pod) and its faults were healed"
EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Settings:
    """What the Job says of its pod."""

    action: str
    name: str
    namespace: str
    operator_namespace: str


class StatusFaults:
    """Faults that are in the object's status while they last."""

    def __init__(self, faults: PodFaults, status: "StatusPatches") -> None:
        self._faults = faults
        self._status = status
        self._rounds = 0

    async def strike(
        self, fault: PlannedFault, brokers: tuple[int, ...], on_begin: Tell, on_heal: Tell
    ) -> None:
        self._rounds += 1
        fields = {"currentFault": fault_words(fault, brokers), "rounds": self._rounds}
        await self._status.try_patch(fields)
        await self._faults.strike(fault, brokers, on_begin, on_heal)

    def heal(self) -> list[str]:
        return self._faults.heal()


class StatusPatches:
    """Write fields of the status of one experiment."""

    def __init__(self, api: PodsApi, name: str) -> None:
        self._api = api
        self._name = name

    async def patch(self, fields: Manifest) -> None:
        await self._api.patch_status(PLURAL, self._name, fields)

    async def try_patch(self, fields: Manifest) -> None:
        """Patch, where a lost patch is no reason to end the run."""
        try:
            await self.patch(fields)
        except CommandFailed as failed:
            _tell(f"progress not written: {failed}")


def fault_words(fault: PlannedFault, brokers: tuple[int, ...]) -> str:
    """Return a fault as one phrase for the status."""
    words = f"{fault.number}: {fault.kind} {fault.role}"
    if fault.role in (Role.LEADER, Role.FOLLOWER):
        words += f" of partition {fault.partition}"
    detail = f", {fault.detail}" if fault.detail else ""
    return f"{words}{detail} (broker {', '.join(map(str, brokers))})" if brokers else words + detail


async def run(settings: Settings, api: PodsApi) -> int:
    """Run the experiment of that name and write how it ended into its status."""
    stored = await api.get(PLURAL, settings.name)
    if stored is None:
        raise CommandFailed(f"ChaosExperiment {settings.name} does not exist.")
    status = StatusPatches(api, settings.name)
    try:
        experiment = parse_experiment(_text_of(stored))
        problems = impossible_in_cluster(experiment.spec)
    except InvalidExperiment as error:
        return await _reject(status, error.problems)
    with tempfile.TemporaryDirectory() as directory:
        environment = InCluster(
            experiment,
            api,
            directory=Path(directory),
            operator_namespace=settings.operator_namespace,
        )
        problems = problems or await environment.problems()
        if problems:
            return await _reject(status, problems)
        await status.patch({"seed": experiment.spec.seed, "startedAt": _now(), "rounds": 0})
        ending = await _ending(experiment, environment, status)
    if isinstance(ending, str):
        await status.patch(aborted_fields(ending))
    else:
        name = await _store_report(api, stored, ending)
        await status.patch(verdict_fields(ending) | {"report": name})
    return EXIT_OK if environment.is_healed else EXIT_FAILED


async def _ending(
    experiment: ChaosExperiment, environment: InCluster, status: StatusPatches
) -> ChaosReport | str:
    """Return the report of a run, or why there is none; all is healed then."""
    seed = experiment.spec.seed
    faults = StatusFaults(PodFaults(environment), status)
    chaos = ChaosRun(experiment, seed, environment, faults, _tell)
    try:
        seen = await _until_sigterm(chaos.run())
    except CommandFailed as failed:
        return str(failed)
    if seen is None:
        return STOPPED
    name = experiment.metadata.name
    command = f"kubectl delete chaos {name}, then kubectl apply -f its file"
    version = importlib.metadata.version("tidemark")
    return chaos_report(experiment, seed, seen, command=command, version=version)


async def _until_sigterm(work: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of the work, or None after SIGTERM, which cancels it."""
    task = asyncio.create_task(work, name="experiment")
    is_stopped = False

    def stop() -> None:
        nonlocal is_stopped
        is_stopped = True
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    try:
        return await task
    except asyncio.CancelledError:
        if is_stopped:
            return None
        raise


async def _reject(status: StatusPatches, problems: tuple[str, ...] | list[str]) -> int:
    await status.patch({"phase": "Rejected", "reasons": _sentences(problems), "finishedAt": _now()})
    for problem in problems:
        _tell(problem)
    return EXIT_OK


async def _store_report(api: PodsApi, experiment: Manifest, report: ChaosReport) -> str:
    """Store the report in a ConfigMap; return its name, empty if it could not be stored."""
    manifest = report_config_map(report, owner_of(experiment))
    try:
        await api.create_config_map(manifest)
    except CommandFailed as failed:
        _tell(f"report not stored: {failed}")
        return ""
    return str(manifest["metadata"]["name"])


def verdict_fields(report: ChaosReport) -> Manifest:
    """Return the status fields of a run that ended."""
    return {
        "verdict": report.verdict.value,
        "sentence": report.sentence[:MAX_SENTENCE],
        "reasons": _sentences(report.reasons),
        "currentFault": None,
        "acknowledged": report.acknowledged,
        "lost": report.lost,
        "duplicated": report.duplicated,
        "writeGapMs": round(report.write_gap_ms),
        "readGapMs": round(report.read_gap_ms),
        "finishedAt": _now(),
    }


def aborted_fields(sentence: str) -> Manifest:
    """Return the status fields of a run without a report."""
    return {
        "verdict": Verdict.ABORTED.value,
        "sentence": sentence[:MAX_SENTENCE],
        "currentFault": None,
        "finishedAt": _now(),
    }


def _sentences(found: tuple[str, ...] | list[str]) -> list[str]:
    return [each[:MAX_SENTENCE] for each in found[:MAX_REASONS]]


def _text_of(stored: Manifest) -> str:
    """Return a stored object as a file of it would be."""
    metadata = {name: stored["metadata"][name] for name in ("name", "namespace")}
    document = {**{name: stored[name] for name in ("apiVersion", "kind", "spec")}}
    return msgspec.json.encode({**document, "metadata": metadata}).decode()


async def heal_experiment(settings: Settings, api: PodsApi) -> int:
    """Undo what a run left, whatever it was; nothing is left if the object is gone."""
    stored = await api.get(PLURAL, settings.name)
    if stored is None:
        return EXIT_OK
    try:
        experiment = parse_experiment(_text_of(stored))
    except InvalidExperiment as error:
        _tell(f"nothing to heal: it was rejected: {error}")
        return EXIT_OK
    await heal(api, experiment, _tell)
    return EXIT_OK


async def _work(settings: Settings) -> int:
    async with PodsApi.of_pod(settings.namespace) as api:
        if settings.action == "heal":
            return await heal_experiment(settings, api)
        return await run(settings, api)


def read_settings(arguments: list[str], environment: Mapping[str, str]) -> Settings:
    """Return the settings. Raises ValueError."""
    if len(arguments) != 2 or arguments[0] not in ("run", "heal"):
        raise ValueError(f"expected run|heal NAME, found {' '.join(arguments) or 'nothing'}")
    names = ("POD_NAMESPACE", "OPERATOR_NAMESPACE")
    missing = [name for name in names if not environment.get(name)]
    if missing:
        raise ValueError(f"{', '.join(missing)}: expected a value, found none")
    return Settings(*arguments, *(environment[name] for name in names))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _tell(text: str) -> None:
    sys.stderr.write(f"{_now()} {text}\n")
    sys.stderr.flush()


def main() -> None:
    try:
        settings = read_settings(sys.argv[1:], os.environ)
    except ValueError as error:
        sys.exit(f"tidemark-chaos: {error}")
    try:
        code = asyncio.run(_work(settings))
    except CommandFailed as failed:
        _tell(str(failed))
        code = EXIT_FAILED
    except Exception:  # the process's end: the controller heals after it
        with suppress(OSError):
            traceback.print_exc()
        code = EXIT_FAILED
    sys.exit(code)


if __name__ == "__main__":
    main()
