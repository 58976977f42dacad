"""`tidemark chaos run -f FILE`: an experiment with faults under load, and its verdict.

`check` only reads an experiment and prints its schedule; `heal` undoes what a killed run left;
`report` writes the report of a ChaosExperiment object. Each command but that heals first.
"""

import argparse
import asyncio
import importlib.metadata
import itertools
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from tidemark_chaos.environments.chaos_environment import ChaosEnvironment, Faults
from tidemark_chaos.environments.chaos_pods import ChaosPods
from tidemark_chaos.environments.chaos_processes import EVENTS, ChaosProcesses
from tidemark_chaos.environments.kubectl import Kubectl
from tidemark_chaos.environments.running_cluster import (
    ChaosRunningCluster,
    RunningCluster,
    find_cluster,
    not_possible,
)
from tidemark_chaos.environments.volumes import VolumeError, why_impossible
from tidemark_chaos.faults import pod_faults
from tidemark_chaos.faults.local_faults import LocalFaults, impossible
from tidemark_chaos.faults.pod_faults import PodFaults
from tidemark_chaos.heal_journal import HealJournal, RunnerAlive, heal
from tidemark_chaos.report.comparison import NotComparable, read_other
from tidemark_chaos.report.config_map import (
    UnreadableReport,
    config_map_name,
    read_config_map,
)
from tidemark_chaos.report.results import ChaosReport, Verdict, chaos_report
from tidemark_chaos.report.write import write_reports
from tidemark_chaos.runner import ChaosRun
from tidemark_chaos.schedule import PlannedFault, schedule
from tidemark_chaos.spec import (
    ChaosExperiment,
    ExperimentSpec,
    InvalidExperiment,
    Role,
    parse_experiment,
    with_duration,
)
from tidemark_client.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, CommandFailed
from tidemark_client.kubernetes_objects import KubernetesObjects

from tidemark_cli.interrupts import until_interrupted
from tidemark_cli.output import Output, table

