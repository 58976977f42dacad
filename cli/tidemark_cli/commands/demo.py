"""`tidemark demo --on local|kind`: the smallest chaos experiment: leaders are killed under load."""

import argparse
import asyncio
import importlib.metadata
from pathlib import Path

import msgspec
from tidemark_chaos.environments.audited_processes import AuditedProcesses
from tidemark_chaos.environments.chaos_environment import ChaosEnvironment, Faults
from tidemark_chaos.environments.chaos_pods import ChaosPods
from tidemark_chaos.environments.chaos_processes import EVENTS
from tidemark_chaos.environments.kubectl import Kubectl
from tidemark_chaos.environments.prometheus import AuditResponse
from tidemark_chaos.faults import local_faults, pod_faults
from tidemark_chaos.faults.local_faults import LocalFaults
from tidemark_chaos.faults.pod_faults import PodFaults
from tidemark_chaos.heal_journal import HealJournal
from tidemark_chaos.report.html import html_page
from tidemark_chaos.report.results import ChaosReport, Verdict, chaos_report
from tidemark_chaos.runner import ChaosRun
from tidemark_chaos.spec import (
    ChaosExperiment,
    FaultName,
    FaultSpec,
    Role,
    Target,
    parse_experiment,
)
from tidemark_client.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, CommandFailed

from tidemark_cli.commands.chaos import heal_before
from tidemark_cli.demo_output import draw_demo
from tidemark_cli.interrupts import until_interrupted
from tidemark_cli.output import Output

HELP = "kill leaders under load and check that no acknowledged record is lost"
EXAMPLE = Path("examples/chaos/demo.yaml")
WITHOUT_CHECKOUT = """\
apiVersion: tidemark.dev/v1alpha1
kind: ChaosExperiment
metadata: {name: demo}
spec:
  rounds: 3
  quiet: 1s
  workload: {topic: orders, config: {min.insync.replicas: "2"}}
  faults:
    - {kind: kill, target: {role: leader, partition: 0}}
    - {kind: kill-twice, target: {role: leader, partition: 1}}
    - {kind: terminate, target: {role: leader, partition: 2}}
"""
KINDS = {
    "kill": FaultSpec(FaultName.KILL),
    "kill-twice": FaultSpec(FaultName.KILL_TWICE),
    "delete": FaultSpec(FaultName.POD_DELETE),
    "stop": FaultSpec(FaultName.TERMINATE),
    "freeze": FaultSpec(FaultName.PAUSE, for_="5s"),  # a session lasts 3 s
    "short-freeze": FaultSpec(FaultName.PAUSE, for_="1s"),
    "rolling": FaultSpec(FaultName.ROLLING_RESTART, Target(Role.ALL)),
    "operator": FaultSpec(FaultName.KILL, Target(Role.CONTROLLER)),
}
KINDS_ON_KIND = "kill,delete"  # whose kubelet starts a container late the second time
NO_AUDIT_ON_KIND = "on Kubernetes a ReplicationAudit audits the cluster (docs/operations/audits.md)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--on",
        choices=("local", "kind"),
        default="local",
        help="where the cluster runs: local processes, or a kind cluster",
    )
    parser.add_argument(
        "--rounds", type=int, default=1, metavar="N", help="rounds of each kind (default 1)"
    )
    parser.add_argument(
        "--kinds",
        metavar="KIND[,KIND...]",
        help=f"kinds of faults: {', '.join(KINDS)} (default: kill and delete; on local kill, "
        "kill-twice, stop); tidemark chaos has more",
    )
    parser.add_argument(
        "--interval-ms",
        type=float,
        default=10.0,
        help="interval between records of a partition (default 10)",
    )
    parser.add_argument(
        "--quiet-seconds",
        type=float,
        default=1.0,
        help="load without a fault before each fault (default 1)",
    )
    parser.add_argument(
        "--report",
        type=Path,
        default=Path("build/demo-report.json"),
        help="file for the report; its page is written next to it",
    )


