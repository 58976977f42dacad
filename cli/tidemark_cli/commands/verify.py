"""Compare a workload run's promises with the cluster: `tidemark verify --load FILE`."""

import argparse
import asyncio
import sys
from pathlib import Path

from rich.console import Console
from tidemark_chaos.verification import VerifyReport, verify
from tidemark_chaos.workload_log import Event, WorkloadLog, read_workload_log
from tidemark_client.client import TidemarkClient
from tidemark_client.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, CommandFailed
from tidemark_client.leader_lookup import NoResponse, UnknownTopic
from tidemark_client.outcomes import BrokerError
from tidemark_client.targets import find_brokers

from tidemark_cli.output import Output

HELP = "read all records of a load run, compare replicas, and check that none is lost"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--load", required=True, metavar="FILE", help="events of `tidemark load`; - is stdin"
    )
    parser.add_argument(
        "--within-seconds", type=float, default=60.0, help="time limit for reading (default 60)"
    )


async def run(arguments: argparse.Namespace, output: Output) -> int:
    workload_log, events = await asyncio.to_thread(_read_workload_log, arguments.load)
    try:
        urls = await find_brokers(arguments, topic=workload_log.topic)
        async with TidemarkClient(urls) as client:
            report = await verify(
                client, workload_log, events, within_seconds=arguments.within_seconds
            )
    except (NoResponse, UnknownTopic, BrokerError, TimeoutError) as error:
        raise CommandFailed(
            expected=f"all records of {workload_log.topic} within {arguments.within_seconds:g} s",
            found=str(error) or "not all of them arrived in time",
            to_do="run `tidemark status`: every partition needs a leader; then verify again",
        ) from error
    output.result(report, lambda console: _draw(console, report))
    return EXIT_OK if report.is_good else EXIT_FAILED


def _read_workload_log(name: str) -> tuple[WorkloadLog, list[Event]]:
    events: list[Event] = []
    try:
        if name == "-":
            workload_log = read_workload_log(sys.stdin.buffer, events)
        else:
            with Path(name).open("rb") as file:
                workload_log = read_workload_log(file, events)
    except OSError as error:
        raise CommandFailed(
            expected=f"the events of a load run in {name}",
            found=str(error),
            to_do="write them with `tidemark load TOPIC --out FILE`",
            exit_code=EXIT_USAGE,
        ) from error
    if not workload_log.run_id:
        raise CommandFailed(
            expected="a first line with event `started`",
            found=f"none in {name} ({workload_log.unreadable_lines} lines are not events)",
            to_do="write the file with `tidemark load TOPIC --out FILE`",
            exit_code=EXIT_USAGE,
        )
    return workload_log, events


def _draw(console: Console, report: VerifyReport) -> None:
    verdict = report.verdict
    console.print(f"acknowledged  {verdict.acknowledged}")
    console.print(f"found         {verdict.found}")
    console.print(f"lost          {verdict.lost}")
    console.print(f"duplicated    {verdict.duplicated}")
    console.print(f"unknown       {verdict.unknown} (of them in the log: {verdict.unknown_found})")
    same = sum(entry.is_identical for entry in report.replicas)
    console.print(f"replicas      identical in {same} of {len(report.replicas)} partitions")
    console.print(f"write gap     {report.write_gap_ms:.0f} ms")
    console.print(f"read lag      {report.worst_read_lag_ms:.0f} ms at worst")
    for anomaly in report.anomalies:
        console.print(f"{anomaly.name}: {anomaly.count}", markup=False)
        for sample in anomaly.samples:
            console.print(f"  {sample}", markup=False)
    for sentence in (*verdict.examples, *verdict.complaints):
        console.print(f"  {sentence}", markup=False)
    for entry in report.replicas:
        for sentence in entry.missing:
            console.print(f"  partition {entry.partition}: {sentence}", markup=False)
