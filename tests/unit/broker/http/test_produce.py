"""POST of records: where they go, what is answered, what is refused and how that is said."""

import asyncio
import base64
from typing import Any

import pytest
from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.http.record_placement import partition_for_key
from tidemark_broker.replication.results import ProduceResult
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
PARTITION = "/topics/orders/partitions/0"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def run(coroutine: Any) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(HANG_SECONDS):
            return await coroutine

    return asyncio.run(bounded())


def post(broker: FakeBroker, target: str, body: Any, *args: str, **headers: str) -> Response:
    response: Response = run(broker.client.post(target, body, *args, **headers))
    return response


def stored(broker: FakeBroker, partition: int = 0) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in broker.partitions.logs.get(partition, [])]


def test_json_records_are_stored_as_compact_json_and_answered_in_order() -> None:
    broker = fake_broker()
    records = [{"key": "k", "value": {"a": [1, 2.50]}}, {"value": "x"}, {"key": 1, "value": None}]
    response = post(broker, PARTITION, {"records": records})
    assert response.status == 200
    assert response.headers["content-type"] == "application/vnd.kafka.v2+json"
    assert response.json() == {"offsets": [{"partition": 0, "offset": i} for i in range(3)]}
    assert stored(broker) == [(b'"k"', b'{"a":[1,2.5]}'), (None, b'"x"'), (b"1", None)]


def test_numbers_keep_every_digit_and_only_white_space_goes() -> None:
    broker = fake_broker()
    body = b'{"records": [{"value": {"n" :  12345678901234567890123.10e5, "s": "a  b"} }]}'
    assert post(broker, PARTITION, body).status == 200
    assert stored(broker) == [(None, b'{"n":12345678901234567890123.10e5,"s":"a  b"}')]


def test_binary_records_keep_their_bytes_headers_and_timestamps() -> None:
    broker = fake_broker()
    records = [
        {
            "key": b64(b"\x00k"),
            "value": b64(b"\xff"),
            "headers": [{"key": "h", "value": b64(b"1")}, {"key": "n", "value": None}],
            "timestamp": 5,
        },
        {"value": b64(b"")},
    ]
    assert post(broker, PARTITION, {"records": records}, BINARY).status == 200
    first, second = broker.partitions.logs[0]
    assert (first.key, first.value, first.timestamp_ms) == (b"\x00k", b"\xff", 5)
    assert first.headers == (("h", b"1"), ("n", None))
    assert (second.key, second.value, second.timestamp_ms) == (None, b"", NOW_MS)


def test_plain_application_json_is_the_json_format() -> None:
    broker = fake_broker()
    body = {"records": [{"value": 1}]}
    assert post(broker, PARTITION, body, "application/json; charset=utf-8").status == 200
    assert stored(broker) == [(None, b"1")]


def test_records_of_a_topic_go_by_partition_then_key_and_keyless_ones_together() -> None:
    broker = fake_broker()
    records = [{"key": f"k{i}", "value": i} for i in range(20)]
    records += [{"value": "a", "partition": 2}, {"value": "b"}, {"value": "c"}]
    response = post(broker, "/topics/orders", {"records": records})
    placed = [entry["partition"] for entry in response.json()["offsets"]]
    assert placed[:20] == [partition_for_key(b'"k%d"' % i, 3) for i in range(20)]
    assert placed[20] == 2
    assert placed[21] == placed[22]
    for partition in range(3):  # one batch a partition, offsets in the request's order
        offsets = [e["offset"] for e in response.json()["offsets"] if e["partition"] == partition]
        assert offsets == list(range(len(offsets)))
        assert len(broker.partitions.batches[partition]) == 1


def test_keyless_requests_take_partitions_in_turn() -> None:
    broker = fake_broker()
    found = [
        post(broker, "/topics/orders", {"records": [{"value": i}]}).json()["offsets"][0][
            "partition"
        ]
        for i in range(6)
    ]
    assert found == [0, 1, 2, 0, 1, 2]


def test_keyless_records_stay_on_the_broker_that_leads_something() -> None:
    broker = fake_broker(leaders=(1, 0, 2))
    for _ in range(3):
        assert post(broker, "/topics/orders", {"records": [{"value": 1}]}).status == 200
    assert [produced.partition for produced in broker.partitions.produced] == [1, 1, 1]


