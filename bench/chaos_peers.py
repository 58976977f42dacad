"""`python -m bench.chaos_peers`: a chaos experiment on Apache Kafka and on Tidemark, side by side.

One file, one seed, one client (librdkafka, acks=all), the same runner, checks and report. Each
system is started from nothing and gone before the next one starts. The report of each is in --out,
in a directory of its name; the one of Tidemark has Kafka's figures beside.
"""

import argparse
import asyncio
import importlib.metadata
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tidemark_chaos.environments.chaos_processes import ChaosProcesses
from tidemark_chaos.environments.processes import HOST
from tidemark_chaos.heal_journal import HealJournal
from tidemark_chaos.report.results import ChaosReport, Verdict, chaos_report
from tidemark_chaos.report.write import write_reports
from tidemark_chaos.spec import ChaosExperiment
from tidemark_cli.interrupts import until_interrupted
from tidemark_client.errors import CommandFailed

from bench.chaos_kafka import (
    BROKERS,
    VERSION,
    KafkaProcesses,
    impossible_on_kafka,
    workload_command,
)
from bench.chaos_run import add_options, healed_directory, play, read_experiment, words_of
from bench.systems import compile_as_in_images

ROOT = Path(__file__).parent.parent
KAFKA, TIDEMARK = "kafka", "tidemark"
NAMES = {KAFKA: "Apache Kafka", TIDEMARK: "tidemark"}


class TidemarkByLibrdkafka(ChaosProcesses):
    """Tidemark's processes under the workload that Kafka gets."""

    @property
    def bootstrap(self) -> str:
        assert self._port_range is not None
        first = self._port_range.first + 1 + BROKERS
        return ",".join(f"{HOST}:{first + number}" for number in range(BROKERS))

    def load_command(self) -> list[str]:
        return workload_command(self.bootstrap, self._workload, self.events)


def main() -> int:
    options = _options()
    try:
        return asyncio.run(until_interrupted(_run(options), "stopped by SIGTERM"))
    except CommandFailed as failed:
        print(failed, file=sys.stderr)
        return failed.exit_code


async def _run(options: argparse.Namespace) -> int:
    experiment = read_experiment(options)
    if problems := impossible_on_kafka(experiment.spec):
        raise CommandFailed("\n".join(problems))
    seed = experiment.spec.seed if options.seed is None else options.seed
    await asyncio.to_thread(compile_as_in_images)
    reports: list[ChaosReport] = []
    for name in options.systems.split(","):
        out = healed_directory(options.out / name)
        report = await _report(name, experiment, seed, out, options)
        write_reports(out, report, reports)
        reports.append(report)
        print(f"{report.verdict.value}: {report.sentence}\n{out / 'report.html'}", flush=True)
    print_table(reports)
    return 0 if all(each.verdict is Verdict.PASSED for each in reports) else 1


async def _report(
    name: str, experiment: ChaosExperiment, seed: int, out: Path, options: argparse.Namespace
) -> ChaosReport:
    journal = HealJournal(out)
    if name == KAFKA:
        kafka = KafkaProcesses(
            experiment,
            out=out,
            journal=journal,
            jars=await asyncio.to_thread(_jars),
            settings=options.kafka_set,
        )
        seen = await play(experiment, seed, kafka, kafka, journal)
    else:
        tidemark = TidemarkByLibrdkafka(experiment.spec, out=out, journal=journal)
        seen = await play(experiment, seed, tidemark, tidemark, journal)
    settings = "".join(f" --kafka-set {each}" for each in options.kafka_set)
    return chaos_report(
        experiment,
        seed,
        seen,
        command=f"python -m bench.chaos_peers {words_of(options, seed)}{settings}",
        version=VERSION if name == KAFKA else importlib.metadata.version("tidemark"),
        system=NAMES[name],
    )


def _jars() -> Path:
    command = [ROOT / "hack/kafka/jars"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.strip())


def print_table(reports: Sequence[ChaosReport]) -> None:
    """By kind: p50 and longest of each figure in ms, a row of each system."""
    print(f"{'fault':34} {'system':20} {'n':>3}", end="")
    print("".join(f"{head:>17}" for head in ("elected", "first ack", "full ISR", "write gap")))
    keys = dict.fromkeys(
        (kind.kind, kind.role, kind.detail) for report in reports for kind in report.by_kind
    )
    for key in keys:
        for report in reports:
            for kind in report.by_kind:
                if (kind.kind, kind.role, kind.detail) == key:
                    spreads = (kind.elect, kind.first_ack, kind.full_isr, kind.write_gap)
                    cells = "".join(
                        f"{'-' if each is None else f'{each.p50_ms:.0f} / {each.max_ms:.0f}':>17}"
                        for each in spreads
                    )
                    name = " ".join(word for word in (key[0], "of", key[1], key[2]) if word)
                    print(f"{name:34} {report.system_name:20} {kind.count:3}{cells}")
    for report in reports:
        print(
            f"{report.system_name}: {report.verdict.value}, acknowledged {report.acknowledged},"
            f" lost {report.lost}, duplicated {report.duplicated}, unknown {report.unknown},"
            f" longest write gap {report.write_gap_ms:.0f} ms"
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.chaos_peers", description=__doc__)
    add_options(parser, Path("build/chaos-peers"))
    parser.add_argument("--systems", default=f"{KAFKA},{TIDEMARK}", help="in this order")
    parser.add_argument(
        "--kafka-set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of Kafka's nodes beyond the defaults; repeatable",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
