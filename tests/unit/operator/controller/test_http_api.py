"""The controller's HTTP API on a real socket, with a client process that is killed."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable

import aiohttp
from aiohttp import web
from tidemark_operator.controller.http_api import serve
from tidemark_operator.controller.probe import HttpProbe, ProbeVerdict
from tidemark_operator.security.authentication import SENDER, Handler
from tidemark_operator.security.broker_identity import BrokerIdentity
from tidemark_operator.security.guarded_site import ConnectionGuard
from tidemark_protocol.connection_rejections import ConnectionRejections
from tidemark_protocol.controller_messages import (
    HEARTBEAT_PATH,
    REGISTER_PATH,
    Endpoints,
    HeartbeatRequest,
    encode,
)
from tidemark_protocol.ids import BrokerEpoch, BrokerId, ControllerEpoch

from tests.support.controller_harness import POOL, Harness, evaluate
from tests.support.waiting import HANG_SECONDS

CLIENT = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
connection.request("POST", "/v1/heartbeat", sys.stdin.buffer.read())
print("sent", flush=True)
connection.getresponse().read()
"""


def listening() -> socket.socket:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    return bound


@web.middleware
async def sent_by_broker_0(request: web.Request, handler: Handler) -> web.StreamResponse:
    request[SENDER] = BrokerIdentity(POOL, BrokerId(0))
    return await handler(request)


Scenario = Callable[[Harness, aiohttp.ClientSession, str], Awaitable[None]]


def run(scenario: Scenario) -> None:
    async def served() -> None:
        harness = await Harness().start(1)
        bound = listening()
        runner = await serve(
            harness.service,
            bound,
            middlewares=[sent_by_broker_0],
            guard=ConnectionGuard(ConnectionRejections(lambda: 0), "controller"),
        )
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        try:
            async with aiohttp.ClientSession() as http:
                await scenario(harness, http, url)
        finally:
            await harness.service.step_down()
            await runner.cleanup()

    asyncio.run(asyncio.wait_for(served(), HANG_SECONDS))


def test_a_killed_brokers_poll_is_seen_broken_at_once() -> None:
    async def scenario(harness: Harness, _: aiohttp.ClientSession, url: str) -> None:
        (broker,) = harness.brokers
        request = HeartbeatRequest(
            POOL,
            broker.broker_id,
            broker.epoch,
            broker.incarnation,
            broker.controller_epoch,
            broker.version,
            wants_to_serve=True,
            wants_to_stop=False,
        )
        client = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            CLIENT,
            url.rpartition(":")[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(encode(request))
        client.stdin.close()
        await client.stdout.readline()
        assert broker.poll is not None
        await broker.poll  # the client's poll replaced it: it is open now
        client.kill()
        await asyncio.wait_for(harness.probe.was_asked.wait(), HANG_SECONDS)
        await client.wait()
        assert harness.probe.requested == [broker.incarnation]

    run(scenario)


def test_messages_go_through_and_status_tells_what_is_known() -> None:
    async def scenario(harness: Harness, http: aiohttp.ClientSession, url: str) -> None:
        await harness.create(replicas=1)
        async with http.get(f"{url}/v1/status") as response:
            status = await response.json()
        (pool,) = status["pools"]
        assert status["controllerEpoch"] == 1
        assert [broker["state"] for broker in pool["brokers"]] == ["Active"]
        assert pool["topics"][0]["partitions"][0]["isr"] == [{"id": 0, "epoch": 1}]
        async with http.get(f"{url}/metrics") as response:
            assert (
                'tidemark_controller_partitions{pool="shop/default"} 1.0' in await response.text()
            )
        async with http.get(f"{url}/healthz") as response:
            assert await response.json() == {"leads": True, "controllerEpoch": 1}

    run(scenario)


def test_status_has_the_disk_that_a_heartbeat_reports() -> None:
    async def scenario(harness: Harness, http: aiohttp.ClientSession, url: str) -> None:
        async def broker() -> dict[str, object]:
            async with http.get(f"{url}/v1/status") as response:
                found: dict[str, object] = (await response.json())["pools"][0]["brokers"][0]
                return found

        assert "diskSizeBytes" not in await broker()  # a broker of an earlier version
        sender = harness.brokers[0]
        sender.poll = sender.heartbeat(disk_free_bytes=14, disk_size_bytes=100)
        await evaluate()
        assert {"diskFreeBytes": 14, "diskSizeBytes": 100, "diskState": "NearlyFull"}.items() <= (
            await broker()
        ).items()

    run(scenario)


def test_malformed_bodies_are_refused_with_the_place() -> None:
    async def scenario(harness: Harness, http: aiohttp.ClientSession, url: str) -> None:
        for path, body, said in (
            (REGISTER_PATH, b"{", "RegisterRequest"),
            (HEARTBEAT_PATH, b'{"pool": 7}', "$.pool"),
            (HEARTBEAT_PATH, b"\xff\x00", "HeartbeatRequest"),
        ):
            async with http.post(url + path, data=body) as response:
                assert response.status == 400
                assert said in await response.text()

    run(scenario)


def test_a_standby_answers_not_controller_and_names_the_leader() -> None:
    async def scenario(harness: Harness, http: aiohttp.ClientSession, url: str) -> None:
        await harness.service.step_down()
        harness.service.set_leader_address("10.0.0.9:8070")
        request = HeartbeatRequest(
            POOL,
            harness.brokers[0].broker_id,
            BrokerEpoch(1),
            "0-a",
            ControllerEpoch(1),
            1,
            wants_to_serve=True,
            wants_to_stop=False,
        )
        async with http.post(url + HEARTBEAT_PATH, data=encode(request)) as response:
            answer = await response.json()
        assert (answer["error"], answer["controller_address"]) == (41, "10.0.0.9:8070")

    run(scenario)


# The probe.


async def probe(port: int, incarnation: str) -> ProbeVerdict:
    return await HttpProbe(250)(POOL, BrokerId(0), Endpoints("127.0.0.1", 1, port, ""), incarnation)


def probed(incarnation: str, *, answer: bytes | None) -> ProbeVerdict:
    async def scenario() -> ProbeVerdict:
        bound = listening()
        port = bound.getsockname()[1]

        async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            if answer is not None:
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\n\r\n"
                writer.write(head.encode() + answer)
                await writer.drain()
            await reader.read()
            writer.close()

        server = await asyncio.start_server(answering, sock=bound)
        try:
            return await probe(port, incarnation)
        finally:
            server.close()

    return asyncio.run(scenario())


def test_a_probe_asks_for_the_incarnation() -> None:
    body = json.dumps({"brokerId": 0, "incarnation": "a", "pool": POOL}).encode()
    assert probed("a", answer=body) is ProbeVerdict.ALIVE
    assert probed("b", answer=body) is ProbeVerdict.REFUSED


def test_silence_and_nonsense_are_no_verdict() -> None:
    assert probed("a", answer=None) is ProbeVerdict.NO_RESPONSE
    assert probed("a", answer=b"<html>") is ProbeVerdict.NO_RESPONSE


def test_a_refused_connection_is_a_refusal() -> None:
    bound = listening()
    port = bound.getsockname()[1]
    bound.close()
    found = asyncio.run(probe(port, "a"))
    assert found is ProbeVerdict.REFUSED