def test_acks_and_timeout_reach_the_partition() -> None:
    broker = fake_broker()
    for query in ("", "?acks=1&timeout_ms=7", "?acks=-1", "?acks=0", "?acks=all"):
        post(broker, PARTITION + query, {"records": [{"value": 1}]})
    found = [(produced.acks, produced.timeout_ms) for produced in broker.partitions.produced]
    assert found == [(-1, 30_000), (1, 7), (-1, 30_000), (0, 30_000), (-1, 30_000)]


def test_without_acknowledgement_the_offset_is_unknown() -> None:
    broker = fake_broker()
    broker.partitions.reject_with = ProduceResult(ErrorCode.NONE)
    response = post(broker, PARTITION + "?acks=0", {"records": [{"value": 1}]})
    assert response.json() == {"offsets": [{"partition": 0, "offset": -1}]}


def test_a_large_request_becomes_several_batches_below_the_topics_limit() -> None:
    broker = fake_broker(config={"max.message.bytes": "2000"})
    response = post(broker, PARTITION, {"records": [{"value": "x" * 300} for _ in range(30)]})
    assert response.status == 200
    assert [entry["offset"] for entry in response.json()["offsets"]] == list(range(30))
    sizes = [len(data) for _, data in broker.partitions.batches[0]]
    assert len(sizes) > 1
    assert max(sizes) <= 2000


def test_a_record_above_the_topics_limit_is_refused_before_any_append() -> None:
    broker = fake_broker(config={"max.message.bytes": "1000"})
    response = post(broker, PARTITION, {"records": [{"value": "a"}, {"value": "x" * 2000}]})
    assert response.status == 413
    problem = response.json()
    assert (problem["error"], problem["outcome"]) == ("MESSAGE_TOO_LARGE", "not_written")
    assert broker.partitions.produced == []


# ---- leaders elsewhere


def test_a_partition_led_elsewhere_is_a_redirect_with_path_and_query() -> None:
    broker = fake_broker(leaders=(2, 0, 0))
    response = post(broker, PARTITION + "?acks=1", {"records": [{"value": 1}]})
    assert response.status == 307
    assert response.headers["location"] == (
        "http://broker-2.example:8080/topics/orders/partitions/0?acks=1"
    )
    problem = response.json()
    assert problem["error"] == "NOT_LEADER_OR_FOLLOWER"
    assert problem["errorCode"] == 6
    assert problem["retriable"] is True
    assert problem["outcome"] == "not_written"
    assert (problem["leaderId"], problem["leaderEpoch"]) == (2, 4)


def test_records_all_led_by_one_other_broker_are_a_redirect() -> None:
    broker = fake_broker(leaders=(1, 1, 0))
    records = [{"value": 1, "partition": 0}, {"value": 1, "partition": 1}]
    response = post(broker, "/topics/orders?acks=1", {"records": records})
    assert response.status == 307
    assert response.headers["location"] == "http://broker-1.example:8080/topics/orders?acks=1"
    assert broker.partitions.produced == []


def test_a_peer_that_forwards_is_told_and_never_redirected() -> None:
    broker = fake_broker(leaders=(1, 0, 0))
    records = [{"value": 1, "partition": 0}]
    response = post(broker, "/topics/orders", {"records": records}, tidemark_forwarded_by="2")
    assert response.status == 200
    entry = response.json()["offsets"][0]
    assert (entry["error"], entry["outcome"]) == ("NOT_LEADER_OR_FOLLOWER", "not_written")
    alone = post(broker, PARTITION, {"records": [{"value": 1}]}, tidemark_forwarded_by="2")
    assert alone.status == 503
    assert "location" not in alone.headers


def test_a_partition_without_leader_is_503_and_certainly_not_written() -> None:
    broker = fake_broker(leaders=(-1, 0, 0))
    response = post(broker, PARTITION, {"records": [{"value": 1}]})
    assert (response.status, response.headers["retry-after"]) == (503, "1")
    problem = response.json()
    assert (problem["error"], problem["outcome"]) == ("LEADER_NOT_AVAILABLE", "not_written")


