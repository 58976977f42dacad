"""`tidemark load TOPIC`: a steady, verifying load until a signal, a time or a file ends it."""

import argparse
import asyncio
import contextlib
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from tidemark_chaos.workload import WorkloadRun, WorkloadSettings, stop_when
from tidemark_chaos.workload_log import Event, Finished, encode_event
from tidemark_client.client import ClientSettings, TidemarkClient
from tidemark_client.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, CommandFailed
from tidemark_client.leader_lookup import AccessDenied
from tidemark_client.outcomes import BrokerError
from tidemark_client.targets import find_brokers

from tidemark_cli.commands.produce import partition_count
from tidemark_cli.output import Output

HELP = "write and read a steady load and record each outcome as NDJSON, for `tidemark verify`"

PRODUCERS = 32
START_POLL_SECONDS = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument(
        "--interval-ms",
        type=float,
        default=10.0,
        help="interval between records of a partition (default 10)",
    )
    parser.add_argument(
        "--timeout-ms", type=int, default=5000, help="deadline of a record (default 5000)"
    )
    parser.add_argument(
        "--in-flight", type=int, default=256, help="records in flight per partition (default 256)"
    )
    parser.add_argument(
        "--acks",
        choices=("all", "1", "mixed"),
        default="all",
        help="acks of each record (default all); mixed: in turn all (idempotent), all, 1, 0",
    )
    parser.add_argument(
        "--idempotent",
        action="store_true",
        help="use idempotent producers, which retry records with unknown outcome; needs a long "
        "--timeout-ms",
    )
    parser.add_argument(
        "--producers",
        type=int,
        default=PRODUCERS,
        help="idempotent producers per partition, with one record in flight each "
        f"(default {PRODUCERS})",
    )
    parser.add_argument("--seconds", type=float, help="stop after this time")
    parser.add_argument("--until-file", type=Path, help="stop when this file appears")
    parser.add_argument(
        "--wait-seconds",
        type=float,
        default=30.0,
        help="time for all partitions to respond at the start (default 30)",
    )
    parser.add_argument(
        "--rack",
        action="append",
        default=[],
        help="add a consumer of each partition that reads from a replica in this rack; repeatable",
    )
    parser.add_argument(
        "--group-consumers",
        type=int,
        default=0,
        help="add members of a consumer group, whose commits `tidemark verify` checks (default 0)",
    )
    parser.add_argument("--out", type=Path, help="file for the events (default: stdout)")
    parser.set_defaults(partition=None)


async def run(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.interval_ms <= 0 or arguments.in_flight < 1 or arguments.timeout_ms < 1:
        raise CommandFailed(
            expected="--interval-ms, --in-flight and --timeout-ms above 0",
            found=f"{arguments.interval_ms}, {arguments.in_flight}, {arguments.timeout_ms}",
            to_do="remove them to use the defaults",
            exit_code=EXIT_USAGE,
        )
    if arguments.group_consumers < 0:
        raise CommandFailed(
            expected="--group-consumers of 0 or more",
            found=str(arguments.group_consumers),
            to_do="remove it to have none",
            exit_code=EXIT_USAGE,
        )
    if arguments.producers < 1 or (arguments.idempotent and arguments.acks == "1"):
        raise CommandFailed(
            expected="--producers above 0, and --acks all or mixed with --idempotent",
            found=f"--producers {arguments.producers}, --acks {arguments.acks}",
            to_do="remove --idempotent, or use --acks all or mixed",
            exit_code=EXIT_USAGE,
        )
    with _event_file(arguments.out) as file:

        def write(event: Event) -> None:
            file.write(encode_event(event))
            file.flush()  # a reader follows this live

        urls = await find_brokers(arguments)
        async with contextlib.AsyncExitStack() as clients:
            client = await clients.enter_async_context(TidemarkClient(urls))
            near = {
                rack: await clients.enter_async_context(
                    TidemarkClient(urls, settings=ClientSettings(rack=rack))
                )
                for rack in arguments.rack
            }
            count = await _partitions_served(client, arguments)
            settings = WorkloadSettings(
                topic=arguments.topic,
                partitions=count,
                run_id=uuid.uuid4().hex[:12],
                interval_ms=arguments.interval_ms,
                timeout_ms=arguments.timeout_ms,
                in_flight=arguments.in_flight,
                producers=arguments.producers if arguments.idempotent else 0,
                acks=arguments.acks,
                group_consumers=arguments.group_consumers,
            )
            finished = await _run_until_reported(
                WorkloadRun(client, settings, write, near_clients=near), arguments
            )
    if arguments.out is not None:
        output.result(finished, lambda console: console.print(_sentence(finished)))
    else:
        output.remark(_sentence(finished))
    return EXIT_FAILED if finished.complaints else EXIT_OK


async def _partitions_served(client: TidemarkClient, arguments: argparse.Namespace) -> int:
    """Wait until all partitions answer, and return how many there are.

    The Services of a new pool refuse connections until every node knows their endpoints.
    """
    deadline = asyncio.get_running_loop().time() + arguments.wait_seconds
    while True:
        try:
            count = await partition_count(client, arguments)
            for partition in range(count):
                await client.offsets(arguments.topic, partition)
            return count
        except AccessDenied:
            raise
        except (CommandFailed, BrokerError) as error:
            if asyncio.get_running_loop().time() >= deadline:
                if isinstance(error, CommandFailed):
                    raise
                raise CommandFailed(
                    expected=f"responses of all partitions within {arguments.wait_seconds:g} s",
                    found=str(error),
                    to_do="wait until `tidemark status` shows leaders",
                ) from error
            await asyncio.sleep(START_POLL_SECONDS)


async def _run_until_reported(load: WorkloadRun, arguments: argparse.Namespace) -> Finished:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, load.stop)
    stopper = asyncio.create_task(
        stop_when(load, seconds=arguments.seconds, file=arguments.until_file), name="stop-when"
    )
    try:
        return await load.run()
    except BrokerError as refused:
        raise CommandFailed(
            expected="a leader for every partition at the start",
            found=str(refused),
            to_do="wait until `tidemark status` shows leaders",
        ) from refused
    finally:
        stopper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stopper


@contextlib.contextmanager
def _event_file(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdout.buffer
        return
    with path.open("wb") as file:
        yield file


def _sentence(finished: Finished) -> str:
    return (
        f"{finished.acknowledged} acknowledged, {finished.refused} rejected, "
        f"{finished.unknown} of unknown outcome, {finished.read} read, "
        f"{finished.complaints} violations"
    )
