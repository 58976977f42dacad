"""`tidemark bench http TOPIC`: records a second and latencies of acks=all over HTTP."""

import argparse

import uvloop

from tidemark_cli.client import TidemarkClient
from tidemark_cli.commands.produce import partition_count
from tidemark_cli.failures import EXIT_FAILED, EXIT_OK, EXIT_USAGE, CommandFailed
from tidemark_cli.http_bench import BenchResult, BenchSettings, run_bench
from tidemark_cli.output import Output, table
from tidemark_cli.targets import find_brokers

HELP = "measure produce over HTTP"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("http",))
    parser.add_argument("topic")
    parser.add_argument("--connections", type=int, default=64, help="default 64")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a record, default 1024")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run, default 5")
    parser.add_argument(
        "--records",
        type=int,
        action="append",
        help="records a request, repeatable (default: a run with 1 and one with 100)",
    )
    parser.add_argument("--acks", choices=("all", "1", "0"), default="all")
    parser.set_defaults(partition=None)


def run(arguments: argparse.Namespace, output: Output) -> int:
    """On uvloop, as the brokers are: the load should not be the slower side."""
    results = uvloop.run(_measure(arguments))
    output.result(
        results,
        lambda console: console.print(
            table(
                ("records/request", "connections", "records/s", "p50 ms", "p99 ms", "failures"),
                [
                    (
                        result.records_per_request,
                        result.connections,
                        f"{result.records_per_second:.0f}",
                        result.p50_ms,
                        result.p99_ms,
                        _counted(result.failures),
                    )
                    for result in results
                ],
            )
        ),
    )
    return EXIT_FAILED if any(result.failures for result in results) else EXIT_OK


def _counted(failures: dict[str, int]) -> str:
    return ", ".join(f"{count} {error}" for error, count in failures.items()) or "none"


async def _measure(arguments: argparse.Namespace) -> list[BenchResult]:
    batches = arguments.records or [1, 100]
    if min(arguments.connections, arguments.size, arguments.seconds, *batches) <= 0:
        raise CommandFailed(
            expected="--connections, --size, --seconds and --records above 0",
            found=f"{arguments.connections}, {arguments.size}, {arguments.seconds}, {batches}",
            to_do="leave them out for the defaults",
            exit_code=EXIT_USAGE,
        )
    urls = await _leader_urls(arguments)
    return [
        await run_bench(
            urls,
            BenchSettings(
                topic=arguments.topic,
                connections=arguments.connections,
                records_per_request=records,
                record_bytes=arguments.size,
                seconds=arguments.seconds,
                acks=arguments.acks,
            ),
        )
        for records in batches
    ]


async def _leader_urls(arguments: argparse.Namespace) -> list[str]:
    async with TidemarkClient(await find_brokers(arguments)) as client:
        count = await partition_count(client, arguments)
        metadata = client.lookup.metadata
        urls = [metadata.leader_url(arguments.topic, partition) for partition in range(count)]
    found = [url for url in urls if url is not None]
    if len(found) < count:
        raise CommandFailed(
            expected=f"a leader for each of the {count} partitions",
            found=f"{len(found)} leaders",
            to_do="wait until `tidemark status` shows leaders",
        )
    return found
