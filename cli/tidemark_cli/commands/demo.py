"""`tidemark demo --on local|kind`: a leader is killed under load, twice, and nothing is lost."""

import argparse
import asyncio
from pathlib import Path

import msgspec
from tidemark_chaos.environments.environment import Environment
from tidemark_chaos.environments.kubectl import Kubectl
from tidemark_chaos.environments.kubernetes import KindEnvironment
from tidemark_chaos.environments.processes import ProcessesEnvironment
from tidemark_chaos.experiment import Experiment, report_fields
from tidemark_chaos.faults.fault import FaultKind
from tidemark_client.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, CommandFailed

from tidemark_cli.demo_output import ProgressOutput
from tidemark_cli.output import Output

HELP = "kill leaders under load and check that no acknowledged record is lost"
EXAMPLE = Path("examples/orders.yaml")
ORDERS = """\
apiVersion: tidemark.dev/v1alpha1
kind: Topic
metadata: {name: orders}
spec:
  partitions: 3
  replicationFactor: 3
  config: {min.insync.replicas: "2"}
"""
KIND_NAMES = {
    "kill": FaultKind.KILL,
    "kill-twice": FaultKind.KILL_TWICE,
    "delete": FaultKind.FORCED_DELETE,
    "stop": FaultKind.STOP,
    "freeze": FaultKind.FREEZE,
    "short-freeze": FaultKind.SHORT_FREEZE,
    "set-of-one": FaultKind.SET_OF_ONE,
    "rolling": FaultKind.ROLLING,
    "operator": FaultKind.OPERATOR,
    "operator-and-leader": FaultKind.OPERATOR_AND_LEADER,
    "cut-follower": FaultKind.CUT_FOLLOWER,
    "cut-leader": FaultKind.CUT_LEADER,
    "cut-from-controller": FaultKind.CUT_FROM_CONTROLLER,
    "cut-from-peers": FaultKind.CUT_FROM_PEERS,
}


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
        help=f"kinds of faults: {', '.join(KIND_NAMES)} (default: kill and delete; on local kill, "
        "kill-twice, stop)",
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
        "--report", type=Path, default=Path("build/demo-report.json"), help="file for the report"
    )


async def run(arguments: argparse.Namespace, output: Output) -> int:
    environment = await _environment(arguments)
    kinds = chosen_kinds(arguments.kinds, arguments.rounds, environment)
    progress = ProgressOutput(output.console, is_quiet=output.is_json)
    experiment = Experiment(environment, progress, quiet_seconds=arguments.quiet_seconds)
    report = await experiment.tell(kinds)
    fields = report_fields(report)
    await asyncio.to_thread(_write, arguments.report, fields)
    if output.is_json:
        output.result(fields, lambda console: None)
    return EXIT_OK if report.is_good else EXIT_FAILED


def chosen_kinds(names: str | None, rounds: int, environment: Environment) -> tuple[FaultKind, ...]:
    """Return the fault of each round: each kind once, then again from the first.

    Raises CommandFailed.
    """
    wanted = environment.default_kinds
    if names is not None:
        unknown = [name for name in names.split(",") if name not in KIND_NAMES]
        if unknown:
            raise CommandFailed(
                expected=f"--kinds from {', '.join(KIND_NAMES)}",
                found=", ".join(unknown),
                to_do="choose from these",
                exit_code=EXIT_USAGE,
            )
        wanted = tuple(KIND_NAMES[name] for name in names.split(","))
    impossible = [kind.value for kind in wanted if kind not in environment.possible_kinds]
    if impossible or rounds < 1:
        raise CommandFailed(
            expected=f"kinds that {environment.runtime} supports, and --rounds of at least 1",
            found=", ".join(impossible) or f"--rounds {rounds}",
            to_do="choose other kinds, or use --on kind for those that need Kubernetes",
            exit_code=EXIT_USAGE,
        )
    return wanted * rounds


async def _environment(arguments: argparse.Namespace) -> Environment:
    manifest = await asyncio.to_thread(_manifest)
    events = arguments.report.parent / "demo-load.ndjson"
    if arguments.on == "kind":
        return KindEnvironment(
            manifest=manifest,
            kubectl=await Kubectl.of_rig(),
            events=events,
            interval_ms=arguments.interval_ms,
        )
    return ProcessesEnvironment(manifest=manifest, events=events, interval_ms=arguments.interval_ms)


def _manifest() -> str:
    return EXAMPLE.read_text(encoding="utf-8") if EXAMPLE.is_file() else ORDERS


def _write(path: Path, fields: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n")
