"""`tidemark bench http [TOPIC]`: records a second and latencies of acks=all over HTTP.

Without TOPIC it makes a topic of its own, and deletes it with its data in the end. A topic that
has records is filled only where --fill says so.
"""

import argparse
import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import Any

import uvloop
from tidemark_client.client import TidemarkClient
from tidemark_client.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, CommandFailed
from tidemark_client.kubernetes_objects import GROUP, VERSION
from tidemark_client.targets import DEFAULT_POOL, find_brokers

from tidemark_cli.commands.produce import partition_count
from tidemark_cli.http_bench import BenchResult, BenchSettings, run_bench
from tidemark_cli.objects import create_object, delete_object, list_objects
from tidemark_cli.output import Output, table
from tidemark_cli.topic_readiness import until_ready

HELP = "measure produce over HTTP"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("http",))
    parser.add_argument(
        "topic", nargs="?", help="topic to write to (default: a new topic, deleted afterwards)"
    )
    parser.add_argument("--fill", action="store_true", help="write to TOPIC even if it has records")
    parser.add_argument(
        "--partitions",
        type=int,
        default=3,
        help="number of partitions of the new topic (default 3)",
    )
    parser.add_argument("--connections", type=int, default=64, help="default 64")
    parser.add_argument(
        "--size", type=int, default=1024, help="size of a record in bytes (default 1024)"
    )
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="duration of each run (default 5)"
    )
    parser.add_argument(
        "--records",
        type=int,
        action="append",
        help="records per request, repeatable (default: one run with 1, one with 100)",
    )
    parser.add_argument("--acks", choices=("all", "1", "0"), default="all")
    parser.set_defaults(partition=None)


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Run the benchmark on uvloop, as the brokers do: the load should not be the slower side."""
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
            to_do="remove them to use the defaults",
            exit_code=EXIT_USAGE,
        )
    if arguments.topic is not None:
        return await _runs(arguments, batches)
    async with _own_topic(arguments, Output(is_json=True)) as topic:
        arguments.topic = topic
        return await _runs(arguments, batches)


@contextlib.asynccontextmanager
async def _own_topic(arguments: argparse.Namespace, output: Output) -> AsyncIterator[str]:
    name = f"tidemark-bench-{secrets.token_hex(4)}"
    pool = arguments.pool or DEFAULT_POOL
    spec: dict[str, Any] = {
        "brokerPool": pool,
        "partitions": arguments.partitions,
        "deletionPolicy": "Delete",
    }
    spec["replicationFactor"] = min(3, await _brokers_of(arguments, pool))
    manifest = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Topic",
        "metadata": {"name": name},
        "spec": spec,
    }
    await create_object(arguments, manifest)
    try:
        await until_ready(arguments, output, name, name)
        yield name
    finally:
        await delete_object(arguments, "Topic", name)


async def _brokers_of(arguments: argparse.Namespace, pool: str) -> int:
    for item in await list_objects(arguments, "BrokerPool"):
        if item["metadata"]["name"] == pool:
            return int(item["spec"].get("replicas", 1))
    return 1


async def _runs(arguments: argparse.Namespace, batches: list[int]) -> list[BenchResult]:
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
        if not arguments.topic.startswith("tidemark-bench-") and not arguments.fill:
            await _check_unused(client, arguments.topic, count)
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


async def _check_unused(client: TidemarkClient, topic: str, count: int) -> None:
    ranges = await asyncio.gather(*(client.offsets(topic, number) for number in range(count)))
    records = sum(each.high_watermark - each.log_start_offset for each in ranges)
    if records:
        raise CommandFailed(
            f"Topic {topic!r} has {records:,} records; the bench would add its own.",
            to_do="remove TOPIC to use a new topic that is deleted afterwards, or add --fill",
            exit_code=EXIT_USAGE,
        )