HELP = "run an experiment: faults under load, a verdict and a report"
ACTIONS = ("run", "check", "heal", "report")
SHOWN = 20  # planned faults of an experiment that only its duration bounds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        choices=ACTIONS,
        metavar="ACTION",
        help="run: run an experiment; check: check its file and print the schedule; heal: undo what"
        " a killed run left; report: write the report of a ChaosExperiment object",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="the object, with report")
    parser.add_argument("-f", "--file", type=Path, help="the experiment, a ChaosExperiment")
    parser.add_argument(
        "--on",
        choices=("local", "kind", "dev"),
        default="local",
        help="processes of this machine, pods of the checkout's kind cluster, or a `tidemark dev` "
        "that runs (default local)",
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path("tidemark-data"),
        help="with --on dev: the data directory of that `tidemark dev` (default: ./tidemark-data)",
    )
    parser.add_argument(
        "--break-running-cluster",
        action="store_true",
        help="with --on dev: needed, because faults strike a cluster with data of others",
    )
    parser.add_argument("--seed", type=int, help="seed of the schedule (default: that of the file)")
    parser.add_argument(
        "--duration", help="how long faults begin, such as 20m (default: as the file says)"
    )
    parser.add_argument(
        "--compare",
        type=Path,
        action="append",
        default=[],
        metavar="REPORT",
        help="report.json of another system under the same experiment and seed: the report has its"
        " figures too; repeatable",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("build/chaos"),
        help="directory for data, logs and reports (default build/chaos)",
    )
    parser.add_argument(
        "--context",
        default=argparse.SUPPRESS,
        help="kubeconfig context, with report (default: the current one)",
    )
    parser.add_argument(
        "-n",
        "--namespace",
        default=argparse.SUPPRESS,
        help="namespace of the object, with report (default: the context's)",
    )


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Heal what an earlier run left, then do what is asked for."""
    if arguments.action == "report":
        return await _report(arguments, output)
    if found := arguments.name or arguments.namespace or arguments.context:
        raise CommandFailed(
            expected=f"neither NAME nor -n and --context with {arguments.action}",
            found=found,
            to_do="name a file with -f",
            exit_code=EXIT_USAGE,
        )
    healed = 0
    try:
        healed = await asyncio.to_thread(heal_before, arguments.out, output)
    except CommandFailed:
        if arguments.action != "check":  # which disturbs no run
            raise
    if arguments.action == "heal":
        output.result(
            {"healed": healed},
            lambda console: console.print(f"{healed} steps" if healed else "nothing to heal"),
        )
        return EXIT_OK
    cluster = await find_cluster(arguments.data_dir) if arguments.on == "dev" else None
    experiment = await asyncio.to_thread(_experiment, arguments, cluster)
    seed = experiment.spec.seed if arguments.seed is None else arguments.seed
    if arguments.action == "check":
        planned = list(itertools.islice(schedule(experiment.spec, seed), SHOWN))
        output.result(planned, lambda console: _draw_schedule(console, planned))
        return EXIT_OK
    others = await asyncio.to_thread(_others, arguments.compare, experiment, seed)
    if cluster is not None and not arguments.break_running_cluster:
        raise CommandFailed(
            f"Faults would strike the cluster that runs on {cluster.data}, and all of its topics.",
            to_do="add --break-running-cluster, or leave out --on dev for a cluster of its own",
            exit_code=EXIT_USAGE,
        )
    is_gone = "its cluster is gone" if cluster is None else "its topic is deleted"
    report = await until_interrupted(
        _run(experiment, seed, arguments, output, others, cluster),
        f"The experiment was stopped by SIGTERM. Its faults are healed, {is_gone}.",
    )
    output.result(report, lambda console: _draw(console, report, arguments.out))
    return EXIT_OK if report.verdict is Verdict.PASSED else EXIT_FAILED


async def _report(arguments: argparse.Namespace, output: Output) -> int:
    """Write the report that an experiment's Job left in a ConfigMap."""
    name: str = arguments.name or ""
    if not name:
        raise CommandFailed(
            expected="the name of a ChaosExperiment",
            found="none",
            to_do="run: kubectl get chaos",
            exit_code=EXIT_USAGE,
        )
    objects = await KubernetesObjects.connect(arguments.context, arguments.namespace)
    async with objects:
        stored = await objects.config_map(config_map_name(name))
    if stored is None:
        raise CommandFailed(
            f"ChaosExperiment {name!r} has no report in namespace {objects.namespace}.",
            expected=f"ConfigMap {config_map_name(name)}",
            found="none: it runs, was aborted without a verdict, or does not exist",
            to_do="run: kubectl get chaos",
        )
    try:
        report = read_config_map(stored)
    except UnreadableReport as error:
        raise CommandFailed(f"ConfigMap {config_map_name(name)}: {error}") from error
    out: Path = arguments.out.resolve()
    await asyncio.to_thread(out.mkdir, parents=True, exist_ok=True)
    await asyncio.to_thread(write_reports, out, report)
    output.result(report, lambda console: _draw(console, report, out))
    return EXIT_OK if report.verdict is Verdict.PASSED else EXIT_FAILED


async def _run(
    experiment: ChaosExperiment,
    seed: int,
    arguments: argparse.Namespace,
    output: Output,
    others: Sequence[ChaosReport],
    cluster: RunningCluster | None,
) -> ChaosReport:
    out: Path = arguments.out.resolve()
    await asyncio.to_thread(out.mkdir, parents=True, exist_ok=True)
    journal = HealJournal(out)
    environment, faults = await _place(experiment.spec, arguments.on, out, journal, cluster)
    chaos = ChaosRun(experiment, seed, environment, faults, output.remark)
    output.remark(f"{experiment.metadata.name}: seed {seed}. {environment.opening}")
    try:
        seen = await chaos.run()
    finally:
        journal.close()
    file = shlex.quote(os.fsencode(arguments.file).decode(errors="replace"))
    where = "" if arguments.on == "local" else f" --on {arguments.on}"
    if arguments.duration is not None:
        where += f" --duration {arguments.duration}"
    if cluster is not None:
        where += f" --data-dir {shlex.quote(str(arguments.data_dir))} --break-running-cluster"
    command = f"tidemark chaos run -f {file} --seed {seed}{where}"
    version = importlib.metadata.version("tidemark")
    report = chaos_report(experiment, seed, seen, command=command, version=version)
    await asyncio.to_thread(write_reports, out, report, others)
    return report


async def _place(
    spec: ExperimentSpec,
    on: str,
    out: Path,
    journal: HealJournal,
    cluster: RunningCluster | None,
) -> tuple[ChaosEnvironment, Faults]:
    """Return where the experiment runs, and what strikes there."""
    if on == "kind":
        pods = ChaosPods(spec, kubectl=await Kubectl.of_rig(), events=out / EVENTS)
        return pods, PodFaults(pods, pods)
    processes = (
        ChaosProcesses(spec, out=out, journal=journal)
        if cluster is None
        else ChaosRunningCluster(spec, cluster, out=out, journal=journal)
    )
    return processes, LocalFaults(processes, journal)


