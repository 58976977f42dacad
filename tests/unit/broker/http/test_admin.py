"""Topics, brokers, offsets, replicas, health: shapes that clients and the controller rely on."""

import asyncio
import hashlib
import re
from typing import Any

import pytest
from tidemark_broker.http import schemas
from tidemark_broker.kafka_wire.records.record_batch import build_batch
from tidemark_broker.metadata.metadata_cache import MetadataCache
from tidemark_protocol.ids import BrokerId, Offset

from tests.support.waiting import HANG_SECONDS
from tests.unit.broker.http.fake_broker import (
    NOW_MS,
    ORDERS_ID,
    FakeBroker,
    Response,
    fake_broker,
)


def get(broker: FakeBroker, target: str, method: str = "GET") -> Response:
    async def bounded() -> Any:
        async with asyncio.timeout(HANG_SECONDS):
            return await broker.client.request(method, target)

    response = asyncio.run(bounded())
    assert isinstance(response, Response)
    return response


def test_health_names_the_life_that_answers() -> None:
    response = get(fake_broker(), "/healthz")
    named = {"broker_id": 0, "incarnation": "5f3c", "pool": "shop/default"}
    assert response.json() == named | {"brokerId": 0}


def test_readiness_says_why_not() -> None:
    assert get(fake_broker(), "/readyz").status == 200
    response = get(fake_broker(is_ready=(False, "no session with the controller")), "/readyz")
    assert response.status == 503
    assert response.json() == {"ready": False, "reason": "no session with the controller"}


def test_topics_and_one_topic() -> None:
    broker = fake_broker(leaders=(0, -1), config={"min.insync.replicas": "2"})
    assert get(broker, "/topics").json() == {"topics": ["orders"]}
    topic = get(broker, "/topics/orders").json()
    assert (topic["name"], topic["topic_id"], topic["partition_count"]) == ("orders", ORDERS_ID, 2)
    assert topic["config"] == {"min.insync.replicas": "2"}
    assert topic["partitions"][0] == {
        "partition": 0,
        "leader": 0,
        "leader_epoch": 4,
        "partition_epoch": 7,
        "replicas": [0, 1, 2],
        "in_sync_replicas": [0, 1, 2],
        "eligible_leaders": [],
        "min_insync_replicas": 2,
    }
    assert topic["partitions"][1]["leader"] == -1


def test_a_partition_whose_state_is_hidden_is_listed_without_a_leader() -> None:
    broker = fake_broker(leaders=(0,), partition_count=2)
    topic = get(broker, "/topics/orders").json()
    assert topic["partition_count"] == len(topic["partitions"]) == 2
    assert topic["partitions"][1] == {
        "partition": 1,
        "leader": -1,
        "leader_epoch": -1,
        "partition_epoch": -1,
        "replicas": [],
        "in_sync_replicas": [],
        "eligible_leaders": [],
        "min_insync_replicas": -1,
    }


def test_brokers_with_their_addresses() -> None:
    body = get(fake_broker(), "/brokers").json()
    assert body["pool"] == "shop/default"
    assert [broker["broker_id"] for broker in body["brokers"]] == [0, 1, 2]
    assert body["brokers"][1]["http_url"] == "http://broker-1.example:8080"


def test_offsets_of_a_partition() -> None:
    broker = fake_broker()
    broker.partitions.append(0, build_batch([(None, b"a", ())], timestamp_ms=NOW_MS))
    assert get(broker, "/topics/orders/partitions/0/offsets").json() == {
        "beginning_offset": 0,
        "end_offset": 1,
        "log_end_offset": 1,
        "leader_epoch": 4,
    }


def test_offsets_are_the_leaders_to_say() -> None:
    response = get(fake_broker(leaders=(1,)), "/topics/orders/partitions/0/offsets")
    assert response.status == 307
    assert response.headers["location"] == (
        "http://broker-1.example:8080/topics/orders/partitions/0/offsets"
    )


def test_a_replica_tells_its_own_digest_whatever_its_role() -> None:
    broker = fake_broker(leaders=(1,))
    broker.partitions.append(0, build_batch([(None, b"a", ())], timestamp_ms=NOW_MS))
    replica = get(broker, "/topics/orders/partitions/0/replica?to_offset=1").json()
    expected = hashlib.sha256(broker.partitions.batches[0][0][1]).hexdigest()
    assert (replica["broker_id"], replica["role"]) == (0, "follower")
    assert (replica["to_offset"], replica["sha256"]) == (1, expected)
    assert get(broker, "/topics/orders/partitions/0/replica").json()["sha256"] is None


