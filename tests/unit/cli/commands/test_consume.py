"""The consume command: where it begins and ends, and what it says when there is no more to read."""

import asyncio
import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from tidemark_cli import partition_reader
from tidemark_cli.arguments import parse
from tidemark_cli.commands import consume
from tidemark_cli.output import Output
from tidemark_client.errors import CommandFailed

from tests.support.fake_http_broker import TOPIC, FakeCluster
from tests.support.waiting import HANG_SECONDS, eventually

Run = Callable[..., list[tuple[int, int]]]
Experiment = Callable[[FakeCluster], Any]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_reader, "GONE_SECONDS", 0.02)
    monkeypatch.setattr(partition_reader, "ASK_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(partition_reader, "PAUSE_SECONDS", 0.005)


async def consumed(cluster: FakeCluster, *options: str, output: str = "json") -> int:
    words = ["consume", TOPIC, "--server", cluster.url(0), "-o", output, *options]
    return await consume.run(parse(words), Output(is_json=output == "json"))


def filled(**about: Any) -> FakeCluster:
    logs = {0: [b"%d" % number for number in range(10)], 1: [b"a", b"b"]}
    return FakeCluster(partition_count=2, logs=logs, page_records=4, **about)


@pytest.fixture
def places(capsys: pytest.CaptureFixture[str]) -> Run:
    """(partition, offset) of what is printed."""

    def run(cluster: FakeCluster, *options: str) -> list[tuple[int, int]]:
        async def experiment() -> None:
            async with cluster:
                assert await consumed(cluster, *options) == 0

        asyncio.run(asyncio.wait_for(experiment(), HANG_SECONDS))
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return sorted((record["partition"], record["offset"]) for record in found)

    return run


ALL = [(0, number) for number in range(10)] + [(1, 0), (1, 1)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--until-end"], ALL),
        (["--until-end", "--from", "earliest"], ALL),
        (["--until-end", "--from", "latest"], []),
        (["--until-end", "--from", "8", "-p", "0"], [(0, 8), (0, 9)]),
        (["--until-end", "--from", "1"], [*ALL[1:10], (1, 1)]),
        (["--until-end", "--tail", "3"], [(0, 7), (0, 8), (0, 9), (1, 0), (1, 1)]),
        (["--until-end", "--tail", "0"], []),
        (["-e", "-p", "1"], [(1, 0), (1, 1)]),
        (["--max", "0"], []),
        (["--from", "earliest", "--max", "5", "-p", "0"], ALL[:5]),
        (["--from", "3", "--max", "2", "-p", "0"], ALL[3:5]),
        (["--tail", "1", "--max", "2"], [(0, 9), (1, 1)]),
    ],
)
def test_it_begins_and_ends_where_it_is_told(
    places: Run, options: list[str], expected: list[tuple[int, int]]
) -> None:
    assert places(filled(), *options) == expected


def test_the_end_is_what_it_was_at_the_begin(capsys: pytest.CaptureFixture[str]) -> None:
    async def experiment() -> None:
        async with filled() as cluster:
            reading = asyncio.create_task(consumed(cluster, "-e", "-p", "0"))
            await has_begun(cluster)
            cluster.logs[0] += [b"later"] * 20
            assert await reading == 0
        assert len(capsys.readouterr().out.splitlines()) == 10

    asyncio.run(asyncio.wait_for(experiment(), HANG_SECONDS))


def failure_of(experiment: Experiment, cluster: FakeCluster) -> CommandFailed:
    async def run() -> None:
        async with cluster:
            await experiment(cluster)

    with pytest.raises(CommandFailed) as failed:
        asyncio.run(asyncio.wait_for(run(), HANG_SECONDS))
    return failed.value


async def has_begun(cluster: FakeCluster) -> None:
    while not cluster.read_at:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def test_a_topic_that_is_deleted_meanwhile_ends_it() -> None:
    async def experiment(cluster: FakeCluster) -> None:
        reading = asyncio.create_task(consumed(cluster))
        await has_begun(cluster)
        cluster.is_deleted = True
        await reading

    failed = failure_of(experiment, filled())
    assert failed.exit_code == 1
    assert failed.sentence == f"Topic {TOPIC!r} does not exist any more: it was deleted meanwhile."


