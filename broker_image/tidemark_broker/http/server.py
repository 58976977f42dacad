"""Run uvicorn inside the broker's own event loop.

httptools, no access log (it doubles a request's cost), no server or date headers, no signal
handlers (the broker has its own). uvicorn bounds neither heads, nor connections, nor clients that
do not read their responses: LimitedHttpProtocol does, by closing the connection.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tidemark_broker.http.limits import ServerLimits
from tidemark_broker.http.request import CERTIFICATE, LISTENER
from tidemark_broker.http.response import AsgiApp, Scope

DEFAULT_LIMITS = ServerLimits()

_log = logging.getLogger(__name__)


async def _never(former: ssl.SSLContext) -> ssl.SSLContext:
    await asyncio.Event().wait()
    return former


class HttpTls(NamedTuple):
    """The context of listeners with TLS; `next_context` returns it once it is another one."""

    context: ssl.SSLContext
    plain: frozenset[str] = frozenset()  # listeners without TLS
    next_context: Callable[[ssl.SSLContext], Awaitable[ssl.SSLContext]] = _never


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        stop: asyncio.Event,
        on_started: Callable[[], None],
        plain: Sequence[socket.socket],
        tls: HttpTls | None,
    ) -> None:
        super().__init__(config)
        self._stop = stop
        self._plain = plain
        self._tls = tls
        self._renewing: asyncio.Task[None] | None = None
        self._on_started = on_started

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, then listen on the sockets without TLS beside it."""
        if self._tls is None:
            await super().startup(sockets)
        else:
            await super().startup([])
            self.servers = await self._listen_with(self._tls.context, sockets or ())
            renewing = self._renew(self._tls, sockets or ())
            self._renewing = asyncio.create_task(renewing, name="authorities of clients")
        self.servers += await self._listen_with(None, self._plain)

    async def main_loop(self) -> None:
        # uvicorn's own wakes ten times a second, mostly for the date header that is off here.
        self._on_started()
        await self._stop.wait()
        if self._renewing is not None:
            self._renewing.cancel()

    async def _listen_with(
        self, context: ssl.SSLContext | None, sockets: Sequence[socket.socket]
    ) -> list[asyncio.base_events.Server]:
        """Accept connections at duplicates of these sockets. Raises OSError."""
        config = self.config

        def create_protocol() -> asyncio.Protocol:
            made: asyncio.Protocol = cast(Any, config.http_protocol_class)(
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )
            return made

        loop = asyncio.get_running_loop()
        return [
            await loop.create_server(
                create_protocol, sock=each.dup(), ssl=context, backlog=config.backlog
            )
            for each in sockets
        ]

    async def _renew(self, tls: HttpTls, sockets: Sequence[socket.socket]) -> None:
        """Accept with the context of now whenever it is another one, until cancelled.

        Trust cannot be taken back from a context, so others accept at the same sockets, and clients
        that showed a certificate connect again.
        """
        context = tls.context
        former = list(self.servers)
        while True:
            context = await tls.next_context(context)
            try:
                renewed = await self._listen_with(context, sockets)
            except OSError as error:  # no file to spare
                _log.error("listener not renewed", extra={"reason": str(error)})
                continue
            self.servers = [each for each in self.servers if each not in former] + renewed
            for server in former:
                server.close()
            former = renewed
            for connection in tuple(self.server_state.connections):
                cast(LimitedHttpProtocol, connection).end_if_certified()


class LimitedHttpProtocol(HttpToolsProtocol):
    """One connection. `serve` sets the class variables on its subclass."""

    server_limits = DEFAULT_LIMITS
    listeners: Mapping[int, str] = {}  # the named ones, by their ports

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio's by class, only by what they do.
        stream = cast(asyncio.Transport, transport)
        super().connection_made(stream)
        self._certificate = stream.get_extra_info("peercert") or None
        self._listener = "" if self.server is None else self.listeners.get(self.server[1] or 0, "")
        self._head_bytes = 0
        self._head_since: float | None = self.loop.time()  # None while no head is awaited
        self._stall_timer: asyncio.TimerHandle | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        if len(self.connections) > self.server_limits.connections:
            stream.abort()
            return
        self._check_head()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._stall_timer, self._head_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_since is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        # Judged after parsing: a head and its body often come in one piece.
        if self._head_since is not None and self._head_bytes > self.server_limits.header_bytes:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._head_since = self.loop.time()
        super().on_message_begin()
        if self._listener:
            cast(Scope, self.scope)[LISTENER] = self._listener
        if self._certificate is not None:
            cast(Scope, self.scope)[CERTIFICATE] = self._certificate

    def end_if_certified(self) -> None:
        """End the connection, after a response that is under way, if the client is certified."""
        if self._certificate is not None:
            self.shutdown()

    def on_headers_complete(self) -> None:
        self._head_since = None
        self._head_bytes = 0
        super().on_headers_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        seconds = self.server_limits.stalled_write_seconds
        self._stall_timer = self.loop.call_later(seconds, self.transport.abort)

    def resume_writing(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        super().resume_writing()

    def _check_head(self) -> None:
        """Close a connection whose head is slow.

        There is one timer per connection, not per request: a slow head lives at most twice its
        limit.
        """
        seconds = self.server_limits.header_seconds
        if self._head_since is not None and self.loop.time() - self._head_since >= seconds:
            self.transport.abort()
            return
        self._head_timer = self.loop.call_later(seconds, self._check_head)


async def serve(
    app: AsgiApp,
    *,
    host: str,
    port: int,
    stop: asyncio.Event,
    listeners: Mapping[int, str] = {},
    on_listening: Callable[[int], None] = lambda port: None,
    limits: ServerLimits = DEFAULT_LIMITS,
    tls: HttpTls | None = None,
) -> None:
    """Serve until `stop` is set, then end open requests within `graceful_stop_seconds`.

    `listeners` are more ports with their names. `on_listening(port)` is called once connections are
    accepted (port 0: the one chosen). Raises OSError when the address cannot be bound.
    """
    sockets = [_listen(host, port, limits.backlog)]
    of_this_server = {"server_limits": limits, "listeners": listeners}
    protocol: Any = type("LimitedProtocol", (LimitedHttpProtocol,), of_this_server)
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="on",
        loop="none",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=limits.backlog,
        timeout_keep_alive=limits.keep_alive_seconds,
        timeout_graceful_shutdown=limits.graceful_stop_seconds,
    )
    bound_port = sockets[0].getsockname()[1]
    config.load()
    plain_sockets: list[socket.socket] = []
    server = _Server(config, stop, lambda: on_listening(bound_port), plain_sockets, tls)
    try:
        for more, name in listeners.items():
            where = plain_sockets if tls is not None and name in tls.plain else sockets
            where.append(_listen(host, more, limits.backlog))
        await server.serve(sockets)
    finally:
        for listening in (*sockets, *plain_sockets):
            listening.close()


def _listen(host: str, port: int, backlog: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(backlog)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from error
    listener.setblocking(False)
    return listener
