"""`tidemark produce TOPIC`: records from arguments, or one from each line of stdin."""

import argparse
import asyncio
import sys
from collections.abc import Iterator

from tidemark_cli.client import ClientSettings, TidemarkClient
from tidemark_cli.failures import EXIT_FAILED, EXIT_OK, CommandFailed
from tidemark_cli.idempotence import IdempotentProducer
from tidemark_cli.key_placement import partition_of_key
from tidemark_cli.leader_lookup import NobodyAnswers, UnknownTopic
from tidemark_cli.outcomes import Acknowledged, Outcome, OutgoingRecord
from tidemark_cli.output import Output
from tidemark_cli.targets import find_brokers

HELP = "write records (arguments, or lines of stdin)"
MAX_LINE_BYTES = 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("values", nargs="*", help="records (default: one per line of stdin)")
    parser.add_argument("-p", "--partition", type=int, help="default: by key, else in turn")
    parser.add_argument("-k", "--key", help="key of every record")
    parser.add_argument("--acks", choices=("all", "1", "0"), default="all")
    parser.add_argument("--timeout-ms", type=int, default=5000, help="per record (default 5000)")


async def run(arguments: argparse.Namespace, output: Output) -> int:
    settings = ClientSettings(acks=arguments.acks, timeout_ms=arguments.timeout_ms)
    failures = 0
    async with TidemarkClient(await find_brokers(arguments), settings=settings) as client:
        count = await partition_count(client, arguments)
        key = None if arguments.key is None else arguments.key.encode()
        values = iter(arguments.values) if arguments.values else _lines()
        turn = 0
        producers: dict[int, IdempotentProducer] = {}
        while (value := await asyncio.to_thread(next, values, None)) is not None:
            partition = arguments.partition
            if partition is None:
                partition = turn % count if key is None else partition_of_key(key, count)
            turn += 1
            record = OutgoingRecord(value.encode(errors="surrogateescape"), key)
            if partition not in producers:
                producers[partition] = IdempotentProducer(client, arguments.topic, partition)
            outcome = await producers[partition].produce([record])
            failures += not isinstance(outcome, Acknowledged)
            _report(output, arguments.topic, partition, outcome)
    return EXIT_FAILED if failures else EXIT_OK


async def partition_count(client: TidemarkClient, arguments: argparse.Namespace) -> int:
    """Of `arguments.topic`; raises CommandFailed, also for a partition that does not exist."""
    try:
        view = await client.topic(arguments.topic)
    except UnknownTopic as error:
        raise CommandFailed(
            expected=f"topic {arguments.topic!r}",
            found=f"{error}; topics: {', '.join(await client.topics()) or 'none'}",
            to_do=f"tidemark topics create {arguments.topic}, or tidemark apply -f FILE",
        ) from error
    except NobodyAnswers as error:
        raise CommandFailed(
            expected="a broker that answers",
            found=str(error),
            to_do="check --server, and `tidemark status`",
        ) from error
    count = len(view.partitions)
    if arguments.partition is not None and not 0 <= arguments.partition < count:
        raise CommandFailed(
            expected=f"a partition from 0 to {count - 1} of {arguments.topic!r}",
            found=str(arguments.partition),
            to_do="choose one of them, or leave -p out",
        )
    return count


def _lines() -> Iterator[str]:
    while line := sys.stdin.readline(MAX_LINE_BYTES):
        yield line.rstrip("\n")


def _report(output: Output, topic: str, partition: int, outcome: Outcome) -> None:
    match outcome:
        case Acknowledged(offset=offset):
            output.result(
                {
                    "topic": topic,
                    "partition": partition,
                    "offset": offset,
                    "outcome": "acknowledged",
                },
                lambda console: console.print(f"{topic}-{partition} offset {offset}"),
            )
        case _:
            name = type(outcome).__name__.lower()
            meaning = "not written" if name == "refused" else "may or may not be written"
            output.result(
                {
                    "topic": topic,
                    "partition": partition,
                    "outcome": name,
                    "error": outcome.error,
                    "message": outcome.message,
                },
                lambda console: console.print(
                    f"{topic}-{partition} {name} ({meaning}): {outcome.error}: {outcome.message}",
                    markup=False,
                ),
            )
