"""Run uvicorn inside the broker's own event loop.

httptools, no access log (it doubles a request's cost), no server or date headers, no signal
handlers (the broker has its own). uvicorn bounds neither heads, nor connections, nor clients that
do not read their responses: LimitedHttpProtocol does, by closing the connection.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import uvicorn
from tidemark_protocol.connection_rejections import ConnectionRejections
from tidemark_protocol.pending_connections import PendingConnections
from tidemark_protocol.tls_accept import TlsListener, TlsServer
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tidemark_broker.clock import monotonic_ms
from tidemark_broker.http.limits import ServerLimits
from tidemark_broker.http.request import ADMIT, CERTIFICATE, CONNECTION, LISTENER
from tidemark_broker.http.response import AsgiApp, Scope
from tidemark_broker.security.client_connections import CountedConnection
from tidemark_broker.security.tls import TlsMode

DEFAULT_LIMITS = ServerLimits()
HTTP_LISTENER = "http"  # the name of the pool's own, which no other listener can have


def _required(listener: str) -> TlsMode:
    return TlsMode.REQUIRED


async def _never(former: ssl.SSLContext) -> ssl.SSLContext:
    await asyncio.Event().wait()
    return former


class HttpTls(NamedTuple):
    """The context of listeners with TLS; `next_context` returns it once it is another one."""

    context: Callable[[], ssl.SSLContext]  # of now
    mode_of: Callable[[str], TlsMode] = _required  # of a listener by its name; "" is the first
    next_context: Callable[[ssl.SSLContext], Awaitable[ssl.SSLContext]] = _never


class SecuredPort(NamedTuple):
    listener: TlsListener
    accepts_plain: bool  # besides TLS


class ConnectionRules(NamedTuple):
    """What listeners require of their clients, and where rejections are logged."""

    requires_authentication: Callable[[str], bool] = lambda _: False  # a listener, by its name
    rejections: ConnectionRejections = ConnectionRejections(monotonic_ms)
    tls: HttpTls | None = None


OPEN = ConnectionRules()


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        stop: asyncio.Event,
        on_started: Callable[[], None],
        plain: Sequence[socket.socket],
        secured: Mapping[socket.socket, SecuredPort],
        tls: HttpTls | None,
    ) -> None:
        super().__init__(config)
        self._stop = stop
        self._plain = plain
        self._secured = secured
        self._tls = tls
        self._ending: asyncio.Task[None] | None = None
        self._on_started = on_started

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start as uvicorn does, then listen beside it: it bounds no handshakes."""
        await super().startup([])
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
        for listening, port in self._secured.items():
            plain = create_protocol if port.accepts_plain else None
            server: Any = TlsServer(port.listener, create_protocol, listening, plain)
            self.servers.append(server)
        if self._tls is not None:
            self._ending = loop.create_task(
                self._end_certified(self._tls), name="authorities of clients"
            )

    async def main_loop(self) -> None:
        # uvicorn's own wakes ten times a second, mostly for the date header that is off here.
        self._on_started()
        await self._stop.wait()
        if self._ending is not None:
            self._ending.cancel()

    async def _end_certified(self, tls: HttpTls) -> None:
        """End connections of certified clients whenever authorities change, until cancelled.

        They connect again, and are verified by the authorities of then.
        """
        context = tls.context()
        while True:
            context = await tls.next_context(context)
            for connection in tuple(self.server_state.connections):
                cast(LimitedHttpProtocol, connection).end_if_certified()


