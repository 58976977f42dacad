"""`tidemark produce TOPIC`: records from arguments, files, or the lines of stdin, in batches."""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
from tidemark_client.client import ClientSettings, TidemarkClient
from tidemark_client.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, CommandFailed, not_found
from tidemark_client.idempotent_producer import partition_of_key
from tidemark_client.leader_lookup import NoResponse, UnknownTopic
from tidemark_client.metadata import TopicView
from tidemark_client.outcomes import Acknowledged, Rejected
from tidemark_client.targets import find_brokers, find_target

from tidemark_cli.batching import BatchingProducer, Settled, offsets_of
from tidemark_cli.output import Output
from tidemark_cli.record_input import TooLarge, record_of_file, records_of, whole_of
from tidemark_cli.record_options import RecordOptions, add_record_arguments, record_options

HELP = "write records: arguments, files, or lines of stdin"
STDIN = "-"
NO_PARTITION = -1  # of a record that was refused before it had one
FIRST_RESPONSE_SECONDS = 5.0
FIRST_RESPONSE_PAUSE_SECONDS = 0.2

Piece = bytes | TooLarge


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument(
        "values", nargs="*", help="records to write (default: one per line of stdin)"
    )
    parser.add_argument(
        "-p",
        "--partition",
        type=int,
        help="partition to write to (default: by key, without a key in turn)",
    )
    add_record_arguments(parser)
    parser.add_argument("--acks", choices=("all", "1", "0"), default="all")
    parser.add_argument(
        "--linger-ms",
        type=int,
        default=5,
        help="time that a batch waits for more records (default 5)",
    )
    parser.add_argument(
        "--timeout-ms", type=int, default=5000, help="deadline of a batch (default 5000)"
    )


async def run(arguments: argparse.Namespace, output: Output) -> int:
    options = record_options(arguments)
    settings = ClientSettings(acks=arguments.acks, timeout_ms=arguments.timeout_ms)
    report = Report(output, arguments.topic)
    async with TidemarkClient(await find_brokers(arguments), settings=settings) as client:
        count = await partition_count(client, arguments)
        producer = BatchingProducer(
            client,
            arguments.topic,
            linger_seconds=arguments.linger_ms / 1000,
            on_settled=report.settled,
        )
        try:
            await _produce(arguments, options, producer, report, count)
        except asyncio.CancelledError:  # Ctrl-C, and another one does not wait for this
            await producer.finish()
            raise
        finally:
            await producer.close()
    return EXIT_FAILED if report.failures else EXIT_OK


async def _produce(
    arguments: argparse.Namespace,
    options: RecordOptions,
    producer: BatchingProducer,
    report: "Report",
    partition_count: int,
) -> None:
    number = turn = 0
    async for pieces in _pieces(arguments, options.delimiter):
        for piece in pieces:
            number += 1
            record = options.record(piece)
            if isinstance(record, Rejected):
                report.settled(Settled(NO_PARTITION, [number], record))
                continue
            partition = arguments.partition
            if partition is None and record.key is not None:
                partition = partition_of_key(record.key, partition_count)
            elif partition is None:
                partition = turn % partition_count
                turn += 1
            producer.add(partition, record, number)
            if not producer.has_room:
                await producer.wait_for_room()
        if report.is_topic_gone:
            raise topic_is_gone(
                arguments.topic, "it was deleted meanwhile; the rest of the input was not sent"
            )
    await producer.finish()


async def _pieces(
    arguments: argparse.Namespace, delimiter: bytes
) -> AsyncIterator[Sequence[Piece]]:
    if arguments.values:
        yield [value.encode(errors="surrogateescape") for value in arguments.values]
    elif arguments.file:
        for name in arguments.file:
            yield [await whole_of(_stdin()) if name == STDIN else _file(Path(name))]
    else:
        async for pieces in records_of(_stdin(), delimiter):
            yield pieces


def _stdin() -> int:
    if sys.stdin is None or sys.stdin.closed:
        raise CommandFailed(
            expected="records on stdin",
            found="stdin is closed",
            to_do="pass them as arguments, or as --file PATH",
            exit_code=EXIT_USAGE,
        )
    return sys.stdin.fileno()


def _file(path: Path) -> Piece:
    try:
        return record_of_file(path)
    except OSError as error:
        raise CommandFailed(
            expected=f"a readable file {str(path)!r}",
            found=error.strerror or str(error),
            to_do="check --file",
            exit_code=EXIT_USAGE,
        ) from error


