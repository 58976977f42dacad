"""Actions exist only where they are on, come only from the page itself, and are recorded."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from tidemark_operator.api.kinds import BROKER_POOL
from tidemark_operator.controller.core.event_texts import kind_of, sentence_of
from tidemark_operator.manager.web.actions import MAX_BODY_BYTES, add_action_routes
from tidemark_operator.manager.web.forward import ForwardToLeader
from tidemark_operator.manager.web.live_pools import LivePools
from tidemark_operator.manager.web.routes import add_web_routes
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.token_file import TokenFile

from tests.support.controller_harness import POOL, Harness, evaluate
from tests.support.waiting import run

Client = TestClient[web.Request, web.Application]
OURS = {"X-Tidemark-Action": "1"}
ACTIONS = ("elect", "drain", "kill")


class Killer:
    def __init__(self) -> None:
        self.killed: list[tuple[str, BrokerId]] = []
        self.runs = True

    async def kill(self, pool: str, broker_id: BrokerId) -> bool:
        self.killed.append((pool, broker_id))
        return self.runs


class Rig:
    def __init__(self, harness: Harness, client: Client, killer: Killer) -> None:
        self.harness = harness
        self.client = client
        self.killer = killer

    async def act(self, action: str, headers: Any = OURS, **body: Any) -> tuple[int, str]:
        path = f"/v1/actions/{action}"
        async with self.client.post(path, json=body, headers=headers) as response:
            answer = await response.json()
            return response.status, answer.get("done") or answer["problem"]

    def events(self) -> list[str]:
        events = self.harness.service.timeline(POOL).after(0, 1000)
        return [sentence_of(each) for each in events if kind_of(each) == "ActionRequested"]

    async def pool_spec(self) -> Any:
        item: Any = await self.harness.store.get(BROKER_POOL, "shop", "default")
        return item["spec"]


@asynccontextmanager
async def served(
    *, actions: bool = True, leads: bool = True, leader_port: int = 0
) -> AsyncIterator[Rig]:
    harness = Harness()
    if leads:
        await harness.start(3)
        await harness.create(replicas=2)
        metadata = {"namespace": "shop", "name": "default"}
        await harness.store.create(BROKER_POOL, {"metadata": metadata, "spec": {"replicas": 3}})
    service, killer = harness.service, Killer()
    forward = (
        ForwardToLeader(lambda: service.leader_address, leader_port, TokenFile(None))
        if leader_port
        else None
    )
    live_pools = LivePools(service, wall_clock_ms=lambda: 0)
    app = web.Application()
    kills = "process" if actions else ""
    add_web_routes(app, service, live_pools, forward=forward, kills=kills)
    if actions:
        add_action_routes(app, service, harness.store, killer, forward=forward)
    async with TestClient(TestServer(app)) as client:
        try:
            yield Rig(harness, client, killer)
        finally:
            await live_pools.close()
            await service.step_down()


Scenario = Callable[[Rig], Awaitable[None]]


def with_rig(scenario: Scenario, **options: Any) -> None:
    async def limited() -> None:
        async with served(**options) as rig:
            await scenario(rig)

    run(limited)


def test_routes_do_not_exist_while_actions_are_off() -> None:
    async def scenario(rig: Rig) -> None:
        for action in ACTIONS:
            path = f"/v1/actions/{action}"
            async with rig.client.post(path, json={"pool": POOL}, headers=OURS) as response:
                assert response.status == 404
        async with rig.client.get("/v1/pools") as response:
            assert "actions" not in await response.json()

    with_rig(scenario, actions=False)


def test_page_learns_that_actions_are_on() -> None:
    async def scenario(rig: Rig) -> None:
        async with rig.client.get("/v1/pools") as response:
            assert (await response.json())["actions"] == {"kills": "process"}

    with_rig(scenario)


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Tidemark-Action": "0"},
        OURS | {"Origin": "https://evil.example"},
        OURS | {"Origin": "null"},
        OURS | {"Sec-Fetch-Site": "cross-site"},
        OURS | {"Sec-Fetch-Site": "same-site"},  # another port of this machine
        OURS | {"Host": "rebound.example:8080", "Origin": "http://rebound.example:8080"},
    ],
)
def test_other_sites_are_refused(action: str, headers: dict[str, str]) -> None:
    async def scenario(rig: Rig) -> None:
        status, sentence = await rig.act(
            action, headers, pool=POOL, broker=1, topic="orders", partition=0
        )
        assert (status, sentence[:8]) == (403, "expected")
        assert (rig.killer.killed, rig.events()) == ([], [])
        assert await rig.pool_spec() == {"replicas": 3}

    with_rig(scenario)


def test_no_permission_is_given_to_another_origin() -> None:
    async def scenario(rig: Rig) -> None:
        headers = {
            "Origin": "https://evil.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "x-tidemark-action",
        }
        async with rig.client.options("/v1/actions/kill", headers=headers) as response:
            assert response.status == 405
            assert not [name for name in response.headers if name.startswith("Access-Control")]

    with_rig(scenario)


def test_kill_is_recorded_and_done() -> None:
    async def scenario(rig: Rig) -> None:
        origin = f"http://127.0.0.1:{rig.client.port}"
        headers = OURS | {"Origin": origin, "Sec-Fetch-Site": "same-origin"}
        assert await rig.act("kill", headers, pool=POOL, broker=1) == (200, "broker 1 is killed")
        assert rig.killer.killed == [(POOL, 1)]
        assert rig.events() == ["kill of broker 1 requested on the live page from 127.0.0.1"]
        rig.killer.runs = False
        assert await rig.act("kill", pool=POOL, broker=2) == (409, "broker 2 does not run")

    with_rig(scenario)


def test_drain_adds_the_broker_to_its_pool() -> None:
    async def scenario(rig: Rig) -> None:
        rig.harness.store.faults["BrokerPool"] = ["conflict"]  # tried again
        status, sentence = await rig.act("drain", pool=POOL, broker=2)
        assert (status, sentence[:25]) == (200, "broker 2 is being drained")
        assert await rig.pool_spec() == {"replicas": 3, "drain": [2]}
        assert rig.events() == ["drain of broker 2 requested on the live page from 127.0.0.1"]
        assert await rig.act("drain", pool=POOL, broker=2) == (
            200,
            "broker 2 is being drained already",
        )
        assert await rig.act("drain", pool=POOL, broker=1) == (
            409,
            "broker 1 cannot be drained: a topic has replication factor 2, and 1 brokers would"
            " remain",
        )
        assert await rig.pool_spec() == {"replicas": 3, "drain": [2]}

    with_rig(scenario)


def test_preferred_leader_is_elected() -> None:
    async def scenario(rig: Rig) -> None:
        harness = rig.harness
        first, second = harness.partition().replicas
        place = {"pool": POOL, "topic": "orders", "partition": 0}
        assert await rig.act("elect", **place) == (200, f"broker {first} leads already")
        await harness.kill(harness.brokers[first])
        others = [each for each in harness.brokers if each.broker_id != first]
        await harness.advance(200, *others)
        assert harness.partition().leader == second
        status, sentence = await rig.act("elect", **place)
        assert status == 409
        assert sentence == (
            f"broker {first} is the preferred leader, but is not active and in sync"
        )
        wanted = f"election of broker {first}, the preferred leader of orders-0, requested on"
        assert rig.events()[-1].startswith(wanted)
        await evaluate()

    with_rig(scenario)


@pytest.mark.parametrize(
    ("action", "body", "status"),
    [
        ("kill", {"pool": "shop/none", "broker": 1}, 404),
        ("kill", {"pool": POOL, "broker": 9}, 404),
        ("kill", {"pool": POOL}, 404),
        ("drain", {"pool": POOL, "broker": -5}, 404),
        ("elect", {"pool": POOL, "topic": "none", "partition": 0}, 404),
        ("elect", {"pool": POOL, "topic": "orders", "partition": 7}, 404),
        ("elect", {"pool": 7}, 400),
        ("kill", {"broker": 1}, 400),
        ("kill", {"pool": "x" * MAX_BODY_BYTES}, 413),
    ],
)
def test_what_is_not_there_is_refused(action: str, body: dict[str, Any], status: int) -> None:
    async def scenario(rig: Rig) -> None:
        assert (await rig.act(action, **body))[0] == status
        assert (rig.killer.killed, rig.events()) == ([], [])

    with_rig(scenario)


def test_standby_forwards_an_action_and_checks_it_first() -> None:
    async def scenario() -> None:
        async with served() as leader:
            port = leader.client.port
            assert port is not None
            async with served(leads=False, leader_port=port) as standby:
                standby.harness.service.set_leader_address("127.0.0.1:8070")
                origin = OURS | {"Origin": f"http://127.0.0.1:{standby.client.port}"}
                found = await standby.act("kill", origin, pool=POOL, broker=1)
                assert found == (200, "broker 1 is killed")
                assert leader.killer.killed == [(POOL, 1)]
                evil = OURS | {"Origin": "https://evil.example"}
                assert (await standby.act("kill", evil, pool=POOL, broker=1))[0] == 403
                assert leader.killer.killed == [(POOL, 1)]

    run(scenario)


def test_body_that_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark_operator.manager.web.actions.BODY_SECONDS", 0.05)

    async def scenario(rig: Rig) -> None:
        port = rig.client.port
        assert port is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /v1/actions/kill HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Tidemark-Action: 1\r\n"
            b"Content-Length: 40\r\n\r\n{"
        )
        assert b"400" in await reader.readline()
        writer.close()

    with_rig(scenario)
