"""The page's routes over a controller: what a page reads equals what the controller shows."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import resources

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from tidemark_operator.manager import web as web_room
from tidemark_operator.manager.web.forward import ForwardToLeader
from tidemark_operator.manager.web.live_pools import LivePools
from tidemark_operator.manager.web.pool_feed import Message
from tidemark_operator.manager.web.routes import add_web_routes
from tidemark_protocol.ids import ControllerEpoch
from tidemark_protocol.token_file import TokenFile

from tests.support.controller_harness import POOL, Harness, evaluate
from tests.support.waiting import HANG_SECONDS
from tests.unit.operator.manager.web.page_model import PageModel

Client = TestClient[web.Request, web.Application]
STREAM = "/v1/isr/stream"


class Served:
    def __init__(self, harness: Harness, live_pools: LivePools, client: Client) -> None:
        self.harness = harness
        self.live_pools = live_pools
        self.client = client


@asynccontextmanager
async def served(
    *, max_pages: int = 8, leader_port: int = 0, leads: bool = True
) -> AsyncIterator[Served]:
    harness = Harness()
    if leads:
        await harness.start(3)
        await harness.create(partitions=2)
    live_pools = LivePools(harness.service, wall_clock_ms=lambda: 0, max_pages=max_pages)
    app = web.Application()
    service = harness.service
    forward = (
        ForwardToLeader(lambda: service.leader_address, leader_port, TokenFile(None))
        if leader_port
        else None
    )
    add_web_routes(app, service, live_pools, forward=forward)
    async with TestClient(TestServer(app)) as client:
        try:
            yield Served(harness, live_pools, client)
        finally:
            await live_pools.close()
            await service.step_down()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(scenario(), HANG_SECONDS)

    asyncio.run(limited())


async def until(what: str, condition: Callable[[], bool]) -> None:
    async def asked() -> None:
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    try:
        await asyncio.wait_for(asked(), HANG_SECONDS)
    except TimeoutError:
        raise AssertionError(f"waited for: {what}") from None


async def read_until(
    response: aiohttp.ClientResponse, page: PageModel, until: Callable[[], bool]
) -> None:
    """Read complete events until the page knows enough."""
    rest = ""
    while not until():
        rest += (await response.content.readany()).decode()
        complete, found, rest = rest.rpartition("\n\n")
        page.read(complete + found)


def stream(
    client: Client, version: str = "", **headers: str
) -> aiohttp.client._RequestContextManager:
    params = {"pool": POOL, "version": version}
    return client.get(STREAM, params=params, headers=headers)  # type: ignore[return-value]


def test_stream_shows_a_change_of_the_isr() -> None:
    async def scenario() -> None:
        async with served() as rig:
            page = PageModel()
            async with stream(rig.client) as response:
                assert response.headers["Content-Type"] == "text/event-stream"
                await read_until(response, page, lambda: "end" in page.received)
                assert page.knows(rig.harness.service.topics(POOL))
                await rig.harness.kill(rig.harness.brokers[1])
                await read_until(response, page, lambda: page.brokers[1] == "Fenced")
                await read_until(
                    response, page, lambda: page.knows(rig.harness.service.topics(POOL))
                )
            assert all(1 not in row[6] for rows in page.rows.values() for row in rows.values())
            kinds = [event["kind"] for event in page.events]
            assert "BrokerFenced" in kinds
            (elected,) = [event for event in page.events if event["kind"] == "LeaderElected"]
            assert elected["before"][1] == 1

    run(scenario)


def test_page_that_returns_misses_nothing() -> None:
    async def scenario() -> None:
        async with served() as rig:
            page = PageModel()
            async with stream(rig.client) as response:
                await read_until(response, page, lambda: "end" in page.received)
            await rig.harness.kill(rig.harness.brokers[2])
            async with stream(rig.client, **{"Last-Event-ID": page.version}) as response:
                await read_until(
                    response, page, lambda: page.knows(rig.harness.service.topics(POOL))
                )
            assert page.received.count("begin") == 1
            assert "resumed" in page.received

    run(scenario)


def test_another_term_begins_with_a_snapshot() -> None:
    async def scenario() -> None:
        async with served() as rig:
            page = PageModel()
            async with stream(rig.client) as response:
                await read_until(response, page, lambda: "end" in page.received)
                await rig.harness.service.load(ControllerEpoch(2))
                await response.content.read()  # it ends
            async with stream(rig.client, page.version) as response:
                await read_until(response, page, lambda: page.received.count("end") == 2)
            assert page.version.startswith("2.")
            assert page.knows(rig.harness.service.topics(POOL))

    run(scenario)


def test_document_has_the_parts_of_a_snapshot() -> None:
    async def scenario() -> None:
        async with served() as rig:
            async with rig.client.get("/v1/isr", params={"pool": POOL}) as response:
                first, *parts = json.loads(await response.read())["parts"]
            page = PageModel()
            page.message("begin", first)
            for part in parts:
                page.message("part", part)
            assert page.knows(rig.harness.service.topics(POOL))
            assert page.brokers == {0: "Active", 1: "Active", 2: "Active"}

    run(scenario)


def test_figures_have_heartbeats_and_disks_and_so_has_the_stream() -> None:
    async def scenario() -> None:
        async with served() as rig:
            sender = rig.harness.brokers[1]
            sender.poll = sender.heartbeat(disk_free_bytes=2, disk_size_bytes=100)
            await evaluate()
            async with rig.client.get("/v1/isr/figures", params={"pool": POOL}) as response:
                found = await response.json()
            assert found["brokers"][0] == {"brokerId": 0, "silenceMs": 0}
            disk = {"diskFreeBytes": 2, "diskSizeBytes": 100, "diskState": "Full"}
            assert found["brokers"][1] == {"brokerId": 1, "silenceMs": 0} | disk
            assert found["catchingUp"] == []
            page = PageModel()
            async with stream(rig.client) as response:  # a new page need not wait for a beat
                await read_until(response, page, lambda: "progress" in page.received)
            assert page.disk == {"1": [2, 100, "Full"]}

    run(scenario)


def test_partition_says_why() -> None:
    async def scenario() -> None:
        async with served() as rig:
            params = {"pool": POOL, "topic": "orders", "partition": "1"}
            async with rig.client.get("/v1/isr/why", params=params) as response:
                questions = [each["question"] for each in (await response.json())["answers"]]
            assert "Is acks=all accepted?" in questions
            for number in ("7", "x", "-1", "9" * 99):
                async with rig.client.get(
                    "/v1/isr/why", params=params | {"partition": number}
                ) as response:
                    assert response.status == 404

    run(scenario)


def test_refusals_are_sentences() -> None:
    async def scenario() -> None:
        async with served(max_pages=1) as rig, stream(rig.client) as first:
            await first.content.readany()
            for path, status, said in (
                (f"{STREAM}?pool={POOL}", 503, "1 pages are open"),
                ("/v1/isr?pool=shop/none", 404, "pool shop/none: expected one of shop/default"),
                (f"/v1/isr/events?pool={POOL}&after=x", 400, "after: expected a number"),
                (f"/v1/isr/topic?pool={POOL}&topic=none", 404, "topic none: not found"),
                ("/ui/none.js", 404, "/ui/none.js: no such file"),
            ):
                async with rig.client.get(path) as response:
                    problem = (await response.json())["problem"]
                    assert (response.status, problem[: len(said)]) == (status, said)

    run(scenario)


def test_streams_are_given_back() -> None:
    async def scenario() -> None:
        async with served(max_pages=1) as rig:
            for _ in range(3):
                page = PageModel()
                async with stream(rig.client) as response:
                    await read_until(response, page, lambda page=page: "end" in page.received)
                # The server notices it by the next beat.
                await until("the stream is given back", lambda: not rig.live_pools.opened)

    run(scenario)


def test_standby_says_who_leads() -> None:
    async def scenario() -> None:
        async with served(leads=False) as rig:
            async with rig.client.get("/v1/pools") as response:
                assert "no operator leads yet" in (await response.json())["problem"]
            rig.harness.service.set_leader_address("10.0.0.7:8070")
            async with rig.client.get(f"{STREAM}?pool={POOL}") as response:
                assert response.status == 503
                assert "10.0.0.7:8070 leads" in (await response.json())["problem"]
            async with rig.client.get("/ui/") as response:
                assert response.status == 200

    run(scenario)


def test_standby_forwards_to_the_leader() -> None:
    async def scenario() -> None:
        async with served() as leader:
            port = leader.client.port
            assert port is not None
            async with served(leads=False, leader_port=port) as standby:
                standby.harness.service.set_leader_address("127.0.0.1:8070")
                page = PageModel()
                async with stream(standby.client) as response:
                    await read_until(response, page, lambda: "end" in page.received)
                    await leader.harness.kill(leader.harness.brokers[0])
                    await read_until(response, page, lambda: page.brokers[0] == "Fenced")
                async with standby.client.get("/v1/pools") as response:
                    assert (await response.json())["pools"] == [POOL]
                async with standby.client.get(
                    "/v1/pools", headers={"X-Tidemark-Forwarded": "1"}
                ) as response:
                    assert response.status == 503

    run(scenario)


def test_page_that_never_reads_is_dropped() -> None:
    """Its socket fills; then its messages wait by bound, and the stream is ended."""

    async def scenario() -> None:
        async with served() as rig:
            reader, writer = await asyncio.open_connection("127.0.0.1", rig.client.port, limit=1024)
            writer.write(f"GET {STREAM}?pool={POOL} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            await writer.drain()
            await reader.readline()
            live = await rig.live_pools.open(POOL)
            await until("the page is open", lambda: bool(live.pages))
            (page,) = live.pages
            large = Message(b"x" * 1_000_000)
            while not page.is_ended:
                page.push(large)
                await asyncio.sleep(0)
            assert page.waiting_bytes == 0
            writer.close()

    run(scenario)


def test_page_is_self_contained() -> None:
    """Neither a file nor the policy lets the page fetch from elsewhere, or run what is inline."""
    outside = re.compile(r"""(?:https?:)?//[a-z0-9]""")
    unsafe = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|style=")
    for entry in resources.files(web_room.__name__).joinpath("static").iterdir():
        text = entry.read_text().replace("http://www.w3.org/2000/svg", "")
        code = re.sub(r"^\s*//.*$", "", text, flags=re.M)
        assert not outside.search(code), entry.name
        assert not unsafe.search(code), entry.name

    async def scenario() -> None:
        async with served() as rig:
            async with rig.client.get("/ui/") as response:
                policy = response.headers["Content-Security-Policy"]
                tag = response.headers["ETag"]
                text = await response.text()
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "<script>" not in text
            async with rig.client.get("/ui/", headers={"If-None-Match": tag}) as response:
                assert response.status == 304
            async with rig.client.get("/", allow_redirects=False) as response:
                assert response.headers["Location"] == "/ui/"

    run(scenario)
