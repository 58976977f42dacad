"""What hostile and broken clients of the Kafka port get, and what it does to the others."""

import asyncio
import logging
from pathlib import Path

import pytest
from tidemark_broker.kafka.network.limits import ListenerLimits
from tidemark_broker.kafka_wire.messages.fetch import FetchRequest, encode_fetch_request
from tidemark_broker.kafka_wire.messages.primitives import INT16, INT32, INT64, nullable_string
from tidemark_broker.kafka_wire.records.record_batch import NewRecord, build_batch

from tests.support.in_process_pool import TOPIC, a_batch
from tests.support.kafka_test_client import (
    API_VERSIONS_REQUEST,
    Client,
    KafkaTestClient,
    fetch,
    framed,
    produce,
    request,
    with_kafka_client,
)
from tests.support.waiting import eventually

FETCH_OF_A_BROKER = encode_fetch_request(
    FetchRequest(0, 1, 1, (), replica_id=1, replica_epoch=11), correlation_id=7, client_id="b"
)
CORRUPT_MESSAGE, INVALID_RECORD, UNKNOWN_TOPIC = 2, 87, 3


def closed_log(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.message == "connection closed"]


def kind_of(record: logging.LogRecord) -> str:
    return str(record.__dict__["reason"])


HUGE_ARRAY = INT32.pack(2**31 - 1)
NOT_KAFKA = {
    "negative length": INT32.pack(-1),
    "huge length": INT32.pack(2**31 - 1),
    "shorter than a header": framed(b"\x00\x03"),
    "client id beyond the end": framed(b"\x00\x03\x00\x01\x00\x00\x00\x01\x7f\xff"),
    "unknown api": request(999, 0),
    "negative api": request(-1, 0),
    "unknown version": request(3, 99),
    "oversized array": request(3, 1, HUGE_ARRAY),
    "array larger than the frame": request(3, 1, INT32.pack(1000) + b"\x00\x01a"),
    "negative count where none may be": request(
        0, 3, INT16.pack(-1) + INT16.pack(1) + INT32.pack(1) + HUGE_ARRAY
    ),
    "string beyond the end": request(3, 1, INT32.pack(1) + INT16.pack(500) + b"abc"),
    "not UTF-8": request(3, 1, INT32.pack(1) + INT16.pack(2) + b"\xff\xfe"),
    "varint without an end": request(3, 12, b"\x00" + b"\xff" * 12),
    "many tagged fields": request(3, 12, b"\x00\xff\xff\xff\xff\x0f"),
    "more bytes than the request has": request(
        0, 3, INT16.pack(-1) + INT16.pack(1) + INT32.pack(1) + INT32.pack(0) + b"extra"
    ),
}


@pytest.mark.parametrize("data", NOT_KAFKA.values(), ids=NOT_KAFKA)
def test_what_is_no_request_ends_its_connection_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        other = await Client.connect(kafka_client)
        await other.ask(API_VERSIONS_REQUEST)
        hostile = await Client.connect(kafka_client)
        hostile.send(data)
        assert await hostile.is_closed()
        assert len(closed_log(caplog)) == 1
        assert len(await other.ask(API_VERSIONS_REQUEST)) > 10
        await eventually(lambda: len(kafka_client.listener.connections) == 1)
        assert kafka_client.context.memory.requests.used_bytes == 0

    with_kafka_client(tmp_path, scenario)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"GET /topics HTTP/1.1\r\nhost: x\r\n\r\n", "HTTP"),
        (b"POST / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
    ],
)
def test_another_protocol_is_recognized_and_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, data: bytes, kind: str
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        client.send(data)
        assert await client.is_closed()

    with_kafka_client(tmp_path, scenario)
    assert [kind_of(record) for record in closed_log(caplog)] == [kind]


def test_a_thousand_bad_connections_are_one_line_and_a_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        for _ in range(1000):
            client = await Client.connect(kafka_client)
            client.send(INT32.pack(-1))
            assert await client.is_closed()
            client.close()

    with_kafka_client(tmp_path, scenario)
    counts = [record for record in caplog.records if record.message == "more connections closed"]
    assert len(closed_log(caplog)) == 1
    assert [record.__dict__["suppressed"] for record in counts] == [999]


