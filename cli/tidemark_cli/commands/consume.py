"""`tidemark consume TOPIC`: committed records of one or all partitions, then new ones."""

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Sequence

from tidemark_client.client import ClientSettings, TidemarkClient
from tidemark_client.errors import EXIT_OK, EXIT_USAGE, CommandFailed
from tidemark_client.metadata import UnreadableResponse
from tidemark_client.outcomes import BrokerError, ConsumedRecord
from tidemark_client.targets import find_brokers

from tidemark_cli.commands.produce import partition_count, topic_is_gone
from tidemark_cli.group_reader import GroupReader
from tidemark_cli.moments import MOMENT_HELP, moment_ms
from tidemark_cli.output import Output
from tidemark_cli.partition_reader import (
    OUT_OF_RANGE,
    PartitionReader,
    Start,
    TopicGone,
    TopicWatch,
)
from tidemark_cli.record_text import (
    FORMAT_HELP,
    BadFormat,
    Writer,
    json_lines,
    lines_for_people,
    writer_of_format,
)

HELP = "read records"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("-p", "--partition", type=int, help="partition to read (default: all)")
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument(
        "--from",
        dest="start",
        metavar="earliest|latest|OFFSET|TIME",
        help="start position (default: latest, that is new records only; with --until-end: "
        f"earliest). A time starts at the first record at or after it: {MOMENT_HELP}",
    )
    begin.add_argument(
        "--tail", type=int, metavar="N", help="start N offsets before the end of each partition"
    )
    parser.add_argument("--max", type=int, dest="most", help="stop after this many records")
    parser.add_argument(
        "-e",
        "--until-end",
        action="store_true",
        help="stop at the present end of each partition",
    )
    parser.add_argument(
        "-f",
        "--format",
        help=f"format of each record, as in kcat: {FORMAT_HELP}".replace("%", "%%"),
    )
    parser.add_argument(
        "-G",
        "--group",
        help="read as a member of this consumer group and commit the printed offsets. --from "
        "applies to partitions without a committed offset; --until-end stops when no records "
        "are left",
    )
    parser.add_argument(
        "--rack", help="read from an in-sync replica of this rack where the leader knows one"
    )


async def run(arguments: argparse.Namespace, output: Output) -> int:
    start = _start(arguments)
    printer = Printer(_writer(arguments, output), arguments.most)
    settings = ClientSettings(rack=arguments.rack)
    async with TidemarkClient(await find_brokers(arguments), settings=settings) as client:
        count = await partition_count(client, arguments)
        chosen = range(count) if arguments.partition is None else [arguments.partition]
        topic_id = client.lookup.metadata.topic_ids[arguments.topic]
        watch = TopicWatch(client, arguments.topic, topic_id)
        try:
            if arguments.group is None:
                await _print_all(_readers(arguments, client, watch, start, chosen), printer)
            else:
                await _print_of_group(arguments, client, watch, start, printer)
        except TopicGone as gone:
            raise topic_is_gone(arguments.topic, str(gone)) from gone
        except (BrokerError, UnreadableResponse) as error:
            raise _failed(error) from error
    return EXIT_OK


def _readers(
    arguments: argparse.Namespace,
    client: TidemarkClient,
    watch: TopicWatch,
    start: Start,
    partitions: Sequence[int],
) -> list[PartitionReader]:
    return [
        PartitionReader(
            client,
            watch,
            arguments.topic,
            partition,
            start=start,
            ends=arguments.until_end,
            say=_say,
        )
        for partition in partitions
    ]


async def _print_of_group(
    arguments: argparse.Namespace,
    client: TidemarkClient,
    watch: TopicWatch,
    start: Start,
    printer: "Printer",
) -> None:
    reader = GroupReader(
        client,
        watch,
        group=arguments.group,
        topic=arguments.topic,
        reset=start.text,
        say=_say,
    )
    try:
        async with contextlib.aclosing(reader.pages()) as pages:
            had_partitions = False
            while not printer.is_done:
                page = await anext(pages)
                await reader.commit(printer.print(page))
                if arguments.until_end and not page:
                    if had_partitions:
                        return
                    had_partitions = await reader.has_partitions()
    finally:
        await reader.close()


