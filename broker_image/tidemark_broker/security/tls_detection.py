"""Accept plain connections and TLS at the same port, told apart by their first byte.

A TLS record of a handshake begins with 0x16. No frame of Kafka does, as it would claim 352 MiB, and
no HTTP request. The byte is looked at and stays in the socket, so that the connection is made as if
it had been known from the start. Until it comes, a connection is in the bound of unauthenticated
ones, and is closed after a time.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any, Protocol

from tidemark_broker.security.tls import HANDSHAKE_TIMEOUT_SECONDS, SHUTDOWN_TIMEOUT_SECONDS

TLS_HANDSHAKE = 0x16
FIRST_BYTE_SECONDS = 10.0
ACCEPTED_AT_A_TIME = 64
NO_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
RETRY_SECONDS = 1.0

_log = logging.getLogger(__name__)

NewProtocol = Callable[[], asyncio.BaseProtocol]


class ClosableServer(Protocol):
    """What listens at a port: `asyncio.Server` or `TlsDetectingServer`."""

    def close(self) -> None: ...
    async def wait_closed(self) -> None: ...


class Bound(Protocol):
    """The bound of connections that are not authenticated; rejects the oldest when it is full."""

    def join(self, connection: Any) -> None: ...
    def forget(self, connection: Any) -> None: ...


class _Undecided:
    """An accepted connection whose first byte has not come."""

    def __init__(self, server: "TlsDetectingServer", stream: socket.socket, bound: Bound) -> None:
        self._server = server
        self._stream = stream
        self._bound = bound
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, seconds: float) -> None:
        self._bound.join(self)
        self._timer = self._loop.call_later(seconds, self.close)
        self._loop.add_reader(self._stream, self.look)

    def look(self) -> bool:
        """Return whether the connection is decided or closed."""
        try:
            first = self._stream.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            first = b""
        if not first:
            self.close()
            return True
        self._leave()
        self._server.connect(self._stream, has_tls=first[0] == TLS_HANDSHAKE)
        return True

    def reject(self, kind: str, reason: str) -> None:
        """Close the connection, as there are too many."""
        self.close()

    def close(self) -> None:
        self._leave()
        self._stream.close()

    def _leave(self) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        self._loop.remove_reader(self._stream)
        self._bound.forget(self)
        self._server.undecided.pop(self, None)


class TlsDetectingServer:
    """A server at a listening socket that does not block."""

    def __init__(
        self,
        listening: socket.socket,
        *,
        plain: NewProtocol,
        tls: NewProtocol,
        context: Callable[[], ssl.SSLContext],
        bound: Bound,
        first_byte_seconds: float = FIRST_BYTE_SECONDS,
    ) -> None:
        """Accept from now on; `context` is asked for each connection with TLS."""
        self._listening = listening
        self._plain = plain
        self._tls = tls
        self._context = context
        self._bound = bound
        self._first_byte_seconds = first_byte_seconds
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._connecting: set[asyncio.Task[None]] = set()
        self.undecided: dict[_Undecided, None] = {}
        self._is_closed = False
        self._loop.add_reader(listening, self._accept)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._pause is None:
            self._loop.remove_reader(self._listening)
        else:
            self._pause.cancel()
        self._listening.close()
        for each in tuple(self.undecided):
            each.close()
        for task in self._connecting:
            task.cancel()

    async def wait_closed(self) -> None:
        if self._connecting:
            await asyncio.wait(self._connecting)

    def connect(self, stream: socket.socket, *, has_tls: bool) -> None:
        """Make the connection, whose first byte is still in the socket."""
        task = self._loop.create_task(self._connect(stream, has_tls=has_tls))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, stream: socket.socket, *, has_tls: bool) -> None:
        options: dict[str, Any] = {}
        if has_tls:
            options = {
                "ssl": self._context(),
                "ssl_handshake_timeout": HANDSHAKE_TIMEOUT_SECONDS,
                "ssl_shutdown_timeout": SHUTDOWN_TIMEOUT_SECONDS,
            }
        try:
            await self._loop.connect_accepted_socket(
                self._tls if has_tls else self._plain, stream, **options
            )
        except (OSError, TimeoutError) as error:  # also of a handshake
            _log.debug("connection not made", extra={"reason": str(error)})
            stream.close()

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_A_TIME):
            try:
                stream, _address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in NO_RESOURCES:
                    raise
                _log.error("connection not accepted", extra={"reason": str(error)})
                self._loop.remove_reader(self._listening)
                self._pause = self._loop.call_later(RETRY_SECONDS, self._accept_again)
                return
            stream.setblocking(False)
            undecided = _Undecided(self, stream, self._bound)
            if not undecided.look():
                self.undecided[undecided] = None
                undecided.wait(self._first_byte_seconds)

    def _accept_again(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listening, self._accept)
