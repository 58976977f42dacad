"""`tidemark consume TOPIC`: committed records of one or all partitions, then new ones."""

import argparse
import asyncio

from tidemark_cli.client import ClientSettings, TidemarkClient
from tidemark_cli.commands.produce import partition_count
from tidemark_cli.failures import EXIT_OK, EXIT_USAGE, CommandFailed
from tidemark_cli.outcomes import BrokerRefused, ConsumedRecord
from tidemark_cli.output import Output
from tidemark_cli.targets import find_brokers

HELP = "read records"
PAUSE_SECONDS = 0.05
QUEUE_RECORDS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("-p", "--partition", type=int, help="default: all")
    parser.add_argument(
        "--from",
        dest="start",
        default="latest",
        metavar="earliest|latest|OFFSET",
        help="where to start (default: latest, that is new records only)",
    )
    parser.add_argument(
        "--rack", help="read from an in-sync replica of this rack where the leader knows one"
    )
    parser.add_argument("--max", type=int, dest="most", help="stop after this many records")


async def run(arguments: argparse.Namespace, output: Output) -> int:
    if arguments.start not in ("earliest", "latest") and not arguments.start.isdecimal():
        raise CommandFailed(
            expected="--from earliest, latest or an offset",
            found=arguments.start,
            to_do="give one of them",
            exit_code=EXIT_USAGE,
        )
    settings = ClientSettings(rack=arguments.rack)
    async with TidemarkClient(await find_brokers(arguments), settings=settings) as client:
        count = await partition_count(client, arguments)
        chosen = range(count) if arguments.partition is None else [arguments.partition]
        arrived: asyncio.Queue[ConsumedRecord] = asyncio.Queue(QUEUE_RECORDS)
        readers = [
            asyncio.create_task(
                _read(client, arguments.topic, partition, arguments.start, arrived),
                name=f"consume-{partition}",
            )
            for partition in chosen
        ]
        try:
            await _print(readers, arrived, arguments.most, output)
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
    return EXIT_OK


async def start_offset(client: TidemarkClient, topic: str, partition: int, start: str) -> int:
    """Raises BrokerRefused."""
    if start.isdecimal():
        return int(start)
    found = await client.offsets(topic, partition)
    return found.log_start_offset if start == "earliest" else found.high_watermark


async def _read(
    client: TidemarkClient,
    topic: str,
    partition: int,
    start: str,
    arrived: "asyncio.Queue[ConsumedRecord]",
) -> None:
    """Reads for ever; waits out a change of leader; ends at what time cannot heal."""
    offset: int | None = None
    while True:
        try:
            if offset is None:
                offset = await start_offset(client, topic, partition, start)
            page = await client.fetch(topic, partition, offset)
        except BrokerRefused as refused:
            if not refused.is_retriable:
                raise
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        for record in page.records:
            await arrived.put(record)
        offset = page.next_offset


async def _print(
    readers: "list[asyncio.Task[None]]",
    arrived: "asyncio.Queue[ConsumedRecord]",
    most: int | None,
    output: Output,
) -> None:
    printed = 0
    while most is None or printed < most:
        record = asyncio.create_task(arrived.get(), name="next-record")
        done, _ = await asyncio.wait({record, *readers}, return_when=asyncio.FIRST_COMPLETED)
        if record not in done:
            record.cancel()
            refused = next(reader.exception() for reader in readers if reader.done())
            raise CommandFailed(
                expected="records to read",
                found=str(refused),
                to_do="choose another --from: earliest, latest, or an offset of that range",
            )
        _print_record(record.result(), output)
        printed += 1


def _print_record(record: ConsumedRecord, output: Output) -> None:
    key, value = _text(record.key), _text(record.value)
    output.result(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "key": key,
            "value": value,
        },
        lambda console: console.print(
            f"{record.partition}:{record.offset}\t"
            + (f"{key}\t" if key is not None else "")
            + ("(null)" if value is None else value),
            markup=False,
        ),
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")