class Printer:
    """Writes records to stdout, at most so many."""

    def __init__(self, write: Writer, most: int | None) -> None:
        self._write = write
        self._left = most

    @property
    def is_done(self) -> bool:
        return self._left is not None and self._left <= 0

    def print(self, records: tuple[ConsumedRecord, ...]) -> tuple[ConsumedRecord, ...]:
        """Print records up to the limit, and return those that were printed."""
        if self._left is not None:
            records = records[: self._left]
            self._left -= len(records)
        sys.stdout.buffer.write(self._write(records))
        sys.stdout.buffer.flush()
        return records


async def _print_all(readers: list[PartitionReader], printer: Printer) -> None:
    """Print until all readers end or enough records are printed."""
    if printer.is_done:
        return
    is_enough = asyncio.Event()

    async def print_pages(reader: PartitionReader) -> None:
        async with contextlib.aclosing(reader.pages()) as pages:
            async for records in pages:
                if not printer.is_done:
                    printer.print(records)
                if printer.is_done:
                    is_enough.set()
                    return

    tasks = [asyncio.create_task(print_pages(reader), name="consume") for reader in readers]
    enough = asyncio.create_task(is_enough.wait(), name="enough")
    waiting: set[asyncio.Task[object]] = {*tasks}
    try:
        while waiting and not enough.done():
            done, _ = await asyncio.wait({*waiting, enough}, return_when=asyncio.FIRST_COMPLETED)
            for task in done & waiting:
                task.result()
            waiting -= done
    finally:
        for task in (*tasks, enough):
            task.cancel()
        await asyncio.gather(*tasks, enough, return_exceptions=True)


def _say(sentence: str) -> None:
    sys.stderr.write(f"tidemark: {sentence}\n")
    sys.stderr.flush()


def _start(arguments: argparse.Namespace) -> Start:
    for option, count in (("--tail", arguments.tail), ("--max", arguments.most)):
        if count is not None and count < 0:
            raise _bad(f"{option} of at least 0", str(count))
    text = arguments.start or ("earliest" if arguments.until_end else "latest")
    time_ms = None
    if text not in ("earliest", "latest") and not (text.isascii() and text.isdecimal()):
        time_ms = moment_ms(text, int(time.time() * 1000))
        if time_ms is None:
            raise _bad(f"--from earliest, latest, an offset or a time as {MOMENT_HELP}", text)
    if arguments.group is not None:
        others = (arguments.partition, arguments.tail, arguments.rack)
        if text not in ("earliest", "latest") or any(value is not None for value in others):
            found = "--group with an offset, a time, --partition, --tail or --rack"
            raise _bad("--group with --from earliest or latest only", found)
    return Start(text, arguments.tail, time_ms)


def _writer(arguments: argparse.Namespace, output: Output) -> Writer:
    if arguments.format is None:
        return json_lines if output.is_json else lines_for_people
    if output.is_json:
        raise _bad("--format or -o json", "both")
    try:
        return writer_of_format(arguments.format, is_terminal=sys.stdout.isatty())
    except BadFormat as error:
        raise _bad(f"--format with {error}", repr(arguments.format)) from error


def _failed(error: Exception) -> CommandFailed:
    is_out_of_range = isinstance(error, BrokerError) and error.error == OUT_OF_RANGE
    return CommandFailed(
        expected="records to read",
        found=str(error),
        to_do="choose another --from: earliest, latest, or an offset of that range"
        if is_out_of_range
        else "see `tidemark status`",
    )


def _bad(expected: str, found: str) -> CommandFailed:
    return CommandFailed(
        expected=expected, found=found, to_do="use one of them", exit_code=EXIT_USAGE
    )