def test_leader_says_how_far_its_followers_are() -> None:
    broker = fake_broker()
    broker.partitions.append(0, build_batch([(None, b"a", ())], timestamp_ms=NOW_MS))
    assert get(broker, "/topics/orders/partitions/0/replica").json()["followers"] == []
    broker.partitions.follower_ends = ((BrokerId(1), Offset(3)), (BrokerId(2), Offset(-1)))
    assert get(broker, "/topics/orders/partitions/0/replica").json()["followers"] == [
        {"broker_id": 1, "log_end_offset": 3},
        {"broker_id": 2, "log_end_offset": -1},
    ]


def test_no_replica_here_is_404() -> None:
    response = get(fake_broker(), "/topics/orders/partitions/0/replica")
    assert (response.status, response.json()["error"]) == (404, "REPLICA_NOT_AVAILABLE")


def test_what_a_path_does_not_do_is_answered_with_all_that_it_does() -> None:
    """RFC 9110 15.5.6, of every path and by what the document says."""
    broker = fake_broker()
    places = {"topic": "orders", "partition": "0", "group": "g", "name": "c"}
    for template, operations in get(broker, "/openapi.json").json()["paths"].items():
        path = template.format(**places)
        documented = {method.upper() for method in operations}
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} - documented:
            refused = get(broker, path, method)
            assert (refused.status, refused.headers.get("allow")) == (
                405,
                ", ".join(sorted(documented)),
            ), (method, path)


@pytest.mark.parametrize("target", ["/topics", "/brokers", "/topics/orders"])
def test_a_broker_without_metadata_does_not_deny_that_topics_exist(target: str) -> None:
    broker = fake_broker()
    broker.partitions.metadata = MetadataCache()
    response = get(broker, target)
    assert (response.status, response.json()["error"]) == (503, "LEADER_NOT_AVAILABLE")


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/topics/nope", 404),
        ("GET", "/topics/nope/partitions/0/offsets", 404),
        ("GET", "/topics/orders/partitions/9/replica", 404),
        ("GET", "/topics/orders/partitions/x/offsets", 404),
        ("GET", "/topics/orders/partitions/0/replica?to_offset=-1", 400),
        ("GET", "/topics/orders/partitions/0/replica?to_offset=x", 400),
        ("GET", "/nope", 404),
        ("DELETE", "/topics/orders", 405),
        ("PUT", "/topics/orders/partitions/0/records", 405),
        ("POST", "/healthz", 405),
    ],
)
def test_whatever_is_refused_is_a_problem(method: str, target: str, status: int) -> None:
    response = get(fake_broker(), target, method)
    assert response.status == status
    assert response.headers["content-type"] == "application/problem+json"
    problem = schemas.ProblemDocument.model_validate(response.json())
    assert problem.status == status


def test_every_route_is_documented() -> None:
    schema = get(fake_broker(), "/openapi.json").json()
    assert schema["openapi"].startswith("3.1")
    found = {(method, path) for path, item in schema["paths"].items() for method in item}
    partition = "/topics/{topic}/partitions/{partition}"
    consumer = "/consumers/{group}/instances/{name}"
    moves = ("positions", "positions/beginning", "positions/end")
    posted = ("subscription", "assignments", "offsets", *moves)
    assert found == {
        ("post", "/consumers/{group}"), ("delete", consumer), ("get", f"{consumer}/records"),
        ("get", f"{consumer}/subscription"), ("delete", f"{consumer}/subscription"),
        ("get", f"{consumer}/assignments"), ("get", f"{consumer}/offsets"),
        ("get", "/topics/{topic}/partitions"), ("get", partition),
        *(("post", f"{consumer}/{path}") for path in posted),
        ("get", "/topics"), ("get", "/topics/{topic}"), ("post", "/topics/{topic}"),
        ("post", partition), ("get", f"{partition}/records"), ("get", f"{partition}/offsets"),
        ("get", f"{partition}/replica"), ("get", "/brokers"), ("get", "/groups"),
        ("get", "/healthz"), ("get", "/readyz"), ("get", "/metrics"), ("post", "/producers"),
    }  # fmt: skip
    produce = schema["paths"][partition]["post"]
    assert set(produce["requestBody"]["content"]) == {
        "application/vnd.kafka.json.v2+json",
        "application/vnd.kafka.binary.v2+json",
        "application/json",
        "application/vnd.kafka.recordbatch",
    }
    assert "application/problem+json" in produce["responses"]["503"]["content"]
    assert "ProblemDocument" in schema["components"]["schemas"]


