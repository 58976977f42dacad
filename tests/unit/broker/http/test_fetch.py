"""GET of records: what is returned, from where, in which format, and how long it waits."""

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

import pytest
from tidemark_broker.http.limits import MEBIBYTE, HttpLimits
from tidemark_broker.kafka_wire.records.compression import packed
from tidemark_broker.kafka_wire.records.record_batch import build_batch
from tidemark_broker.replication.results import FetchResult
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset

from tests.support.waiting import HANG_SECONDS, eventually
from tests.unit.broker.http.fake_broker import (
    NOW_MS,
    FakeBroker,
    Response,
    fake_broker,
)

BINARY = "application/vnd.kafka.binary.v2+json"
JSON = "application/vnd.kafka.json.v2+json"
RECORDS = "/topics/orders/partitions/0/records"


def run(coroutine: Any) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(HANG_SECONDS):
            return await coroutine

    return asyncio.run(bounded())


def get(broker: FakeBroker, target: str, **headers: str) -> Response:
    response: Response = run(broker.client.get(target, **headers))
    return response


def broker_with(*batches: Sequence[tuple[bytes | None, bytes | None]], **given: Any) -> FakeBroker:
    broker = fake_broker(**given)
    for records in batches:
        data = build_batch([(k, v, [("h", b"1")]) for k, v in records], timestamp_ms=NOW_MS)
        broker.partitions.append(0, data)
    return broker


def test_records_come_as_base64_by_default_with_the_offsets_in_headers() -> None:
    broker = broker_with([(b"k", b"\xff"), (None, None)])
    response = get(broker, RECORDS + "?offset=0")
    assert response.status == 200
    assert response.headers["content-type"] == BINARY
    assert response.headers["tidemark-high-watermark"] == "2"
    assert response.headers["tidemark-log-start-offset"] == "0"
    assert response.headers["tidemark-next-offset"] == "2"
    headers = [{"key": "h", "value": "MQ=="}]
    place = {"topic": "orders", "partition": 0, "timestamp": NOW_MS, "headers": headers}
    assert response.json() == [
        {**place, "offset": 0, "key": "aw==", "value": base64.b64encode(b"\xff").decode()},
        {**place, "offset": 1, "key": None, "value": None},
    ]


def test_an_offset_inside_a_batch_hides_what_is_below() -> None:
    broker = broker_with([(None, b"0"), (None, b"1"), (None, b"2")], [(None, b"3")])
    response = get(broker, RECORDS + "?offset=2", accept=JSON)
    assert [(r["offset"], r["value"]) for r in response.json()] == [(2, 2), (3, 3)]
    assert response.headers["content-type"] == JSON


@pytest.mark.parametrize(("accept", "found"), [
    ("", BINARY), ("*/*", BINARY), ("application/json", JSON), (JSON, JSON),
    (f"{BINARY};q=0, {JSON}", JSON), (f"text/html, {BINARY}; q=0.5", BINARY),
])  # fmt: skip
def test_accept_chooses_the_format(accept: str, found: str) -> None:
    broker = broker_with([(None, b"1")])
    assert get(broker, RECORDS, accept=accept).headers["content-type"] == found


def test_no_acceptable_format_is_406() -> None:
    response = get(broker_with([(None, b"1")]), RECORDS, accept="text/html")
    assert response.status == 406


# Deeper than each supported Python lets a decoder recurse.
DEEP = b"[" * 30_000 + b"]" * 30_000


@pytest.mark.parametrize("value", [b"{", b"", b'"\xff"', b"1 2", DEEP])
def test_a_value_that_is_not_json_is_406_naming_its_offset(value: bytes) -> None:
    broker = broker_with([(None, b"1"), (None, value)])
    response = get(broker, f"{RECORDS}?offset=1", accept=JSON)
    assert response.status == 406
    assert "offset 1" in response.json()["detail"]
    assert get(broker, RECORDS).status == 200


@pytest.mark.parametrize("is_one_batch", [True, False])
@pytest.mark.parametrize("bad", [(None, b"\xff"), (b"\xff", b"1")])
def test_records_before_and_after_one_that_is_not_json_are_read(
    bad: tuple[bytes | None, bytes], is_one_batch: bool
) -> None:
    records = [(None, b"0"), (None, b"1"), bad, (None, b"3")]
    broker = broker_with(*([records] if is_one_batch else [[each] for each in records]))
    before = get(broker, RECORDS, accept=JSON)
    assert [record["value"] for record in before.json()] == [0, 1]
    assert before.headers["tidemark-next-offset"] == "2"
    problem = get(broker, f"{RECORDS}?offset=2", accept=JSON)
    found = problem.json()
    assert (problem.status, found["error"]) == (406, "INVALID_RECORD")
    assert (found["offset"], found["nextOffset"]) == (2, 3)
    behind = get(broker, f"{RECORDS}?offset=3", accept=JSON)
    assert [record["value"] for record in behind.json()] == [3]