@pytest.mark.parametrize("count", [0, 100])
def test_another_topic_of_that_name_is_not_read_on(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its offsets are others, whether or not there is the next one."""
    monkeypatch.setattr(partition_reader, "GONE_SECONDS", HANG_SECONDS)

    async def experiment(cluster: FakeCluster) -> None:
        reading = asyncio.create_task(consumed(cluster, "-p", "0"))
        await has_begun(cluster)
        cluster.is_deleted = True
        await eventually(lambda: cluster.rejected_reads)
        cluster.logs[0], cluster.topic_id = [b"another"] * count, "second"
        cluster.is_deleted = False
        await reading

    failed = failure_of(experiment, filled())
    assert failed.sentence.endswith("deleted meanwhile, and another topic has its name.")


@pytest.mark.parametrize("count", [10, 100])
def test_another_topic_of_that_name_is_noticed_though_no_read_was_refused(count: int) -> None:
    """It was recreated between two polls; each answer tells of which topic it is."""

    async def experiment(cluster: FakeCluster) -> None:
        reading = asyncio.create_task(consumed(cluster, "-p", "0"))
        await has_begun(cluster)
        cluster.logs[0], cluster.topic_id = [b"another"] * count, "second"
        await reading

    failed = failure_of(experiment, filled())
    assert failed.sentence.endswith("deleted meanwhile, and another topic has its name.")


@pytest.mark.parametrize(
    ("text", "found", "expected"),
    [("2023-11-14T22:13:20Z", 7, [7, 8, 9]), ("@1700000000000", -1, []), ("-1h", 8, [8, 9])],
)
def test_it_begins_at_a_time(
    text: str, found: int, expected: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    requested: list[int] = []

    async def experiment() -> None:
        server = await asyncio.start_server(offset_by_time(found, requested), "127.0.0.1", 0)
        async with server, filled() as cluster:
            cluster.kafka_port = server.sockets[0].getsockname()[1]
            assert await consumed(cluster, "-e", "-p", "0", "--from", text) == 0

    asyncio.run(asyncio.wait_for(experiment(), HANG_SECONDS))
    offsets = [json.loads(line)["offset"] for line in capsys.readouterr().out.splitlines()]
    assert (offsets, len(requested)) == (expected, 1)
    assert requested == [1_700_000_000_000] or text == "-1h"


def offset_by_time(found: int, requested: list[int]) -> Callable[..., Any]:
    """A broker's ListOffsets v1 for partition 0: size, correlation id, topics, partitions."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        requested.append(struct.unpack(">q", (await reader.readexactly(size))[-8:])[0])
        name = struct.pack(">h", len(TOPIC)) + TOPIC.encode()
        response = struct.pack(">ii", 1, 1) + name + struct.pack(">iihqq", 1, 0, 0, -1, found)
        writer.write(struct.pack(">i", len(response)) + response)
        await writer.drain()
        writer.close()

    return serve


def test_a_moment_without_the_topic_is_waited_out(capsys: pytest.CaptureFixture[str]) -> None:
    """A broker that lags behind may not know it yet."""

    async def experiment() -> None:
        async with filled() as cluster:
            reading = asyncio.create_task(consumed(cluster, "-p", "1", "--max", "1"))
            await has_begun(cluster)
            cluster.is_deleted = True
            await asyncio.sleep(0.002)
            cluster.is_deleted = False
            cluster.logs[1].append(b"c")
            assert await reading == 0

    asyncio.run(asyncio.wait_for(experiment(), HANG_SECONDS))
    assert json.loads(capsys.readouterr().out)["value"] == "c"


def test_silence_is_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_reader, "SAY_AFTER_SECONDS", 0.01)

    async def experiment() -> None:
        async with filled() as cluster:
            reading = asyncio.create_task(consumed(cluster, "-p", "0"))
            await has_begun(cluster)
            for broker_id in range(2):
                await cluster.kill(broker_id)
            while "orders-0: no records" not in capsys.readouterr().err:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    asyncio.run(asyncio.wait_for(experiment(), HANG_SECONDS))


def test_an_offset_that_there_is_not_is_refused() -> None:
    async def experiment(cluster: FakeCluster) -> None:
        await consumed(cluster, "--from", "99", "-p", "0")

    failed = failure_of(experiment, filled())
    assert "OFFSET_OUT_OF_RANGE" in failed.found
    assert "choose another --from" in failed.to_do


def test_records_that_were_deleted_unread_are_told() -> None:
    said: list[str] = []

    async def reading() -> list[int]:
        async with filled() as cluster, consume.TidemarkClient(cluster.urls) as client:
            watch = partition_reader.TopicWatch(client, TOPIC, cluster.topic_id)
            start = partition_reader.Start("earliest")
            reader = partition_reader.PartitionReader(
                client, watch, TOPIC, 0, start=start, ends=True, say=said.append
            )
            found: list[int] = []
            async for page in reader.pages():
                found += [record.offset for record in page]
                cluster.log_start = 9
            return found

    found = asyncio.run(asyncio.wait_for(reading(), HANG_SECONDS))
    assert found[:4] == [0, 1, 2, 3]
    assert found[-1] == 9
    assert said == [f"orders-0: records {found[-2] + 1} to 8 were deleted before they were read"]


@pytest.mark.parametrize(
    "options",
    [
        ["--from", "soon"],
        ["--tail", "-1"],
        ["--max", "-1"],
        ["--format", "%q"],
        ["--format", "%s"],
    ],
)
def test_options_that_make_no_sense_are_refused(options: list[str]) -> None:
    async def experiment(cluster: FakeCluster) -> None:
        await consumed(cluster, *options)

    assert failure_of(experiment, filled()).exit_code == 2


def test_a_format_writes_bytes_as_they_are(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    async def experiment() -> None:
        async with FakeCluster(logs={0: [b"\xff\r", b"b"]}) as cluster:
            assert await consumed(cluster, "-e", "-f", r"%o=%s;", output="human") == 0

    asyncio.run(asyncio.wait_for(experiment(), HANG_SECONDS))
    assert capfdbinary.readouterr().out == b"0=\xff\r;1=b;"


def test_people_are_shown_a_record_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    async def experiment() -> None:
        async with FakeCluster(logs={0: [b"a\nb", b"\xff", b"\\xff"]}) as cluster:
            assert await consumed(cluster, "-e", output="human") == 0

    asyncio.run(asyncio.wait_for(experiment(), HANG_SECONDS))
    assert capsys.readouterr().out.splitlines() == ["0:0\ta\\nb", "0:1\t\\xff", "0:2\t\\\\xff"]