def test_hot_answers_are_what_the_document_says() -> None:
    broker = fake_broker()

    async def scenario() -> tuple[Response, Response, Response]:
        target = "/topics/orders/partitions/0"
        good = await broker.client.post(target, {"records": [{"value": 1, "key": "k"}]})
        bad = await broker.client.post(target, {"records": []})
        return good, bad, await broker.client.get(f"{target}/records")

    good, bad, records = asyncio.run(scenario())
    schemas.ProduceResponseSchema.model_validate(good.json())
    schemas.ProblemDocument.model_validate(bad.json())
    for record in records.json():
        assert set(record) == set(schemas.FetchedDocument.model_fields)


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/topics", "/topics/orders/partitions/0/offsets", "/metrics"]
)
def test_head_is_answered_as_get_is(path: str) -> None:
    head, read = get(fake_broker(), path, "HEAD"), get(fake_broker(), path)
    assert (head.status, head.headers["content-type"]) == (200, read.headers["content-type"])


@pytest.mark.parametrize(
    "path", ["/topics/orders/partitions/0/records", "/consumers/g/instances/c/records"]
)
def test_head_reads_no_records(path: str) -> None:
    assert get(fake_broker(), path, "HEAD").status == 405


def test_encoded_slash_matches_no_route() -> None:
    broker = fake_broker()
    path, raw_path = "/consumers/g/instances/c/records", "/consumers/g/instances%2Fc/records"
    response = asyncio.run(broker.client.request("GET", path, raw_path=raw_path))
    assert response is not None and (response.status, response.json()["status"]) == (404, 404)


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_browser_is_told_what_this_is_and_where_to_go_on(path: str) -> None:
    page = get(fake_broker(), path)
    assert page.headers["content-type"].startswith("text/html")
    text = page.body.decode()
    assert "Tidemark broker 0" in text and "shop/default" in text
    sessions = re.findall('href="([^"]*)"', text)
    assert {"/openapi.json", "/metrics"} < set(sessions)
    assert {get(fake_broker(), link.partition("?")[0]).status for link in sessions} == {200}
    assert "<script" not in text and "http://" not in text


def test_partitions_are_told_as_the_rest_proxy_does() -> None:
    broker = fake_broker(leaders=(1, -1), partition_count=3)
    placed = [{"broker": number, "leader": number == 1, "in_sync": True} for number in range(3)]
    first = {"partition": 0, "leader": 1, "replicas": placed}
    assert get(broker, "/topics/orders/partitions/0").json() == first
    found = get(broker, "/topics/orders/partitions").json()
    assert found[0] == first
    assert [entry["leader"] for entry in found] == [1, -1, -1]
    assert get(broker, "/topics/orders/partitions/7").status == 404
    assert get(broker, "/topics/nonesuch/partitions").status == 404


@pytest.mark.parametrize(
    ("path", "same_as"),
    [("/healthy", "/healthz"), ("/ready", "/readyz"), ("/openapi", "/openapi.json")],
)
def test_the_bridges_names_of_pages_are_known(path: str, same_as: str) -> None:
    assert get(fake_broker(), path).json() == get(fake_broker(), same_as).json()


@pytest.mark.parametrize(
    ("path", "is_retriable"),
    [
        ("/topics/orders/partitions/7/records", False),
        ("/topics/orders/partitions/x/offsets", False),
        ("/topics/orders/partitions/7/replica", False),
        ("/topics/nonesuch/partitions/0/records", True),  # it may have been made a moment ago
        ("/topics/nonesuch", True),
    ],
)
def test_what_another_try_does_not_find_either_is_not_retriable(
    path: str, is_retriable: bool
) -> None:
    found = get(fake_broker(), path).json()
    assert (found["error"], found["retriable"]) == ("UNKNOWN_TOPIC_OR_PARTITION", is_retriable)