async def run(arguments: argparse.Namespace, output: Output) -> int:
    experiment = await asyncio.to_thread(chosen_experiment, arguments)
    out = await asyncio.to_thread(_prepare, arguments.report, output)
    report, audited = await until_interrupted(
        _play(experiment, out, arguments, output),
        "The demo was stopped by SIGTERM. Its cluster is gone.",
    )
    page = arguments.report.with_suffix(".html")
    await asyncio.to_thread(_write, arguments.report, page, report)
    output.result(report, lambda console: draw_demo(console, report, audited, page))
    return EXIT_OK if report.verdict is Verdict.PASSED else EXIT_FAILED


def chosen_experiment(arguments: argparse.Namespace) -> ChaosExperiment:
    """Return the experiment of the example file with what the options change.

    Raises CommandFailed.
    """
    text = EXAMPLE.read_text(encoding="utf-8") if EXAMPLE.is_file() else WITHOUT_CHECKOUT
    experiment = parse_experiment(text)
    spec = experiment.spec
    names = arguments.kinds or (KINDS_ON_KIND if arguments.on == "kind" else None)
    faults = spec.faults if names is None else tuple(map(_fault, names.split(",")))
    if arguments.rounds < 1 or arguments.interval_ms <= 0 or arguments.quiet_seconds < 0:
        raise CommandFailed(
            expected="--rounds of at least 1, --interval-ms above 0, --quiet-seconds of 0 or more",
            found=f"{arguments.rounds}, {arguments.interval_ms:g}, {arguments.quiet_seconds:g}",
            to_do="correct them",
            exit_code=EXIT_USAGE,
        )
    rate = 1000 / arguments.interval_ms
    spec = msgspec.structs.replace(
        spec,
        faults=faults,
        rounds=arguments.rounds * len(faults),
        quiet=f"{arguments.quiet_seconds:.3f}s",
        workload=msgspec.structs.replace(spec.workload, records_per_second=rate),
    )
    problems = (
        pod_faults.impossible(spec)
        if arguments.on == "kind"
        else local_faults.impossible(spec, AuditedProcesses.brokers)
    )
    if problems:
        raise CommandFailed(
            expected=f"kinds that are possible with --on {arguments.on}",
            found="; ".join(problems),
            to_do="choose other kinds, or use --on kind for those that need Kubernetes",
            exit_code=EXIT_USAGE,
        )
    return msgspec.structs.replace(experiment, spec=spec)


def _fault(name: str) -> FaultSpec:
    try:
        return KINDS[name]
    except KeyError:
        raise CommandFailed(
            expected=f"--kinds from {', '.join(KINDS)}",
            found=name,
            to_do="choose from these, or write an experiment for tidemark chaos",
            exit_code=EXIT_USAGE,
        ) from None


async def _play(
    experiment: ChaosExperiment, out: Path, arguments: argparse.Namespace, output: Output
) -> tuple[ChaosReport, AuditResponse | str]:
    journal = HealJournal(out)
    environment: ChaosEnvironment
    faults: Faults
    local: AuditedProcesses | None = None
    if arguments.on == "kind":
        pods = ChaosPods(experiment.spec, kubectl=await Kubectl.of_rig(), events=out / EVENTS)
        environment, faults = pods, PodFaults(pods, pods)
    else:
        audit_report = arguments.report.parent / "demo-audit"
        local = AuditedProcesses(
            experiment.spec, out=out, journal=journal, audit_report=audit_report
        )
        environment, faults = local, LocalFaults(local, journal)

    def tell(text: str) -> None:
        if not output.is_json:
            output.console.print(text, markup=False, highlight=False)

    tell("Tidemark: leaders are killed under load, and nothing is lost")
    tell(f"{environment.opening}\n")
    seed = experiment.spec.seed
    try:
        seen = await ChaosRun(experiment, seed, environment, faults, tell).run()
    finally:
        journal.close()
    where = "" if arguments.on == "local" else " --on kind"
    report = chaos_report(
        experiment,
        seed,
        seen,
        command=f"tidemark demo{where}",
        version=importlib.metadata.version("tidemark"),
    )
    return report, NO_AUDIT_ON_KIND if local is None else local.audited


def _prepare(report: Path, output: Output) -> Path:
    """Return the directory of a run's data and logs, healed of what a killed run left."""
    out = (report.parent / "demo").resolve()
    out.mkdir(parents=True, exist_ok=True)
    heal_before(out, output)
    return out


def _write(path: Path, page: Path, report: ChaosReport) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    page.write_text(html_page(report), encoding="utf-8")