def test_one_failed_partition_of_several_is_told_by_record() -> None:
    broker = fake_broker(leaders=(0, -1, 0))
    records = [{"value": i, "partition": p} for i, p in enumerate((0, 1, 9, 2))]
    response = post(broker, "/topics/orders", {"records": records})
    assert response.status == 200
    first, second, third, fourth = response.json()["offsets"]
    assert first == {"partition": 0, "offset": 0}
    assert (second["error"], second["error_code"], second["outcome"]) == (
        "LEADER_NOT_AVAILABLE", 5, "not_written",
    )  # fmt: skip
    assert (third["error"], third["error_code"]) == ("UNKNOWN_TOPIC_OR_PARTITION", 3)
    assert fourth == {"partition": 2, "offset": 0}


# ---- refusals of the partition and what they say of the outcome


@pytest.mark.parametrize(
    ("error", "status", "outcome", "has_retry_after"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, 503, "not_written", True),
        (ErrorCode.REQUEST_TIMED_OUT, 504, "unknown", False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 503, "not_written", True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 404, "not_written", False),
        (ErrorCode.MESSAGE_TOO_LARGE, 413, "not_written", False),
        (ErrorCode.CORRUPT_MESSAGE, 500, "not_written", False),
        (ErrorCode.KAFKA_STORAGE_ERROR, 500, "unknown", False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 500, "unknown", False),
        (ErrorCode.STALE_BROKER_EPOCH, 500, "unknown", False),
    ],
)
@pytest.mark.parametrize("target", [PARTITION, "/topics/orders"])
def test_a_refusal_names_kafkas_error_and_the_outcome(
    error: ErrorCode, status: int, outcome: str, has_retry_after: bool, target: str
) -> None:
    broker = fake_broker()
    broker.partitions.reject_with = ProduceResult(error, message="because")
    response = post(broker, target, {"records": [{"value": 1}]})
    assert response.status == status
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert (problem["error"], problem["errorCode"]) == (error.name, int(error))
    assert (problem["status"], problem["outcome"]) == (status, outcome)
    assert problem["instance"] == target
    assert ("retry-after" in response.headers) is has_retry_after


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
)
def test_a_failure_after_the_append_is_unknown_and_invites_no_retry(error: ErrorCode) -> None:
    async def scenario() -> Response:
        broker = fake_broker(leaders=(0, 1, 1))
        broker.partitions.hold_acks = True
        request = asyncio.create_task(broker.client.post(PARTITION, {"records": [{"value": 1}]}))
        await eventually(lambda: bool(broker.partitions.produced))
        await asyncio.sleep(0)
        broker.partitions.produced[0].done(ProduceResult(error))
        return await request

    response = run(scenario())
    assert response.json()["outcome"] == "unknown"
    assert response.status not in (307, 503)
    assert "retry-after" not in response.headers
    assert "location" not in response.headers


def test_an_acknowledgement_that_never_comes_ends_as_unknown_after_the_timeout() -> None:
    broker = fake_broker(limits=HttpLimits(response_grace_seconds=0.01))
    broker.partitions.hold_acks = True
    response = post(broker, PARTITION + "?timeout_ms=10", {"records": [{"value": 1}]})
    assert response.status == 504
    problem = response.json()
    assert (problem["error"], problem["outcome"]) == ("REQUEST_TIMED_OUT", "unknown")


def test_acknowledgements_reach_each_their_own_request_in_any_order() -> None:
    async def scenario() -> list[Any]:
        broker = fake_broker()
        broker.partitions.hold_acks = True
        requests = [
            asyncio.create_task(broker.client.post(PARTITION, {"records": [{"value": i}]}))
            for i in range(3)
        ]
        await eventually(lambda: len(broker.partitions.produced) == 3)
        for offset in (2, 0, 1):
            result = ProduceResult(ErrorCode.NONE, Offset(offset))
            broker.partitions.produced[offset].done(result)
            broker.partitions.produced[offset].done(result)  # a second call must change nothing
        return [(await request).json()["offsets"][0]["offset"] for request in requests]

    assert run(scenario()) == [0, 1, 2]


# ---- malformed requests: nothing is written, the place is named