def _others(paths: Sequence[Path], experiment: ChaosExperiment, seed: int) -> list[ChaosReport]:
    """Read the reports to compare with. Raises CommandFailed."""
    try:
        return [read_other(path, experiment.metadata.name, seed) for path in paths]
    except NotComparable as error:
        raise CommandFailed(
            f"{str(error)[0].upper()}{str(error)[1:]}. Nothing was started.",
            to_do="give --compare the report.json of a run of this experiment and seed",
            exit_code=EXIT_USAGE,
        ) from error


def heal_before(out: Path, output: Output) -> int:
    """Undo what a killed run left there and return the number of steps. Raises CommandFailed."""
    try:
        return heal(out.resolve(), output.remark)
    except RunnerAlive as error:
        raise CommandFailed(
            f"{str(error)[0].upper()}{str(error)[1:]}.",
            to_do="wait for its end, stop it with Ctrl-C, or choose another --out",
            exit_code=EXIT_USAGE,
        ) from error
    except VolumeError as error:
        raise CommandFailed(
            expected="the volumes of an earlier run to be unmounted",
            found=str(error),
            to_do="end the processes that use them, then run `tidemark chaos heal` again",
        ) from error


def _experiment(arguments: argparse.Namespace, cluster: RunningCluster | None) -> ChaosExperiment:
    """Read the file and check that it is possible there. Raises CommandFailed."""
    path: Path | None = arguments.file
    if path is None or not path.is_file():
        raise CommandFailed(
            expected="an experiment given with -f",
            found="none" if path is None else f"no file {path}",
            to_do="start from examples/chaos/quick.yaml",
            exit_code=EXIT_USAGE,
        )
    problems: list[str] = []
    spec: ExperimentSpec | None = None
    try:
        experiment = parse_experiment(path.read_text(encoding="utf-8"))
        if arguments.duration is not None:
            experiment = with_duration(experiment, arguments.duration)
        spec = experiment.spec
    except InvalidExperiment as error:
        problems, spec = list(error.problems), error.spec
    except UnicodeDecodeError as error:
        problems = [str(error)]
    if spec is not None:
        problems += _impossible(spec, arguments.on, cluster)
    if problems:
        raise CommandFailed(
            "\n".join([f"{path} was rejected, nothing was started:", *problems]),
            to_do="correct the experiment; docs/operations/chaos.md lists its fields",
            exit_code=EXIT_USAGE,
        )
    return experiment


def _impossible(spec: ExperimentSpec, on: str, cluster: RunningCluster | None) -> Sequence[str]:
    """Return a sentence for each part of an experiment that its place cannot do."""
    if on == "kind":
        return pod_faults.impossible(spec)
    if cluster is not None:
        return [*impossible(spec, cluster.brokers), *not_possible(spec)]
    return impossible(spec, ChaosProcesses.brokers, volumes=why_impossible())


def _draw_schedule(console: Console, planned: Sequence[PlannedFault]) -> None:
    rows = [
        (
            fault.number,
            "in turn" if fault.at_seconds is None else f"{fault.at_seconds:.1f} s",
            fault.kind,
            f"{fault.role} of partition {fault.partition}"
            if fault.role in (Role.LEADER, Role.FOLLOWER)
            else fault.role,
            f"{fault.for_seconds:g} s" if fault.for_seconds else "",
        )
        for fault in planned
    ]
    console.print(table(("fault", "at", "kind", "target", "for"), rows))


def _draw(console: Console, report: ChaosReport, out: Path) -> None:
    rows = [
        (
            each.number,
            each.kind,
            each.role,
            ", ".join(map(str, each.brokers)),
            *map(_ms, (each.detect_ms, each.elect_ms, each.first_ack_ms, each.full_isr_ms)),
            _ms(each.write_gap_ms),
            _ms(each.read_gap_ms),
        )
        for each in report.faults
    ]
    heads = ("fault", "kind", "role", "brokers", "detected", "elected", "first ack", "full isr")
    console.print(table((*heads, "write gap", "read gap"), rows))
    colour = "green" if report.verdict is Verdict.PASSED else "red"
    console.print(f"\n[bold {colour}]{report.verdict.value}[/]  ", end="")
    console.print(report.sentence, markup=False)
    for reason in report.reasons:
        console.print(f"  {reason}", markup=False)
    console.print(f"report: {out / 'report.html'}", markup=False)
    console.print(f"again:  {report.command}", markup=False)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"
