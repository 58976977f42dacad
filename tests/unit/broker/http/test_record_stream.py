"""Records as lines of a stream that lasts, and as record batches in and out."""

import asyncio
import json
from typing import Any

import pytest
from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.kafka_wire.records.record_batch import NewRecord, build_batch
from tidemark_broker.replication.results import FetchResult
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset

from tests.support.waiting import eventually
from tests.unit.broker.http.fake_broker import FakeBroker, Response, fake_broker
from tests.unit.broker.http.test_server import run, serving

BATCHES = "application/vnd.kafka.recordbatch"
LINES = "application/x-ndjson"
PARTITION = "/topics/orders/partitions/0"
RECORDS = f"{PARTITION}/records"


def a_batch(*values: bytes, timestamp_ms: int = 1000) -> bytes:
    records = [NewRecord(b'"k"', value, ()) for value in values]
    return build_batch(records, timestamp_ms=timestamp_ms)


def get(broker: FakeBroker, target: str, accept: str) -> Response:
    response: Response = asyncio.run(broker.client.get(target, accept=accept))
    return response


def post(broker: FakeBroker, body: bytes, target: str = PARTITION) -> Response:
    response: Response = asyncio.run(broker.client.post(target, body, BATCHES))
    return response


def lines_of(response: Response) -> list[Any]:
    return [json.loads(line) for line in response.body.splitlines() if line]


def test_record_batches_come_back_as_they_were_sent() -> None:
    broker = fake_broker()
    sent = a_batch(b"1", b"2") + a_batch(b"3")
    written = post(broker, sent)
    assert (written.status, written.json()) == (
        200,
        {"offsets": [{"partition": 0, "offset": 0, "last_offset": 2}]},
    )
    read = get(broker, RECORDS, BATCHES)
    assert read.headers["content-type"] == BATCHES
    assert read.headers["tidemark-next-offset"] == "3"
    # The offset in front of the CRC is the log's; all else is the sender's.
    assert read.body[8:80] == sent[8:80]
    assert len(read.body) == len(sent)


def test_record_batches_at_the_end_are_no_bytes_and_the_same_offset() -> None:
    broker = fake_broker()
    post(broker, a_batch(b"1"))
    read = get(broker, f"{RECORDS}?offset=1", BATCHES)
    assert (read.status, read.body, read.headers["tidemark-next-offset"]) == (200, b"", "1")


@pytest.mark.parametrize(
    "body", [b"", b"short", a_batch(b"1")[:-1], a_batch(b"1") + b"x", a_batch(b"1") * 1001]
)
def test_what_is_not_whole_batches_is_refused_before_anything_is_written(body: bytes) -> None:
    broker = fake_broker()
    response = post(broker, body)
    assert (response.status, response.json()["outcome"]) == (422, "not_written")
    assert broker.partitions.produced == []


def test_a_batch_that_fails_its_check_is_the_clients_fault() -> None:
    broker = fake_broker()
    broker.partitions.reject_with = _rejected(ErrorCode.CORRUPT_MESSAGE)
    response = post(broker, a_batch(b"1"))
    assert (response.status, response.json()["outcome"]) == (422, "not_written")


def _rejected(error: ErrorCode) -> Any:
    from tidemark_broker.replication.results import ProduceResult

    return ProduceResult(error)


def test_record_batches_need_a_partition() -> None:
    assert post(fake_broker(), a_batch(b"1"), "/topics/orders").status == 415


def test_record_batches_for_another_leader_are_redirected() -> None:
    broker = fake_broker(leaders=(1, 0, 0))
    assert post(broker, a_batch(b"1")).status == 307


def test_a_stream_that_ends_has_every_record_on_a_line() -> None:
    broker = fake_broker()
    post(broker, a_batch(*(b"%d" % number for number in range(1000))))
    response = get(broker, f"{RECORDS}?offset=10&max_wait_ms=0", LINES)
    assert response.headers["content-type"] == LINES
    found = lines_of(response)
    assert [entry["offset"] for entry in found] == list(range(10, 1000))
    assert found[0]["value"] == 10


def test_a_stream_of_bytes_is_asked_for_in_accept() -> None:
    broker = fake_broker()
    post(broker, a_batch(b"\xff\x00"))
    response = get(broker, f"{RECORDS}?max_wait_ms=0", f"{LINES}; embedded=binary")
    assert [entry["value"] for entry in lines_of(response)] == ["/wA="]


