"""Handshakes over real sockets: bounded, with a deadline, and failures told with their reason."""

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from tidemark_operator.security.certificate_authority import Authority, CertificateSubject
from tidemark_protocol.pending_connections import TOO_MANY, PendingConnections
from tidemark_protocol.tls_accept import TlsListener, TlsServer

from tests.support.certificates import TestPool
from tests.support.waiting import eventually


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class Served:
    """A server with mutual TLS, and what it rejected."""

    def __init__(self, *, limit: int = 50, seconds: float = 10.0) -> None:
        created_s = int(time.time()) - 86_400
        self.pool = TestPool(
            authority=Authority.create("pool", now_s=created_s, life_s=10 * 86_400)
        )
        broker = self.pool.broker(1)
        self.rejected: list[tuple[str, str, str]] = []
        self.pending = PendingConnections(limit, limit)
        listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(listening.getsockname()[1])
        self.server = TlsServer(
            TlsListener(
                lambda: broker.peers_in,
                self.pending,
                lambda *rejected: self.rejected.append(rejected),
                seconds,
            ),
            Echo,
            listening,
        )

    async def echoed(self, context: ssl.SSLContext) -> bytes:
        context.check_hostname = False
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context, server_hostname="localhost"
        )
        writer.write(b"hello")
        try:
            return await reader.read(100)
        finally:
            writer.transport.abort()

    async def received(self, data: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        try:
            return await reader.read(100)
        except ConnectionResetError:
            return b""
        finally:
            writer.transport.abort()


def unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario()

    uvloop.run(bounded())


def test_data_that_comes_with_the_handshake_arrives() -> None:
    async def scenario() -> None:
        served = Served()
        peer = served.pool.broker(2).peers_out
        assert [await served.echoed(peer) for _ in range(20)] == [b"hello"] * 20
        assert served.rejected == [] and len(served.pending) == 0
        served.server.close()
        await served.server.wait_closed()

    run(scenario)


def old_version() -> ssl.SSLContext:
    context = unverified()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


@pytest.mark.parametrize(
    ("context", "reason"),
    [
        (unverified, "TLS: no client certificate"),
        (lambda: _unverified_peer(), "TLS: certificate of an unknown authority"),
        (old_version, "TLS: TLS version"),
    ],
)
def test_a_failed_handshake_is_told_once(
    context: Callable[[], ssl.SSLContext], reason: str
) -> None:
    async def scenario() -> None:
        served = Served()
        with contextlib.suppress(OSError):
            assert await served.echoed(context()) == b""
        await eventually(lambda: len(served.rejected) == 1)
        assert served.rejected[0][:2] == ("127.0.0.1", reason)
        served.server.close()

    run(scenario)


def _unverified_peer() -> ssl.SSLContext:
    """Return the context of a broker of another pool."""
    context = TestPool().broker(2).peers_out
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def test_an_expired_certificate_is_told() -> None:
    async def scenario() -> None:
        served = Served()
        peer = served.pool.broker(2)
        subject = CertificateSubject(("broker-2",))
        issued = served.pool.authority.issue(
            peer.request_pem(), subject, now_s=int(time.time()) - 7200, life_s=3600
        )
        peer.install(issued.pem, served.pool.authority.certificate_pem)
        with contextlib.suppress(OSError):
            assert await served.echoed(peer.peers_out) == b""
        await eventually(lambda: len(served.rejected) == 1)
        assert served.rejected[0][1] == "TLS: expired certificate"
        served.server.close()

    run(scenario)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x14\0\x12\0\0\0\0\0\1"])
def test_plain_text_is_told(data: bytes) -> None:
    async def scenario() -> None:
        served = Served()
        await served.received(data)
        await eventually(lambda: len(served.rejected) == 1)
        assert served.rejected[0][1] == "TLS: plain text at a TLS port"
        served.server.close()

    run(scenario)


def test_half_open_handshakes_are_bounded_and_end() -> None:
    async def scenario() -> None:
        served = Served(limit=10, seconds=0.5)
        held = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(50)]
        await eventually(lambda: len(served.rejected) == 40)
        assert {each[1] for each in served.rejected} == {TOO_MANY}
        assert await served.echoed(served.pool.broker(2).peers_out) == b"hello"
        await eventually(lambda: len(served.pending) == 0)
        assert served.rejected[-1][1] == "TLS: handshake timed out"
        for each in held:
            each.close()
        served.server.close()

    run(scenario)
