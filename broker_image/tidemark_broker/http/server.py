"""Run uvicorn inside the broker's own event loop.

httptools, no access log (it doubles a request's cost), no server or date headers, no signal
handlers (the broker has its own). uvicorn bounds neither heads, nor connections, nor clients that
do not read their responses: LimitedHttpProtocol does, by closing the connection.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tidemark_broker.http.limits import ServerLimits
from tidemark_broker.http.request import CONNECTION, LISTENER
from tidemark_broker.http.response import AsgiApp, Scope
from tidemark_broker.kafka.network.limits import ListenerLimits
from tidemark_broker.kafka.network.unauthenticated_connections import UnauthenticatedConnections
from tidemark_broker.security.client_connections import CountedConnection
from tidemark_broker.security.tls import TlsMode
from tidemark_broker.security.tls_detection import TlsDetectingServer

DEFAULT_LIMITS = ServerLimits()
HTTP_LISTENER = "http"  # the name of the pool's own, which no other listener can have


def _required(listener: str) -> TlsMode:
    return TlsMode.REQUIRED


class HttpTls(NamedTuple):
    context: ssl.SSLContext
    mode_of: Callable[[str], TlsMode] = _required  # of a listener by its name; "" is the first


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        stop: asyncio.Event,
        on_started: Callable[[], None],
        plain: Sequence[socket.socket],
        optional: Sequence[socket.socket],
    ) -> None:
        super().__init__(config)
        self._stop = stop
        self._plain = plain
        self._optional = optional
        self._on_started = on_started

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, then listen on the sockets without TLS and with both."""
        await super().startup(sockets)
        config = self.config

        def create_protocol() -> asyncio.Protocol:
            made: asyncio.Protocol = cast(Any, config.http_protocol_class)(
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )
            return made

        loop = asyncio.get_running_loop()
        for listening in self._plain:
            self.servers.append(
                await loop.create_server(create_protocol, sock=listening, backlog=config.backlog)
            )
        bound = UnauthenticatedConnections(ListenerLimits())
        context = cast(ssl.SSLContext, config.ssl)
        for listening in self._optional:
            detecting = TlsDetectingServer(
                listening,
                plain=create_protocol,
                tls=create_protocol,
                context=lambda: context,
                bound=bound,
            )
            self.servers.append(cast(Any, detecting))

    async def main_loop(self) -> None:
        # uvicorn's own wakes ten times a second, mostly for the date header that is off here.
        self._on_started()
        await self._stop.wait()


class LimitedHttpProtocol(HttpToolsProtocol):
    """One connection. `serve` sets the class variables on its subclass."""

    server_limits = DEFAULT_LIMITS
    listeners: Mapping[int, str] = {}  # the named ones, by their ports

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio's by class, only by what they do.
        stream = cast(asyncio.Transport, transport)
        super().connection_made(stream)
        self._listener = "" if self.server is None else self.listeners.get(self.server[1] or 0, "")
        self._counted = CountedConnection(
            self._listener or HTTP_LISTENER,
            has_tls=stream.get_extra_info("ssl_object") is not None,
        )
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
        self._counted.end()
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
        scope = cast(Scope, self.scope)
        scope[CONNECTION] = self._counted
        if self._listener:
            scope[LISTENER] = self._listener

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
    by_mode: dict[TlsMode, list[socket.socket]] = {mode: [] for mode in TlsMode}
    mode_of = (lambda _: TlsMode.REQUIRED) if tls is None else tls.mode_of
    first = _listen(host, port, limits.backlog)
    by_mode[mode_of("")].append(first)
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
    bound_port = first.getsockname()[1]
    config.load()
    config.ssl = None if tls is None else tls.context
    server = _Server(
        config,
        stop,
        lambda: on_listening(bound_port),
        by_mode[TlsMode.DISABLED],
        by_mode[TlsMode.OPTIONAL],
    )
    try:
        for more, name in listeners.items():
            by_mode[mode_of(name)].append(_listen(host, more, limits.backlog))
        await server.serve(by_mode[TlsMode.REQUIRED])
    finally:
        for sockets in by_mode.values():
            for listening in sockets:
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
