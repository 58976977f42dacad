"""HTTP clients are told the addresses of the listener that they came in by."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from urllib.request import urlopen

import pytest
from tidemark_broker.http.server import serve
from tidemark_protocol.controller_messages import ListenerAddress
from tidemark_protocol.ids import BrokerId

from tests.support.waiting import HANG_SECONDS
from tests.unit.broker.http.consumers.test_consumers import ForgottenConsumer
from tests.unit.broker.http.fake_broker import FakeBroker, Response, fake_broker

OUTSIDE = "outside"
ADDRESSES = (
    ListenerAddress(OUTSIDE, BrokerId(0), "node.example", 30000),
    ListenerAddress(OUTSIDE, BrokerId(1), "2001:db8::1", 30001),
)
RECORDS = {"records": [{"value": 1, "partition": 0}]}


def came_by(listener: str, leader: int = 1, broker_id: int = 0) -> FakeBroker:
    broker = fake_broker(
        (leader,), broker_id=broker_id, addresses=ADDRESSES, new_consumer=ForgottenConsumer
    )
    broker.client.listener = listener
    return broker


def requested(broker: FakeBroker, ask: Callable[[FakeBroker], Awaitable[Response]]) -> Response:
    async def bounded() -> Response:
        async with asyncio.timeout(HANG_SECONDS):
            return await ask(broker)

    return asyncio.run(bounded())


SENT_ELSEWHERE = [
    lambda broker: broker.client.get("/topics/orders/partitions/0/records?offset=0"),
    lambda broker: broker.client.get("/topics/orders/partitions/0/offsets"),
    lambda broker: broker.client.post("/topics/orders/partitions/0", RECORDS),
    lambda broker: broker.client.post("/topics/orders", RECORDS),
]


@pytest.mark.parametrize("ask", SENT_ELSEWHERE)
def test_a_leader_is_named_at_the_listener_that_was_asked(
    ask: Callable[[FakeBroker], Awaitable[Response]],
) -> None:
    inside, outside = requested(came_by(""), ask), requested(came_by(OUTSIDE), ask)
    assert (inside.status, outside.status) == (307, 307)
    assert inside.headers["location"].startswith("http://broker-1.example:8080/topics/orders")
    assert outside.headers["location"].startswith("http://[2001:db8::1]:30001/topics/orders")


@pytest.mark.parametrize("ask", SENT_ELSEWHERE)
def test_a_leader_without_an_address_there_is_worth_another_try(
    ask: Callable[[FakeBroker], Awaitable[Response]],
) -> None:
    found = requested(came_by(OUTSIDE, leader=2), ask)
    assert (found.status, found.json()["error"]) == (503, "LISTENER_NOT_FOUND")
    assert (found.headers["retry-after"], found.json()["retriable"]) == ("1", True)
    assert found.json().get("outcome", "not_written") == "not_written"
    assert "location" not in found.headers


def test_brokers_are_those_with_an_address_there() -> None:
    def urls(broker: FakeBroker) -> dict[int, str]:
        body = requested(broker, lambda each: each.client.get("/brokers")).json()
        return {each["broker_id"]: each["http_url"] for each in body["brokers"]}

    assert urls(came_by(OUTSIDE)) == {
        0: "http://node.example:30000",
        1: "http://[2001:db8::1]:30001",
    }
    assert sorted(urls(came_by(""))) == [0, 1, 2]


def test_a_consumer_lives_at_the_address_by_which_it_was_made() -> None:
    def base_uri(broker: FakeBroker) -> str:
        made = requested(broker, lambda each: each.client.post("/consumers/g", {"name": "c"}))
        return str(made.json()["base_uri"])

    assert base_uri(came_by(OUTSIDE)) == "http://node.example:30000/consumers/g/instances/c"
    assert base_uri(came_by("")) == "http://broker-0.example:8080/consumers/g/instances/c"


def test_a_connection_knows_its_listener_by_the_port_that_it_came_to() -> None:
    def urls(port: int) -> set[str]:
        with urlopen(f"http://127.0.0.1:{port}/brokers", timeout=HANG_SECONDS) as response:
            return {each["http_url"] for each in json.load(response)["brokers"]}

    async def scenario() -> None:
        stop = asyncio.Event()
        inside: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        with socket.create_server(("127.0.0.1", 0)) as free:
            outside = int(free.getsockname()[1])
        async with asyncio.timeout(HANG_SECONDS), asyncio.TaskGroup() as group:
            group.create_task(
                serve(
                    came_by("").app,
                    host="127.0.0.1",
                    port=0,
                    stop=stop,
                    listeners={outside: OUTSIDE},
                    on_listening=inside.set_result,
                )
            )
            try:
                unnamed = await asyncio.to_thread(urls, await inside)
                named = await asyncio.to_thread(urls, outside)
            finally:
                stop.set()
        assert named == {"http://node.example:30000", "http://[2001:db8::1]:30001"}
        assert "http://broker-0.example:8080" in unnamed

    asyncio.run(scenario())