def test_a_value_that_is_not_json_ends_a_stream_with_the_problem_as_its_last_line() -> None:
    broker = fake_broker()
    post(broker, a_batch(b"0", b"1", b"\xff", b"3"))
    *before, last = lines_of(get(broker, f"{RECORDS}?max_wait_ms=0", LINES))
    assert [entry["value"] for entry in before] == [0, 1]
    assert (last["status"], last["error"], last["offset"]) == (406, "INVALID_RECORD", 2)
    behind = get(broker, f"{RECORDS}?max_wait_ms=0&offset={last['nextOffset']}", LINES)
    assert [entry["value"] for entry in lines_of(behind)] == [3]


def test_a_stream_begins_as_any_read_with_a_redirect_or_a_problem() -> None:
    assert get(fake_broker(leaders=(1, 0, 0)), RECORDS, LINES).status == 307
    assert get(fake_broker(), f"{RECORDS}?offset=7", LINES).status == 416
    assert get(fake_broker(limits=HttpLimits(streams=0)), RECORDS, LINES).status == 503


async def open_stream(port: int, target: str = RECORDS) -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    writer.write(f"GET {target} HTTP/1.1\r\nhost: x\r\naccept: {LINES}\r\n\r\n".encode())
    assert b" 200 " in await reader.readline()
    while (await reader.readline()).strip():
        pass
    return reader, writer


async def next_chunk(reader: asyncio.StreamReader) -> bytes:
    size = int(await reader.readline(), 16)
    return (await reader.readexactly(size + 2))[:-2]


def test_a_stream_goes_on_with_what_is_written_later_and_ends_with_its_leadership() -> None:
    async def scenario() -> None:
        broker = fake_broker()
        partitions = broker.partitions
        async with serving(broker.app) as port:
            reader, writer = await open_stream(port)
            for number in range(3):
                await eventually(lambda: bool(partitions.delayed))
                done = partitions.delayed.pop()
                partitions.append(0, a_batch(b"%d" % number))
                end = Offset(number + 1)
                data = partitions.read(0, number, 1)
                done(FetchResult(ErrorCode.NONE, data, end, Offset(0), end))
                assert json.loads(await next_chunk(reader))["offset"] == number
            await eventually(lambda: bool(partitions.delayed))
            partitions.delayed.pop()(FetchResult(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            last = json.loads(await next_chunk(reader))
            assert (last["error"], last["nextOffset"]) == ("NOT_LEADER_OR_FOLLOWER", 3)
            assert await next_chunk(reader) == b""
            writer.close()

    run(scenario)


def test_an_idle_stream_sends_empty_lines() -> None:
    async def scenario() -> None:
        broker = fake_broker(limits=HttpLimits(stream_idle_seconds=0.05))
        async with serving(broker.app) as port:
            reader, writer = await open_stream(port)
            for _ in range(3):
                await eventually(lambda: bool(broker.partitions.delayed))
                broker.partitions.delayed.pop()(
                    FetchResult(ErrorCode.NONE, b"", Offset(0), Offset(0), Offset(0))
                )
                assert await next_chunk(reader) == b"\n"
            writer.close()

    run(scenario)


def test_a_client_that_leaves_a_stream_is_noticed_and_its_read_cancelled() -> None:
    async def scenario() -> None:
        broker = fake_broker()
        async with serving(broker.app) as port:
            _, writer = await open_stream(port)
            await eventually(lambda: bool(broker.partitions.delayed))
            writer.close()
            await eventually(lambda: broker.partitions.cancelled > 0)

    run(scenario)


def test_a_slow_reader_of_a_stream_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        broker = fake_broker()
        value = json.dumps("x" * 200_000).encode()
        for _ in range(100):
            broker.partitions.append(0, a_batch(value))
        reads = 0
        read = broker.partitions.read

        def counting(partition: int, offset: int, max_bytes: int) -> bytes:
            nonlocal reads
            reads += 1
            return read(partition, offset, max_bytes)

        monkeypatch.setattr(broker.partitions, "read", counting)
        async with serving(broker.app) as port:
            reader, writer = await open_stream(port, f"{RECORDS}?max_wait_ms=0")
            writer.transport.pause_reading()
            await eventually(lambda: reads > 3)
            before = -1
            while before != reads:
                before = reads
                await asyncio.sleep(0.05)
            assert reads < 80
            writer.transport.resume_reading()
            found = 0
            while chunk := await next_chunk(reader):
                found += chunk.count(b"\n")
            assert found == 100
            writer.close()

    run(scenario)