@pytest.mark.parametrize(("offset", "first"), [("earliest", 0), ("1", 1), ("latest", None)])
def test_named_offsets(offset: str, first: int | None) -> None:
    broker = broker_with([(None, b"0"), (None, b"1")])
    response = get(broker, f"{RECORDS}?offset={offset}")
    offsets = [record["offset"] for record in response.json()]
    assert offsets[:1] == ([] if first is None else [first])
    assert response.headers["tidemark-next-offset"] == "2"


def test_an_offset_out_of_range_names_the_valid_range() -> None:
    response = get(broker_with([(None, b"0")]), RECORDS + "?offset=9")
    assert response.status == 416
    problem = response.json()
    assert problem["error"] == "OFFSET_OUT_OF_RANGE"
    assert (problem["logStartOffset"], problem["logEndOffset"]) == (0, 1)
    assert "outcome" not in problem


def test_a_partition_led_elsewhere_is_a_redirect() -> None:
    response = get(fake_broker(leaders=(1,)), RECORDS + "?offset=3&max_wait_ms=5")
    assert response.status == 307
    assert response.headers["location"] == (
        "http://broker-1.example:8080/topics/orders/partitions/0/records?offset=3&max_wait_ms=5"
    )


@pytest.mark.parametrize("query", [
    "offset=-1", "offset=x", "offset=9223372036854775808", "max_bytes=8388609", "max_wait_ms=30001",
    "max_wait_ms=", "limit=5", "offset=1&offset=2",
])  # fmt: skip
def test_a_malformed_query_is_400(query: str) -> None:
    assert get(fake_broker(), f"{RECORDS}?{query}").status == 400


@pytest.mark.parametrize("target", [
    "/topics/nope/partitions/0/records", "/topics/orders/partitions/7/records",
])  # fmt: skip
def test_an_unknown_partition_is_404(target: str) -> None:
    assert get(fake_broker(), target).status == 404


def test_an_answer_holds_a_bounded_number_of_records_and_says_where_to_go_on() -> None:
    batches = [[(None, b"%d" % (i * 10 + j)) for j in range(10)] for i in range(3)]
    broker = broker_with(*batches, limits=HttpLimits(records=15))
    first = get(broker, RECORDS + "?offset=2")
    assert [record["offset"] for record in first.json()] == list(range(2, 17))
    assert first.headers["tidemark-next-offset"] == "17"
    second = get(broker, RECORDS + "?offset=17")
    assert [record["offset"] for record in second.json()] == list(range(17, 30))


def test_many_records_are_one_valid_list() -> None:
    broker = broker_with([(None, b"%d" % i) for i in range(1000)])
    response = get(broker, RECORDS, accept=JSON)
    assert [record["value"] for record in response.json()] == list(range(1000))


def test_a_long_poll_ends_when_records_come() -> None:
    async def scenario() -> Response:
        broker = fake_broker()
        request = asyncio.create_task(broker.client.get(RECORDS + "?offset=0&max_wait_ms=30000"))
        await eventually(lambda: bool(broker.partitions.delayed))
        data = build_batch([(None, b"1", ())], timestamp_ms=NOW_MS)
        done = broker.partitions.delayed[0]
        done(FetchResult(ErrorCode.NONE, data, Offset(1), Offset(0), Offset(1)))
        return await request

    response = run(scenario())
    assert [record["offset"] for record in response.json()] == [0]


def test_a_parked_fetch_is_cancelled_when_its_client_goes() -> None:
    async def scenario() -> FakeBroker:
        broker = fake_broker()
        target = RECORDS + "?offset=0&max_wait_ms=30000"
        request = asyncio.create_task(broker.client.request("GET", target))
        await eventually(lambda: bool(broker.partitions.delayed))
        broker.client.disconnect.set()
        assert await request is None
        # What a cancelled fetch might still say must disturb nobody.
        broker.partitions.delayed[0](FetchResult(ErrorCode.NONE))
        return broker

    assert run(scenario()).partitions.cancelled == 1


def test_a_fetch_that_is_never_answered_is_given_up() -> None:
    broker = fake_broker(limits=HttpLimits(response_grace_seconds=0.01))
    response = get(broker, RECORDS + "?offset=0&max_wait_ms=5")
    assert response.status == 504
    assert broker.partitions.cancelled == 1