def batch_with(position: int, value: bytes) -> bytes:
    batch = bytearray(a_batch("one", "two"))
    batch[position : position + len(value)] = value
    return bytes(batch)


def other_counts() -> bytes:
    """A batch whose header counts more records than it has offsets, with the right CRC."""
    from crc32c import crc32c

    batch = bytearray(a_batch("one", "two"))
    batch[57:61] = INT32.pack(-5)
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    return bytes(batch)


BAD_BATCHES = {
    "wrong CRC": (batch_with(20, b"\x00"), CORRUPT_MESSAGE),
    "a flipped byte": (batch_with(70, b"\x99"), CORRUPT_MESSAGE),
    "truncated": (a_batch("one", "two")[:-3], CORRUPT_MESSAGE),
    "cut in its header": (a_batch("one")[:40], CORRUPT_MESSAGE),
    "length beyond its end": (batch_with(8, INT32.pack(2**31 - 1)), CORRUPT_MESSAGE),
    "negative length": (batch_with(8, INT32.pack(-1)), None),
    "negative count": (other_counts(), None),
    "format v1": (batch_with(16, b"\x01"), INVALID_RECORD),
    "nothing": (b"", INVALID_RECORD),
}


@pytest.mark.parametrize(("batch", "error"), BAD_BATCHES.values(), ids=BAD_BATCHES)
def test_a_bad_batch_is_answered_with_kafkas_error_and_written_nowhere(
    tmp_path: Path, batch: bytes, error: int | None
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        response = await client.ask(produce(batch))
        found = int.from_bytes(response[4 + 2 + len(TOPIC) + 4 + 4 :][:2], "big", signed=True)
        assert found in ((CORRUPT_MESSAGE, INVALID_RECORD) if error is None else (error,))
        good = await client.ask(produce(a_batch("good")))
        assert good[4 + 2 + len(TOPIC) + 4 + 4 :][:10] == INT16.pack(0) + INT64.pack(0)

    with_kafka_client(tmp_path, scenario)


def test_a_slow_loris_holds_nobody_up_and_is_closed_as_idle(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        slow = await Client.connect(kafka_client)
        for byte in API_VERSIONS_REQUEST[:-1]:
            slow.send(bytes((byte,)))
            await asyncio.sleep(0)
        other = await Client.connect(kafka_client)
        assert len(await other.ask(API_VERSIONS_REQUEST)) > 10
        assert await slow.is_closed()

    limits = ListenerLimits(idle_seconds=0.2, sweep_seconds=0.05)
    with_kafka_client(tmp_path, scenario, limits)


def test_a_client_that_is_gone_without_a_word_is_closed_as_idle(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        silent = [await Client.connect(kafka_client) for _ in range(20)]
        await eventually(lambda: len(kafka_client.listener.connections) == 20)
        await eventually(lambda: not kafka_client.listener.connections)
        assert all([await client.is_closed() for client in silent])

    limits = ListenerLimits(idle_seconds=0.2, sweep_seconds=0.05)
    with_kafka_client(tmp_path, scenario, limits)


def test_a_half_closed_connection_takes_its_waiting_requests_along(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        client.send(fetch(max_wait_ms=300) + API_VERSIONS_REQUEST * 20)
        await eventually(lambda: kafka_client.context.memory.requests.used_bytes > 0)
        client.close()
        await eventually(lambda: not kafka_client.listener.connections)
        assert kafka_client.context.memory.requests.used_bytes == 0

    with_kafka_client(tmp_path, scenario)


def test_one_connection_too_many_is_closed_and_the_others_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kept = [await Client.connect(kafka_client) for _ in range(3)]
        for client in kept:
            await client.ask(API_VERSIONS_REQUEST)
        assert await (await Client.connect(kafka_client)).is_closed()
        for client in kept:
            await client.ask(API_VERSIONS_REQUEST)

    with_kafka_client(tmp_path, scenario, ListenerLimits(connections=3))
    assert [kind_of(record) for record in closed_log(caplog)] == ["too many connections"]


def test_a_follower_gets_in_and_stays_however_many_clients_there_are(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        clients = [await Client.connect(kafka_client) for _ in range(3)]
        for client in clients:
            await client.ask(API_VERSIONS_REQUEST)
        silent = await Client.connect(kafka_client)
        follower = await Client.connect(kafka_client)
        assert await follower.ask(FETCH_OF_A_BROKER)
        crowd = [await Client.connect(kafka_client) for _ in range(4)]
        assert await silent.is_closed()
        assert all([await client.is_closed() for client in crowd])
        for _ in range(3):
            assert await follower.ask(FETCH_OF_A_BROKER)
        for client in clients:
            await client.ask(API_VERSIONS_REQUEST)
        assert len(kafka_client.listener.connections) == 4

    limits = ListenerLimits(connections=3, over_limit_connections=2, over_limit_seconds=0.1)
    with_kafka_client(tmp_path, scenario, limits)


def test_what_a_client_above_the_limit_asks_for_is_not_done(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        first = await Client.connect(kafka_client)
        await first.ask(API_VERSIONS_REQUEST)
        second = await Client.connect(kafka_client)
        second.send(produce(a_batch("one"), acks=0))
        assert await second.is_closed()
        assert kafka_client.partitions.offsets(TOPIC, 0).log_end_offset == 0
        assert kafka_client.context.memory.requests.used_bytes == 0

    with_kafka_client(tmp_path, scenario, ListenerLimits(connections=1))


def test_an_unknown_topic_and_partition_are_answered_not_closed(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        requested = INT32.pack(-1) + INT32.pack(0) + INT32.pack(1) + INT32.pack(100) + b"\x00"
        requested += INT32.pack(1) + nullable_string("nowhere") + INT32.pack(1)
        requested += INT32.pack(-7) + INT64.pack(-9) + INT32.pack(-1)
        response = await client.ask(request(1, 4, requested))
        assert INT16.pack(UNKNOWN_TOPIC) in response
        assert len(await client.ask(API_VERSIONS_REQUEST)) > 10

    with_kafka_client(tmp_path, scenario)


def test_a_fetch_of_no_partitions_is_answered_at_once(tmp_path: Path) -> None:
    """Java's consumers close their fetch sessions so, as others do."""

    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        nothing = INT32.pack(0) + INT32.pack(0)  # throttled, topics
        assert await client.ask(fetch(times=0, max_wait_ms=60_000, min_bytes=1000)) == nothing
        assert len(await client.ask(API_VERSIONS_REQUEST)) > 10

    with_kafka_client(tmp_path, scenario)


def test_deeply_nested_structs_are_only_as_deep_as_their_table(tmp_path: Path) -> None:
    """A record that holds a batch that holds a batch is bytes to the broker."""

    async def scenario(kafka_client: KafkaTestClient) -> None:
        inner = a_batch("leaf")
        for _ in range(50):
            inner = build_batch([NewRecord(None, inner, ())], timestamp_ms=1)
        client = await Client.connect(kafka_client)
        response = await client.ask(produce(inner))
        assert response[4 + 2 + len(TOPIC) + 4 + 4 :][:2] == INT16.pack(0)

    with_kafka_client(tmp_path, scenario)


@pytest.mark.parametrize("limits", [{"max_bytes": 0}, {"partition_max_bytes": -1}])
def test_who_asks_for_no_bytes_is_given_a_batch_at_a_time(
    tmp_path: Path, limits: dict[str, int]
) -> None:
    """As by Kafka (minOneMessage). Read for the wait, not for the answer: an endless pass."""

    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        batch = a_batch("a" * 100)
        for _ in range(2):
            await client.ask(produce(batch))
        response = await asyncio.wait_for(client.ask(fetch(max_wait_ms=60_000, **limits)), 5)
        assert len(batch) < len(response) < 2 * len(batch)

    with_kafka_client(tmp_path, scenario)
