"""The event log over HTTP: pages, filters, answers to why, and refusals."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp.test_utils import TestClient, TestServer
from tidemark_operator.controller.http_api import create_app
from tidemark_protocol.ids import ControllerEpoch

from tests.support.controller_harness import POOL, Harness
from tests.support.waiting import HANG_SECONDS

Get = Callable[..., Awaitable[tuple[int, Any]]]
Scenario = Callable[[Harness, Get], Awaitable[None]]


def run(scenario: Scenario) -> None:
    async def served() -> None:
        harness = await Harness().start(3)
        async with TestClient(TestServer(create_app(harness.service))) as client:

            async def get(path: str, **query: object) -> tuple[int, Any]:
                response = await client.get(path, params={k: str(v) for k, v in query.items()})
                return response.status, await response.json()

            await scenario(harness, get)

    asyncio.run(asyncio.wait_for(served(), HANG_SECONDS))


async def kill_the_leader(harness: Harness) -> int:
    await harness.create()
    leader = harness.partition().leader
    broker = next(each for each in harness.brokers if each.broker_id == leader)
    await harness.kill(broker)
    return leader


def test_a_kill_is_a_suspicion_a_fence_and_an_election_in_this_order() -> None:
    async def scenario(harness: Harness, get: Get) -> None:
        leader = await kill_the_leader(harness)
        status, page = await get("/v1/events")
        assert (status, page["pool"], page["term"]) == (200, POOL, harness.service.controller_epoch)
        numbers = [event["number"] for event in page["events"]]
        assert numbers == list(range(page["oldest"], page["newest"] + 1))
        kinds = [event["kind"] for event in page["events"]]
        assert kinds[-3:] == ["BrokerSuspected", "BrokerFenced", "LeaderElected"]
        election = page["events"][-1]
        assert (election["topic"], election["partition"]) == ("orders", 0)
        considered = {each["brokerId"]: each for each in election["details"]["considered"]}
        assert considered[leader]["standing"] == "fenced"
        assert f"broker {leader} passed over: fenced" in election["sentence"]

    run(scenario)


def test_a_take_over_is_the_first_event_of_its_term() -> None:
    async def scenario(harness: Harness, get: Get) -> None:
        await harness.create()
        await harness.service.load(ControllerEpoch(2))
        _, page = await get("/v1/events")
        (event,) = page["events"]
        assert (page["term"], event["number"], event["kind"]) == (2, 1, "ControllerTookOver")
        assert event["details"] == {"controllerEpoch": 2, "brokers": 3, "partitions": 1}
        _, why = await get("/v1/why", topic="orders")
        assert "since before the events that this controller keeps" in why["answers"][0]["answer"]

    run(scenario)


def test_events_are_read_in_pages_and_by_topic_partition_and_broker() -> None:
    async def scenario(harness: Harness, get: Get) -> None:
        leader = await kill_the_leader(harness)
        _, whole = await get("/v1/events")
        _, first = await get("/v1/events", limit=2)
        _, rest = await get("/v1/events", after=first["events"][-1]["number"])
        assert first["events"] + rest["events"] == whole["events"]
        _, of_topic = await get("/v1/events", topic="orders", partition=0)
        assert {event["topic"] for event in of_topic["events"]} == {"orders"}
        _, of_broker = await get("/v1/events", broker=leader)
        assert {event["brokerId"] for event in of_broker["events"]} == {leader}
        _, none = await get("/v1/events", topic="other")
        assert (none["events"], none["newest"]) == ([], whole["newest"])

    run(scenario)


def test_why_explains_the_partition_by_its_latest_election() -> None:
    async def scenario(harness: Harness, get: Get) -> None:
        leader = await kill_the_leader(harness)
        status, why = await get("/v1/why", topic="orders", partition=0, pool=POOL)
        assert (status, why["leader"]) == (200, harness.partition().leader)
        answers = {each["question"]: each["answer"] for each in why["answers"]}
        assert "chosen" in answers[f"Why is broker {why['leader']} the leader?"]
        assert "is fenced" in answers[f"Why is broker {leader} not in sync?"]
        assert why["events"][0]["kind"] == "LeaderElected"

    run(scenario)


def test_what_is_not_there_is_named_with_what_is() -> None:
    async def scenario(harness: Harness, get: Get) -> None:
        await harness.create()
        assert await get("/v1/why", topic="other") == (
            404,
            {"problems": [f"topic 'other' not found in pool {POOL}"]},
        )
        assert await get("/v1/why", topic="orders", partition=7) == (
            404,
            {"problems": ["partition orders-7 not found: expected 0 to 0"]},
        )
        status, body = await get("/v1/events", pool="x" * 3000)
        assert status == 404 and body["problems"][0].startswith(f"pool: expected one of {POOL};")
        assert len(body["problems"][0]) < 500
        for text in ("-1", "a", "²", "9" * 17):
            status, body = await get("/v1/events", after=text)
            assert status == 400 and body["problems"][0].startswith("after: expected a number")

    run(scenario)


def test_a_standby_names_the_leader() -> None:
    async def scenario(harness: Harness, get: Get) -> None:
        await harness.service.step_down()
        harness.service.set_leader_address("10.0.0.7:8070")
        assert await get("/v1/events") == (
            503,
            {"problems": ["this operator is on standby: ask 10.0.0.7:8070"]},
        )

    run(scenario)