@pytest.mark.parametrize(("error", "status"), [
    (ErrorCode.OFFSET_NOT_AVAILABLE, 503), (ErrorCode.KAFKA_STORAGE_ERROR, 500),
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, 503), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 404),
])  # fmt: skip
def test_a_refusal_is_a_problem(
    error: ErrorCode, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = fake_broker()

    def reject(*args: Any, done: Any, **kwargs: Any) -> Any:
        done(FetchResult(error))
        return lambda: None

    monkeypatch.setattr(broker.partitions, "fetch", reject)
    response = get(broker, RECORDS)
    assert (response.status, response.json()["error"]) == (status, error.name)


def corrupted(data: bytes) -> bytes:
    return data[:-3] + b"\xff\xff\xff"


def test_bytes_that_are_not_records_are_a_problem_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = fake_broker()
    data = corrupted(build_batch([(None, b"abc", ())], timestamp_ms=NOW_MS))

    def answer(*args: Any, done: Any, **kwargs: Any) -> Any:
        done(FetchResult(ErrorCode.NONE, data, Offset(1), Offset(0), Offset(1)))
        return lambda: None

    monkeypatch.setattr(broker.partitions, "fetch", answer)
    response = get(broker, RECORDS)
    assert (response.status, response.json()["error"]) == (500, "CORRUPT_MESSAGE")
    assert 'tidemark_crc_failures_total{where="fetch"} 1' in get(broker, "/metrics").body.decode()


def fetched(monkeypatch: pytest.MonkeyPatch, broker: Any, *batches: bytes) -> None:
    data = b"".join(batches)

    def answer(*args: Any, done: Any, **kwargs: Any) -> Any:
        done(FetchResult(ErrorCode.NONE, data, Offset(1), Offset(0), Offset(1)))
        return lambda: None

    monkeypatch.setattr(broker.partitions, "fetch", answer)


def packed_batch(codec: int, values: list[bytes], base_offset: int = 0) -> bytes:
    plain = build_batch([(None, value, ()) for value in values], timestamp_ms=NOW_MS)
    batch = bytearray(plain[:61] + packed(codec, bytes(plain[61:])))
    batch[:12] = base_offset.to_bytes(8, "big") + (len(batch) - 12).to_bytes(4, "big")
    batch[22] |= codec
    return bytes(batch)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_batches_of_every_codec_are_opened(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = fake_broker()
    fetched(monkeypatch, broker, packed_batch(codec, [b"abc", b"def"]))
    response = get(broker, RECORDS)
    assert [record["value"] for record in response.json()] == ["YWJj", "ZGVm"]


def test_a_batch_that_inflates_to_more_than_is_opened_is_406(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = fake_broker()
    fetched(monkeypatch, broker, packed_batch(4, [bytes(65 * MEBIBYTE)]))
    response = get(broker, RECORDS)
    assert response.status == 406
    assert "67108864 bytes after decompression by zstd" in response.json()["detail"]


def test_records_before_a_batch_that_cannot_be_opened_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = fake_broker()
    good = packed_batch(0, [b"0", b"1"])
    large = packed_batch(4, [bytes(65 * MEBIBYTE), b""], base_offset=2)
    fetched(monkeypatch, broker, good, large)
    before = get(broker, RECORDS)
    assert [record["offset"] for record in before.json()] == [0, 1]
    assert before.headers["tidemark-next-offset"] == "2"
    fetched(monkeypatch, broker, large)
    problem = get(broker, f"{RECORDS}?offset=2").json()
    assert (problem["status"], problem["offset"], problem["nextOffset"]) == (406, 2, 4)


def test_records_before_a_damaged_batch_are_read_and_nobody_is_sent_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker repairs it: then it is read."""
    broker = fake_broker()
    corrupt = packed_batch(1, [b"2"], base_offset=1)[:-12] + bytes(12)
    fetched(monkeypatch, broker, packed_batch(0, [b"0"]), corrupt)
    before = get(broker, RECORDS)
    assert [record["offset"] for record in before.json()] == [0]
    fetched(monkeypatch, broker, corrupt)
    problem = get(broker, f"{RECORDS}?offset=1").json()
    assert (problem["error"], problem["nextOffset"]) == ("CORRUPT_MESSAGE", 1)


def test_an_answer_takes_no_further_batch_once_much_was_inflated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = fake_broker()
    large = [packed_batch(1, [bytes(5 * MEBIBYTE)], base_offset=number) for number in range(4)]
    fetched(monkeypatch, broker, *large)
    response = get(broker, RECORDS)
    assert [record["offset"] for record in response.json()] == [0, 1]
    assert response.headers["tidemark-next-offset"] == "2"


def test_what_batches_inflate_to_counts_as_bytes_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = fake_broker(limits=HttpLimits(bytes_in_flight=8 * MEBIBYTE))
    fetched(monkeypatch, broker, packed_batch(1, [bytes(9 * MEBIBYTE)]))
    response = get(broker, RECORDS)
    assert (response.status, response.json()["error"]) == (503, "THROTTLING_QUOTA_EXCEEDED")


def test_record_batches_count_as_bytes_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = fake_broker(limits=HttpLimits(bytes_in_flight=8 * MEBIBYTE))
    fetched(monkeypatch, broker, packed_batch(0, [bytes(3 * MEBIBYTE)]))
    broker.app._admission.bytes_in_flight = 4 * MEBIBYTE  # of others
    response = get(broker, RECORDS, accept="application/vnd.kafka.recordbatch")
    assert response.status == 200
    broker.app._admission.bytes_in_flight = 6 * MEBIBYTE
    response = get(broker, RECORDS, accept="application/vnd.kafka.recordbatch")
    assert (response.status, response.json()["error"]) == (503, "THROTTLING_QUOTA_EXCEEDED")
    assert broker.app._admission.bytes_in_flight == 6 * MEBIBYTE