class LimitedHttpProtocol(HttpToolsProtocol):
    """One connection. `serve` sets the class variables on its subclass."""

    server_limits = DEFAULT_LIMITS
    listeners: Mapping[int, str] = {}  # the named ones, by their ports
    rules = OPEN
    pending: Mapping[str, PendingConnections] = {}  # by listener

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio's by class, only by what they do.
        stream = cast(asyncio.Transport, transport)
        super().connection_made(stream)
        self._certificate = stream.get_extra_info("peercert") or None
        self._listener = "" if self.server is None else self.listeners.get(self.server[1] or 0, "")
        self._counted = CountedConnection(
            self._listener or HTTP_LISTENER,
            has_tls=stream.get_extra_info("ssl_object") is not None,
        )
        self._head_bytes = 0
        self._pending: PendingConnections | None = None
        self._address = ""
        self._head_since: float | None = self.loop.time()  # None while no head is awaited
        self._stall_timer: asyncio.TimerHandle | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        peer = stream.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        if len(self.connections) > self.server_limits.connections:
            limit = self.server_limits.connections
            self.reject("too many connections", f"{limit} connections are open")
            return
        self._pending = self.pending.get(self._listener)
        if self._pending is not None:
            self._pending.join(self, self._address)
        self._check_head()

    def reject(self, kind: str, reason: str) -> None:
        self.rules.rejections.note(
            self._address, kind, reason, protocol="http", listener=self._listener
        )
        self.transport.abort()

    def admit(self) -> None:
        """Count the connection among those of known clients from now on."""
        if self._pending is not None:
            self._pending.forget(self)
            self._pending = None

    def send_400_response(self, msg: str) -> None:
        self.rules.rejections.note(
            self._address, "malformed request", msg, protocol="http", listener=self._listener
        )
        super().send_400_response(msg)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._stall_timer, self._head_timer):
            if timer is not None:
                timer.cancel()
        self._counted.end()
        self.admit()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_since is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        # Judged after parsing: a head and its body often come in one piece.
        limit = self.server_limits.header_bytes
        is_long = self._head_since is not None and self._head_bytes > limit
        if is_long and not self.transport.is_closing():
            self.reject("request head too large", f"expected at most {limit} bytes")

    def on_message_begin(self) -> None:
        self._head_since = self.loop.time()
        super().on_message_begin()
        of_request = cast(Scope, self.scope)
        of_request[CONNECTION] = self._counted
        if self._listener:
            of_request[LISTENER] = self._listener
        if self._pending is not None:
            of_request[ADMIT] = self.admit
        if self._certificate is not None:
            of_request[CERTIFICATE] = self._certificate

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
        self._stall_timer = self.loop.call_later(
            seconds, self.reject, "response not read", f"for {seconds:g} s"
        )

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
            self.reject("slow request head", f"none within {seconds:g} s")
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
    rules: ConnectionRules = OPEN,
) -> None:
    """Serve until `stop` is set, then end open requests within `graceful_stop_seconds`.

    `listeners` are more ports with their names. `on_listening(port)` is called once connections are
    accepted (port 0: the one chosen). Raises OSError when the address cannot be bound.
    """
    plain_sockets: list[socket.socket] = []
    secured: dict[socket.socket, SecuredPort] = {}
    pending = {
        name: _new_pending(limits)
        for name in ("", *listeners.values())
        if rules.requires_authentication(name)
    }
    of_this_server = {
        "server_limits": limits,
        "listeners": listeners,
        "rules": rules,
        "pending": pending,
    }
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
    config.load()
    bound_port = port
    server = _Server(
        config, stop, lambda: on_listening(bound_port), plain_sockets, secured, rules.tls
    )
    try:
        for each, name in ((port, ""), *listeners.items()):
            listening = _listen(host, each, limits.backlog)
            mode = TlsMode.DISABLED if rules.tls is None else rules.tls.mode_of(name)
            if rules.tls is None or mode is TlsMode.DISABLED:
                plain_sockets.append(listening)
            else:
                tls = _tls_listener(rules.tls, name, limits, rules.rejections)
                secured[listening] = SecuredPort(tls, accepts_plain=mode is TlsMode.OPTIONAL)
            if not name:
                bound_port = listening.getsockname()[1]
        await server.serve([])
    finally:
        for listening in (*plain_sockets, *secured):
            listening.close()


def _new_pending(limits: ServerLimits) -> PendingConnections:
    return PendingConnections(limits.unauthenticated_connections, limits.unauthenticated_of_address)


def _tls_listener(
    tls: HttpTls, name: str, limits: ServerLimits, rejections: ConnectionRejections
) -> TlsListener:
    def on_rejected(address: str, reason: str, detail: str) -> None:
        rejections.note(address, reason, detail, protocol="http", listener=name)

    return TlsListener(tls.context, _new_pending(limits), on_rejected)


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
