"""Accept connections of the operator's HTTP servers, with a bound on those of unknown senders.

aiohttp bounds neither connections nor the time until a first request. Here a connection is pending
until a request of it was authenticated; too many of these end each other, the oldest first, and one
without any request ends after some seconds. Brokers that are known are not affected.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from aiohttp import web
from aiohttp.web_runner import BaseRunner, BaseSite
from tidemark_protocol.connection_rejections import ConnectionRejections
from tidemark_protocol.pending_connections import PendingConnections
from tidemark_protocol.tls_accept import TlsListener, TlsServer

PENDING = 512
PENDING_OF_ADDRESS = 256
FIRST_REQUEST_SECONDS = 10.0
BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class ConnectionGuard:
    """The bounds of one port, and its TLS."""

    rejections: ConnectionRejections
    listener: str  # the name of the port in the log
    tls: ssl.SSLContext | None = None
    first_request_seconds: float = FIRST_REQUEST_SECONDS
    pending: PendingConnections = field(
        default_factory=lambda: PendingConnections(PENDING, PENDING_OF_ADDRESS)
    )

    def note(self, address: str, reason: str, detail: str) -> None:
        self.rejections.note(address, reason, detail, protocol="controller", listener=self.listener)

    def site(self, runner: BaseRunner, listening: socket.socket) -> "GuardedSite":
        return GuardedSite(runner, listening, self)


class GuardedSite(BaseSite):
    __slots__ = ("_guard", "_listening")

    def __init__(
        self, runner: BaseRunner, listening: socket.socket, guard: ConnectionGuard
    ) -> None:
        super().__init__(runner)
        self._listening = listening
        self._guard = guard

    @property
    def name(self) -> str:
        return self._guard.listener

    async def start(self) -> None:
        """Accept from now on."""
        await super().start()
        guard = self._guard
        new_handler = cast(Callable[[], asyncio.Protocol], self._runner.server)

        def new_connection() -> asyncio.Protocol:
            return GuardedConnection(guard, new_handler())

        if guard.tls is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(
                new_connection, sock=self._listening, backlog=BACKLOG
            )
            return
        context = guard.tls
        pending = PendingConnections(PENDING, PENDING_OF_ADDRESS)
        self._listening.listen(BACKLOG)
        server: Any = TlsServer(
            TlsListener(lambda: context, pending, guard.note), new_connection, self._listening
        )
        self._server = server


class GuardedConnection(asyncio.Protocol):
    """One connection in front of aiohttp's protocol."""

    def __init__(self, guard: ConnectionGuard, handler: asyncio.Protocol) -> None:
        self._guard = guard
        self._handler = handler
        self._transport: asyncio.Transport | None = None
        self._address = ""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        self._handler.connection_made(transport)
        self._guard.pending.join(self, self._address)
        seconds = self._guard.first_request_seconds
        self._timer = asyncio.get_running_loop().call_later(
            seconds, self.reject, "no request", f"none within {seconds:g} s"
        )

    def data_received(self, data: bytes) -> None:
        self._handler.data_received(data)

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def eof_received(self) -> bool | None:
        return self._handler.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.has_request()
        self.admit()
        self._handler.connection_lost(exc)

    def has_request(self) -> None:
        """End the wait for the head of a first request."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def admit(self) -> None:
        """Count the connection no more: its sender is known."""
        self._guard.pending.forget(self)

    def reject(self, kind: str, reason: str) -> None:
        if self._transport is not None:
            self._guard.note(self._address, kind, reason)
            self._transport.abort()


def connection_of(request: web.Request) -> GuardedConnection | None:
    """Return the connection that a request came by, None if its server has no guard."""
    transport = request.transport
    protocol = None if transport is None else transport.get_protocol()
    return protocol if isinstance(protocol, GuardedConnection) else None