async def partition_count(client: TidemarkClient, arguments: argparse.Namespace) -> int:
    """Return the partition count of `arguments.topic`.

    Raises CommandFailed, also for a partition that does not exist.
    """
    try:
        view = await _first_response(client, arguments.topic)
    except UnknownTopic as error:
        raise not_found(
            "Topic",
            arguments.topic,
            await _topics_of_all_pools(arguments, client),
            found=str(error),
            to_do=f"tidemark topics create {arguments.topic}, or tidemark apply -f FILE",
        ) from error
    except NoResponse as error:
        raise CommandFailed(
            expected="a broker that responds",
            found=str(error),
            to_do="check --server, and run `tidemark status`",
        ) from error
    count = len(view.partitions)
    if arguments.partition is not None and not 0 <= arguments.partition < count:
        raise CommandFailed(
            expected=f"a partition from 0 to {count - 1} of {arguments.topic!r}",
            found=str(arguments.partition),
            to_do="choose one of them, or remove -p",
        )
    return count


async def _first_response(client: TidemarkClient, topic: str) -> TopicView:
    """Ask for the topic; again while no broker responds, for a moment, as Kafka clients do.

    A Service has no address until a broker is ready and the node's proxy knows it. Raises
    UnknownTopic, NoResponse.
    """
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + FIRST_RESPONSE_SECONDS
    while True:
        try:
            return await client.topic(topic)
        except NoResponse:
            if loop.time() >= ends_s:
                raise
        await asyncio.sleep(FIRST_RESPONSE_PAUSE_SECONDS)


async def _topics_of_all_pools(
    arguments: argparse.Namespace, client: TidemarkClient
) -> Sequence[str]:
    """Return the topics of the pool that was asked, and of the others a controller knows."""
    status = (await find_target(arguments)).status
    others = {view.topic for view in status.topics if not view.is_internal}
    return sorted(others | {*await client.topics()})


def topic_is_gone(topic: str, how: str) -> CommandFailed:
    return CommandFailed(
        f"Topic {topic!r} does not exist any more: {how}.", to_do="see `tidemark topics`"
    )


class Report:
    """Says what became of each record, on stdout, and counts those that were not acknowledged."""

    def __init__(self, output: Output, topic: str) -> None:
        self.failures = 0
        self.is_topic_gone = False
        self._output = output
        self._topic = topic

    def settled(self, settled: Settled) -> None:
        partition, numbers, outcome = settled
        if isinstance(outcome, Acknowledged):
            self._acknowledged(settled)
            return
        self.failures += len(numbers)
        self.is_topic_gone = self.is_topic_gone or outcome.error in _GONE
        name = "refused" if isinstance(outcome, Rejected) else "unknown"
        about: dict[str, object] = {"topic": self._topic}
        place = self._topic
        if partition != NO_PARTITION:
            about["partition"] = partition
            place = f"{self._topic}-{partition}"
        about |= {"outcome": name, "error": outcome.error, "message": outcome.message}
        meaning = "not written" if isinstance(outcome, Rejected) else "may or may not be written"
        reported = f"{name} ({meaning}): {outcome.error}: {outcome.message}"
        self._write(
            [about | {"record": number} for number in numbers],
            [f"{place} record {number} {reported}" for number in numbers],
        )

    def _acknowledged(self, settled: Settled) -> None:
        partition, numbers, _ = settled
        about = {"topic": self._topic, "partition": partition, "outcome": "acknowledged"}
        offsets = offsets_of(settled)
        if not offsets:  # acks=0
            self._write(
                [about | {"outcome": "sent", "record": number} for number in numbers],
                [f"{self._topic}-{partition} sent, not acknowledged" for _ in numbers],
            )
            return
        self._write(
            [
                about | {"offset": offset, "record": number}
                for number, offset in zip(numbers, offsets, strict=True)
            ],
            [f"{self._topic}-{partition} offset {offset}" for offset in offsets],
        )

    def _write(self, values: Sequence[object], lines: Sequence[str]) -> None:
        if self._output.is_json:
            sys.stdout.write(msgspec.json.Encoder().encode_lines(values).decode())
        else:
            sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()


_GONE = frozenset({"UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID"})
