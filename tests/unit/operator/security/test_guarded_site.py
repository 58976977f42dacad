"""Connections without a known sender at the operator's ports: bounded, with a deadline."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

from aiohttp import web
from tidemark_operator.security.guarded_site import ConnectionGuard, connection_of
from tidemark_protocol.connection_rejections import ConnectionRejections
from tidemark_protocol.pending_connections import TOO_MANY, PendingConnections

from tests.support.waiting import eventually

HEAD = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


async def _admitted(request: web.Request) -> web.Response:
    connection = connection_of(request)
    assert connection is not None
    connection.has_request()
    connection.admit()
    return web.Response(text="known")


def with_server(guard: ConnectionGuard, scenario: Callable[[int], Awaitable[None]]) -> None:
    async def served() -> None:
        app = web.Application()
        app.router.add_get("/", _admitted)
        runner = web.AppRunner(app)
        await runner.setup()
        listening = socket.create_server(("127.0.0.1", 0))
        await guard.site(runner, listening).start()
        try:
            async with asyncio.timeout(20):
                await scenario(listening.getsockname()[1])
        finally:
            await runner.cleanup()

    asyncio.run(served())


def test_unknown_senders_end_each_other_and_no_known_one() -> None:
    rejections = ConnectionRejections(lambda: 0)
    guard = ConnectionGuard(rejections, "controller", pending=PendingConnections(5, 5))

    async def scenario(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD)
        await reader.readuntil(b"known")
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
        await eventually(lambda: rejections.totals == {("controller", TOO_MANY): 25})
        writer.write(HEAD)
        await reader.readuntil(b"known")
        for _, each in (*idle, (reader, writer)):
            each.close()

    with_server(guard, scenario)


def test_a_connection_without_a_request_ends() -> None:
    rejections = ConnectionRejections(lambda: 0)
    guard = ConnectionGuard(rejections, "controller", first_request_seconds=0.2)

    async def scenario(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD[:10])
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        assert rejections.totals == {("controller", "no request"): 1}
        writer.close()

    with_server(guard, scenario)
