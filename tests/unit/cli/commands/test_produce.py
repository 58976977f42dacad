"""The produce command: batches, what becomes of each record, and its exit code."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tidemark_cli import batching
from tidemark_cli.arguments import parse
from tidemark_cli.batching import BatchingProducer, Settled
from tidemark_cli.commands import produce
from tidemark_cli.output import Output
from tidemark_cli.record_input import MOST_RECORD_BYTES
from tidemark_client.client import TidemarkClient
from tidemark_client.errors import CommandFailed
from tidemark_client.outcomes import Acknowledged, OutgoingRecord, Rejected

from tests.support.fake_http_broker import TOPIC, FakeCluster, answering, problem
from tests.support.waiting import HANG_SECONDS

Run = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Run:
    """Runs it with those options, and this on stdin: (exit code, JSON of each record)."""

    def run(
        cluster: FakeCluster, *options: str, stdin: bytes = b""
    ) -> tuple[int, list[dict[str, Any]]]:
        (tmp_path / "stdin").write_bytes(stdin)
        with (tmp_path / "stdin").open() as file:
            monkeypatch.setattr(sys, "stdin", file)
            code = asyncio.run(asyncio.wait_for(experiment(cluster, options), HANG_SECONDS))
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    async def experiment(cluster: FakeCluster, options: tuple[str, ...]) -> int:
        async with cluster:
            words = ["produce", TOPIC, "--server", cluster.url(0), "-o", "json", *options]
            return await produce.run(parse(words), Output(is_json=True))

    return run


def test_lines_are_sent_in_batches(reported: Run) -> None:
    cluster = FakeCluster(partition_count=2)
    lines = [b"%d" % number for number in range(2000)]
    code, records = reported(cluster, stdin=b"\n".join(lines))
    assert code == 0
    assert sorted(cluster.logs[0] + cluster.logs[1]) == sorted(lines)
    assert cluster.logs[0] == lines[::2], "in turn, and in order"
    assert len(cluster.batches) <= 4
    assert sorted(record["record"] for record in records) == list(range(1, 2001))
    for record in records:
        assert cluster.logs[record["partition"]][record["offset"]] == b"%d" % (record["record"] - 1)


def test_batches_are_of_an_idempotent_producer(reported: Run) -> None:
    cluster = FakeCluster()
    reported(cluster, "a", "b")
    (batch,) = cluster.batches
    assert (batch.header.producer_epoch, batch.header.base_sequence) == (0, 0)
    assert batch.header.producer_id > 4000


@pytest.mark.parametrize("size", [1024 * 1024, 2 * 1024 * 1024 + 1])
def test_a_line_of_a_mebibyte_is_one_record(reported: Run, size: int) -> None:
    cluster = FakeCluster()
    code, _ = reported(cluster, stdin=b"a\n" + b"x" * size + b"\nb\n")
    assert (code, list(map(len, cluster.logs[0]))) == (0, [1, size, 1])


def test_a_line_that_is_too_large_is_refused_and_no_piece_of_it_written(reported: Run) -> None:
    cluster = FakeCluster()
    code, records = reported(cluster, stdin=b"a\n" + b"x" * (MOST_RECORD_BYTES + 1) + b"\nb\n")
    assert (code, cluster.logs[0]) == (1, [b"a", b"b"])
    (refused,) = [record for record in records if record["outcome"] == "refused"]
    assert (refused["record"], refused["error"]) == (2, "MESSAGE_TOO_LARGE")
    assert "partition" not in refused


def test_a_record_that_the_topic_refuses_costs_its_neighbours_nothing(reported: Run) -> None:
    cluster = FakeCluster(most_batch_bytes=5, bad_values={b"bad"})
    lines = [b"ab", b"cd", b"too large", b"bad", b"ef", b"gh"]
    code, records = reported(cluster, stdin=b"\n".join(lines))
    assert (code, cluster.logs[0]) == (1, [b"ab", b"cd", b"ef", b"gh"])
    refused = {r["record"]: r["error"] for r in records if r["outcome"] == "refused"}
    assert refused == {3: "MESSAGE_TOO_LARGE", 4: "INVALID_RECORD"}


def test_halving_ends_where_all_records_are_bad(
    reported: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "MOST_HALVINGS", 4)
    cluster = FakeCluster(bad_values={b"bad"})
    code, records = reported(cluster, stdin=b"bad\n" * 64)
    assert (code, len(records)) == (1, 64)
    assert len(cluster.batches) <= 10


def test_bytes_of_stdin_stay_as_they_are(reported: Run) -> None:
    cluster = FakeCluster()
    reported(cluster, stdin=b"a\r\nb\rc\n\xff\0\n\n")
    assert cluster.logs[0] == [b"a\r", b"b\rc", b"\xff\0", b""]


def test_another_delimiter_and_a_file_as_one_record(reported: Run, tmp_path: Path) -> None:
    cluster = FakeCluster()
    reported(cluster, "-D", r"\0", stdin=b"a\nb\0c")
    (tmp_path / "record").write_bytes(b"a\nb\n")
    files = FakeCluster()
    reported(files, "-f", str(tmp_path / "record"), "-f", "-", stdin=b"\nx\n")
    assert (cluster.logs[0], files.logs[0]) == ([b"a\nb", b"c"], [b"a\nb\n", b"\nx\n"])
    with pytest.raises(CommandFailed, match="No such file"):
        reported(FakeCluster(), "-f", str(tmp_path / "missing"))


def test_keys_headers_and_times_are_sent(reported: Run) -> None:
    cluster = FakeCluster(partition_count=3)
    code, records = reported(
        cluster, "-K", ":", "-Z", "-H", "a=1", "-T", "5", stdin=b"k:v\nk:\nnone\n"
    )
    assert (code, records[0]["outcome"]) == (1, "refused")
    (batch,) = cluster.batches
    found = [(each.key, each.value, each.headers, each.timestamp_ms) for each in batch.records]
    about = ((("a", b"1"),), 5)
    assert found == [(b"k", b"v", *about), (b"k", None, *about)]


def test_what_is_in_doubt_is_said_of_each_record(reported: Run) -> None:
    def refusing() -> Any:
        return problem(500, "OUT_OF_ORDER_SEQUENCE_NUMBER", outcome="unknown")

    cluster = FakeCluster(next_responses=[answering(refusing)])
    code, records = reported(cluster, "a", "b")
    assert code == 1
    assert [(record["outcome"], record["record"]) for record in records] == [
        ("unknown", 1),
        ("unknown", 2),
    ]


def test_without_acknowledgement_it_is_said_that_there_is_none(reported: Run) -> None:
    def sent() -> Any:
        from aiohttp import web

        return web.json_response({"offsets": [{"partition": 0, "offset": -1}]})

    cluster = FakeCluster(next_responses=[answering(sent)])
    code, records = reported(cluster, "--acks", "0", "a")
    assert (code, records[0]["outcome"]) == (0, "sent")


def run(experiment: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(experiment, HANG_SECONDS))


def test_a_topic_that_is_deleted_meanwhile_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def experiment() -> None:
        async with FakeCluster() as cluster:
            reading, writing = os.pipe()
            monkeypatch.setattr(sys, "stdin", os.fdopen(reading))
            words = ["produce", TOPIC, "--server", cluster.url(0), "--timeout-ms", "50"]
            running = asyncio.create_task(produce.run(parse(words), Output(is_json=False)))
            while not cluster.logs.get(0):
                os.write(writing, b"a\n")
                await asyncio.sleep(0.02)
            cluster.is_deleted = True
            while not running.done():  # `tail -f` goes on
                os.write(writing, b"b\n")
                await asyncio.sleep(0.02)
            os.close(writing)
            with pytest.raises(CommandFailed, match="deleted meanwhile"):
                running.result()

    run(experiment())


def test_what_was_read_is_sent_when_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def experiment() -> None:
        async with FakeCluster() as cluster:
            reading, writing = os.pipe()
            monkeypatch.setattr(sys, "stdin", os.fdopen(reading))
            words = ["produce", TOPIC, "--server", cluster.url(0), "--linger-ms", "3600000"]
            running = asyncio.create_task(produce.run(parse(words), Output(is_json=False)))
            os.write(writing, b"a\n")
            added = asyncio.Event()
            add = BatchingProducer.add

            def note(self: BatchingProducer, *about: Any) -> None:
                add(self, *about)
                added.set()

            monkeypatch.setattr(BatchingProducer, "add", note)
            await added.wait()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert (running.cancelled(), cluster.logs[0]) == (True, [b"a"])
            os.close(writing)

    run(experiment())
    assert capsys.readouterr().out == "orders-0 offset 0\n"


def test_memory_is_bounded_while_a_leader_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    async def experiment() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            settled: list[Settled] = []
            producer = BatchingProducer(client, TOPIC, linger_seconds=0, on_settled=settled.append)
            producer.add(0, OutgoingRecord(b"x" * 1000), 1)
            room = asyncio.create_task(producer.wait_for_room())
            await asyncio.sleep(0)
            assert not room.done()
            await room
            assert settled == [Settled(0, [1], Acknowledged(0, cluster.url(0)))]
            await producer.finish()

    monkeypatch.setattr(batching, "PENDING_BYTES", 1000)
    run(experiment())


def test_a_sender_that_dies_is_no_wait_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(settled: Settled) -> None:
        raise ZeroDivisionError

    async def experiment() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            producer = BatchingProducer(client, TOPIC, linger_seconds=0, on_settled=broken)
            producer.add(0, OutgoingRecord(b"x" * 1000), 1)
            with pytest.raises(ZeroDivisionError):
                await producer.wait_for_room()
            await producer.close()

    monkeypatch.setattr(batching, "PENDING_BYTES", 1000)
    run(experiment())


def test_the_last_batch_goes_without_a_linger() -> None:
    async def experiment() -> None:
        async with FakeCluster() as cluster, TidemarkClient(cluster.urls) as client:
            settled: list[Settled] = []
            producer = BatchingProducer(
                client, TOPIC, linger_seconds=3600, on_settled=settled.append
            )
            producer.add(0, OutgoingRecord(b"x"), 1)
            await producer.finish()
            assert [one.outcome for one in settled] == [Acknowledged(0, cluster.url(0))]

    run(experiment())


def test_a_human_is_told_the_offsets(capsys: pytest.CaptureFixture[str]) -> None:
    report = produce.Report(Output(is_json=False), TOPIC)
    report.settled(Settled(1, [4, 5], Acknowledged(7, "url")))
    report.settled(Settled(1, [6], Rejected("NOT_ENOUGH_REPLICAS", "why")))
    assert capsys.readouterr().out.splitlines() == [
        "orders-1 offset 7",
        "orders-1 offset 8",
        "orders-1 record 6 refused (not written): NOT_ENOUGH_REPLICAS: why",
    ]
    assert report.failures == 1
