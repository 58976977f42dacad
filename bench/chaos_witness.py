"""`python -m bench.chaos_witness`: does an outside producer agree with a chaos report's figures?

A librdkafka producer (idempotent, acks=all) runs along a local chaos run, over the Kafka port, into
the same topic, and keeps its own log of what was acknowledged when. Its longest gap around each
fault stands beside the report's, and each record that was acknowledged to it is read back.
Writes build/chaos-witness/witness.json beside the report.
"""

import argparse
import asyncio
import importlib.metadata
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec
from tidemark_chaos.environments import child_processes
from tidemark_chaos.environments.chaos_processes import ChaosProcesses
from tidemark_chaos.environments.processes import HOST
from tidemark_chaos.heal_journal import HealJournal
from tidemark_chaos.report.results import ChaosReport, Verdict, chaos_report
from tidemark_chaos.report.write import write_reports
from tidemark_chaos.spec import ExperimentSpec
from tidemark_chaos.verification import VerifyReport
from tidemark_cli.interrupts import until_interrupted
from tidemark_client.errors import CommandFailed

from bench.chaos_run import add_options, healed_directory, play, read_experiment, words_of
from bench.chaos_workload import read_all
from bench.systems import compile_as_in_images

INTERVAL_MS = 5.0  # of a partition
READ_SECONDS = 120.0
STOP_SECONDS = 70.0


@dataclass(frozen=True, slots=True)
class Noted:
    """One record, as the outside producer noted it."""

    partition: int
    sequence: int
    offset: int
    t_ms: float


class WitnessedProcesses(ChaosProcesses):
    """Local mode with its own workload, and the outside producer beside it."""

    def __init__(
        self,
        spec: ExperimentSpec,
        *,
        out: Path,
        journal: HealJournal,
        settings: Sequence[str] = (),
    ) -> None:
        """`settings`: name=value of librdkafka for the outside producer."""
        super().__init__(spec, out=out, journal=journal)
        self._settings = tuple(settings)
        self._path = out / "witness.ndjson"
        self._witness: asyncio.subprocess.Process | None = None
        self.noted: list[Noted] = []
        self.absent: list[Noted] = []  # acknowledged, and not read back at its offset
        self.unknown = 0
        self.stalls: list[tuple[float, float]] = []  # end, length: its own missing processor

    @property
    def bootstrap(self) -> str:
        assert self._port_range is not None
        first = self._port_range.first + 1 + self.brokers
        return ",".join(f"{HOST}:{first + number}" for number in range(self.brokers))

    async def start_workload(self) -> None:
        self._path.unlink(missing_ok=True)
        self._witness = await child_processes.start(
            [
                *(sys.executable, "-m", "bench.chaos_workload", "--bootstrap", self.bootstrap),
                *("--topic", self.topic_name, "--partitions", str(self._workload.partitions)),
                *("--interval-ms", str(INTERVAL_MS), "--idempotent", "--out", str(self._path)),
                *(f"-X{each}" for each in self._settings),
            ],
            log=self._log("witness"),
        )
        self._journal.add("stop", self._witness.pid, "the outside producer")
        await super().start_workload()

    async def stop_workload(self) -> None:
        assert self._witness is not None
        self._witness.terminate()
        async with asyncio.timeout(STOP_SECONDS):
            await self._witness.wait()
        await super().stop_workload()

    async def verify(self) -> VerifyReport:
        verified = await super().verify()
        await asyncio.to_thread(self._read_back)
        return verified

    def _read_back(self) -> None:
        run_id = ""
        for line in self._path.read_bytes().splitlines():
            event = msgspec.json.decode(line)
            match event["event"]:
                case "started":
                    run_id = event["run_id"]
                case "produced" if event["outcome"] == "acknowledged":
                    place = (event["partition"], event["sequence"], event["offset"])
                    self.noted.append(Noted(*place, event["t_ms"]))
                case "produced":
                    self.unknown += 1
                case "stalled":
                    self.stalls.append((event["t_ms"], event["late_ms"]))
        for partition in range(self._workload.partitions):
            found = read_all(self.bootstrap, self.topic_name, partition, READ_SECONDS)
            for each in self.noted:
                value = f"{run_id}:{partition}:{each.sequence}".encode()
                if each.partition == partition and found.get(each.offset) != value:
                    self.absent.append(each)

    async def tear_down(self) -> None:
        await child_processes.stop(self._witness)
        await super().tear_down()