@pytest.mark.parametrize(
    ("body", "status", "place"),
    [
        (b"", 400, "truncated"),
        (b"not json", 400, "byte"),
        (b'{"records":[{"value":1}]', 400, "truncated"),
        (b'{"records":[{"value":"\xff\xfe"}]}', 400, "utf-8"),
        (b'{"records":[{"value":NaN}]}', 400, "byte"),
        (b"[]", 422, "object"),
        (b"{}", 422, "records"),
        (b'{"records":[]}', 422, "1 to 10000"),
        (b'{"records":{}}', 422, "$.records"),
        (b'{"records":[1]}', 422, "$.records[0]"),
        (b'{"records":[{"value":1},{"key":1}]}', 422, "$.records[1]"),
        (b'{"records":[{"valu":1}]}', 422, "valu"),
        (b'{"records":[{"value":1}],"x":1}', 422, "x"),
        (b'{"records":[{"value":1,"partition":-1}]}', 422, "$.records[0].partition"),
        (b'{"records":[{"value":1,"partition":1}]}', 422, "$.records[0].partition"),
        (b'{"records":[{"value":1,"partition":"0"}]}', 422, "$.records[0].partition"),
        (b'{"records":[{"value":1,"timestamp":-1}]}', 422, "$.records[0].timestamp"),
        (b'{"records":[{"value":1,"headers":[{"value":""}]}]}', 422, "$.records[0].headers[0]"),
        (b'{"records":[{"value":1,"headers":[{"key":"a","value":"?"}]}]}', 422, "base64"),
        (b'{"records":[{"value":' + b"[" * 65 + b"]" * 65 + b"}]}", 422, "64 levels"),
        (b'{"records":[{"value":' + b"[" * 5000 + b"]" * 5000 + b"}]}", 422, "64 levels"),
    ],
)
def test_a_malformed_body_is_refused_with_its_place(body: bytes, status: int, place: str) -> None:
    broker = fake_broker()
    response = post(broker, PARTITION, body)
    problem = response.json()
    assert (response.status, problem["outcome"]) == (status, "not_written")
    assert place in problem["detail"]
    assert broker.partitions.produced == []


def test_nesting_up_to_the_limit_is_taken_and_brackets_in_texts_do_not_count() -> None:
    broker = fake_broker()
    deep = b"[" * 64 + b"]" * 64
    wide = b"[" + b",".join([b'{"a":[]}'] * 200) + b"]"
    texts = b'["' + b"[{" * 100 + b'\\""]'
    for value in (deep, wide, texts):
        assert post(broker, PARTITION, b'{"records":[{"value":' + value + b"}]}").status == 200
    assert [value for _, value in stored(broker)] == [deep, wide, texts]


@pytest.mark.parametrize("value", ['"?"', '"aGk"', '"a GkA"', "5", '"-_=="'])
def test_binary_values_must_be_base64(value: str) -> None:
    response = post(
        fake_broker(), PARTITION, f'{{"records":[{{"value":{value}}}]}}'.encode(), BINARY
    )
    assert response.status == 422
    assert "$.records[0].value" in response.json()["detail"]


@pytest.mark.parametrize(
    "query",
    [
        "acks=2", "acks=", "acks=ALL", "acks=1&acks=1", "ack=1", "timeout_ms=-1", "timeout_ms=1.5",
        "timeout_ms=120001", "timeout_ms=9999999999999999999999", "timeout_ms=%D9%A1", "acks",
        "&&", "x" * 3000,
    ],
)  # fmt: skip
def test_a_malformed_query_is_400(query: str) -> None:
    response = post(fake_broker(), f"{PARTITION}?{query}", {"records": [{"value": 1}]})
    assert response.status == 400
    assert response.json()["outcome"] == "not_written"


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/vnd.kafka.avro.v2+json"])
def test_another_content_type_is_415_and_says_which_are_known(content_type: str) -> None:
    response = post(fake_broker(), PARTITION, {"records": [{"value": 1}]}, content_type)
    assert response.status == 415
    assert "application/vnd.kafka.json.v2+json" in response.json()["detail"]


def test_a_compressed_body_is_415() -> None:
    response = post(fake_broker(), PARTITION, b"\x1f\x8b", content_encoding="gzip")
    assert response.status == 415


@pytest.mark.parametrize(
    "target",
    [
        "/topics/nope",
        "/topics/nope/partitions/0",
        "/topics/orders/partitions/3",
        "/topics/orders/partitions/-1",
        "/topics/orders/partitions/x",
        "/topics/orders/partitions/99999999999999999999",
        "/topics/orders/partitions/",
        "/topics/",
    ],
)
def test_an_unknown_topic_or_partition_is_404(target: str) -> None:
    response = post(fake_broker(), target, {"records": [{"value": 1}]})
    assert response.status == 404
    problem = response.json()
    assert (problem["error"], problem["outcome"]) == ("UNKNOWN_TOPIC_OR_PARTITION", "not_written")
