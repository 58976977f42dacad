"""Whatever bytes come in: a success that stored exactly these records, or a problem and nothing."""

import asyncio
import base64
import json
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.http.produce_bodies import is_deeper_than
from tidemark_broker.http.schemas import ProblemDocument

from tests.unit.broker.http.fake_broker import Response, fake_broker

BINARY = "application/vnd.kafka.binary.v2+json"
JSON = "application/vnd.kafka.json.v2+json"
TARGET = "/topics/orders/partitions/0"
LIMITS = HttpLimits(body_bytes=4096, records=20)

finite_numbers = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
odd_records = st.fixed_dictionaries(
    {},
    optional={
        "value": json_values,
        "key": json_values,
        "partition": json_values | st.integers(-2, 4),
        "headers": json_values | st.lists(st.fixed_dictionaries({"key": st.text()})),
        "timestamp": json_values,
    },
)
odd_bodies = st.binary(max_size=200) | st.builds(
    lambda body: json.dumps(body).encode(),
    json_values | st.fixed_dictionaries({"records": st.lists(odd_records, max_size=4)}),
)


def send(body: bytes, content_type: str) -> tuple[Response, list[Any]]:
    broker = fake_broker(limits=LIMITS)
    response = asyncio.run(broker.client.post(TARGET, body, content_type))
    return response, broker.partitions.logs.get(0, [])


@settings(max_examples=80)
@given(odd_bodies, st.sampled_from([BINARY, JSON]))
def test_any_body_is_stored_whole_or_refused_whole(body: bytes, content_type: str) -> None:
    response, log = send(body, content_type)
    if response.status == 200:
        assert len(log) == len(json.loads(body)["records"]) == len(response.json()["offsets"])
    else:
        assert response.status in (400, 413, 422)
        assert ProblemDocument.model_validate(response.json()).outcome == "not_written"
        assert log == []


@settings(max_examples=80)
@given(st.lists(st.tuples(json_values, json_values), min_size=1, max_size=5))
def test_json_records_come_back_as_they_were_sent(pairs: list[tuple[Any, Any]]) -> None:
    body = {"records": [{"key": key, "value": value} for key, value in pairs]}

    async def scenario() -> Response:
        broker = fake_broker()
        posted = await broker.client.post(TARGET, body, JSON)
        assert posted.status == 200, posted.body
        return await broker.client.get(f"{TARGET}/records", accept=JSON)

    fetched = asyncio.run(scenario()).json()
    assert [(record["key"], record["value"]) for record in fetched] == pairs


@settings(max_examples=80)
@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=50),
            st.none() | st.binary(max_size=50),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
            st.none() | st.integers(0, 2**40),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_binary_records_come_back_as_they_were_sent(records: list[Any]) -> None:
    def b64(data: bytes | None) -> str | None:
        return None if data is None else base64.b64encode(data).decode()

    body = {
        "records": [
            {
                "key": b64(key),
                "value": b64(value),
                "headers": [{"key": name, "value": b64(data)} for name, data in headers],
                "timestamp": timestamp,
            }
            for key, value, headers, timestamp in records
        ]
    }

    async def scenario() -> Response:
        broker = fake_broker()
        posted = await broker.client.post(TARGET, body, BINARY)
        assert posted.status == 200, posted.body
        return await broker.client.get(f"{TARGET}/records")

    fetched = asyncio.run(scenario()).json()
    expected = [(entry["key"], entry["value"], entry["headers"]) for entry in body["records"]]
    assert [(entry["key"], entry["value"], entry["headers"]) for entry in fetched] == expected


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


@settings(max_examples=200)
@given(json_values, st.integers(1, 4))
def test_depth_is_judged_as_a_parser_would(value: Any, most: int) -> None:
    assert is_deeper_than(msgspec.json.encode(value), most) is (depth_of(value) > most)


@settings(max_examples=50)
@given(
    st.sampled_from(["GET", "POST", "PUT", "HEAD"]),
    st.lists(
        st.sampled_from(["topics", "orders", "partitions", "0", "7", "records", "é", "", ".."])
    ),
    st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30),
)
def test_any_target_gets_an_answer(method: str, parts: list[str], query: str) -> None:
    broker = fake_broker()
    target = "/" + "/".join(parts) + "?" + query
    response = asyncio.run(broker.client.request(method, target))
    assert response is not None
    assert response.status in (200, 307, 400, 404, 405, 415)