def longest_gap(
    times_ms: Mapping[int, list[float]], begin_ms: float, end_ms: float
) -> tuple[float, int]:
    """The longest time without an acknowledgement that overlaps the window, and its partition."""
    gaps = [
        (later - earlier, partition)
        for partition, times in times_ms.items()
        for earlier, later in pairwise(times)
        if later > begin_ms and earlier < end_ms
    ]
    return max(gaps, default=(0.0, -1))


def compare(report: ChaosReport, seen: WitnessedProcesses) -> list[dict[str, object]]:
    """A row for each fault."""
    times: dict[int, list[float]] = {}
    for each in sorted(seen.noted, key=lambda noted: noted.t_ms):
        times.setdefault(each.partition, []).append(each.t_ms)
    rows: list[dict[str, object]] = []
    for fault in report.faults:
        if fault.skipped or fault.full_isr_ms is None:
            continue
        begin_ms = report.steady_ms + fault.at_ms
        end_ms = begin_ms + fault.full_isr_ms
        gap_ms, partition = longest_gap(times, begin_ms, end_ms)
        stall_ms = max(
            (late for at, late in seen.stalls if begin_ms < at and at - late < end_ms), default=0.0
        )
        rows.append(
            {
                "fault": f"{fault.number} {fault.kind} of {fault.role}",
                "report write gap": fault.write_gap_ms,
                "outside producer's": round(gap_ms, 1),
                "difference": round(gap_ms - fault.write_gap_ms, 1),
                "on partition": partition,
                "no CPU: workload": fault.workload_stall_ms,
                "no CPU: outside": stall_ms,
            }
        )
    return rows


async def _run(options: argparse.Namespace) -> int:
    experiment = read_experiment(options)
    seed = experiment.spec.seed if options.seed is None else options.seed
    out = healed_directory(options.out)
    await asyncio.to_thread(compile_as_in_images)
    journal = HealJournal(out)
    environment = WitnessedProcesses(
        experiment.spec, out=out, journal=journal, settings=options.librdkafka
    )
    seen = await play(experiment, seed, environment, environment, journal)
    command = f"python -m bench.chaos_witness {words_of(options, seed)}"
    version = importlib.metadata.version("tidemark")
    report = chaos_report(experiment, seed, seen, command=command, version=version)
    write_reports(out, report)
    rows = compare(report, environment)
    (out / "witness.json").write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1))
    _print(rows)
    print(
        f"report: {report.verdict.value}, {report.sentence}\n"
        f"outside producer: {len(environment.noted)} records acknowledged,"
        f" {len(environment.absent)} not read back at their offsets, {environment.unknown} unknown"
    )
    is_good = report.verdict is Verdict.PASSED and not environment.absent
    return 0 if is_good and environment.noted else 1


def _print(rows: list[dict[str, object]]) -> None:
    if not rows:
        return
    heads = list(rows[0])
    print("".join(f"{head:>22}" for head in heads))
    for row in rows:
        print("".join(f"{row[head]!s:>22}" for head in heads))


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.chaos_witness", description=__doc__)
    add_options(parser, Path("build/chaos-witness"))
    parser.add_argument(
        *("-X", "--librdkafka"),
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the outside producer beyond the defaults; repeatable",
    )
    try:
        return asyncio.run(until_interrupted(_run(parser.parse_args()), "stopped by SIGTERM"))
    except CommandFailed as failed:
        print(failed, file=sys.stderr)
        return failed.exit_code


if __name__ == "__main__":
    sys.exit(main())
