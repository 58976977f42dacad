"""Accept TLS connections so that each handshake is bounded, and one that fails is told of.

A port may accept plain connections as well, told apart by their first byte: a TLS handshake
begins with 0x16. No frame of Kafka does, as it would claim 352 MiB, and no HTTP request. The byte
is looked at and stays in the socket, so that the connection is made as if it had been known from
the start.

A server's own TLS (`create_server(ssl=...)`) shows a connection after its handshake only: those
that are half open are in no limit, and failures are silent. Here a connection is counted from
its acceptance on, and gets the protocol of its server after the handshake.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tidemark_protocol.pending_connections import PendingConnections

TLS_HANDSHAKE = b"\x16"
HANDSHAKE_SECONDS = 10.0
SHUTDOWN_SECONDS = 5.0
MAX_REASON = 200
ACCEPTED_AT_A_TIME = 64
NO_DESCRIPTOR_SECONDS = 1.0  # of not accepting, when this process has no file to spare
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_FAILURES = (  # of OpenSSL's texts, in lower case
    ("http_request", "plain text at a TLS port"),
    ("http request", "plain text at a TLS port"),
    ("wrong_version_number", "plain text at a TLS port"),
    ("wrong version number", "plain text at a TLS port"),
    ("record layer failure", "plain text at a TLS port"),
    ("certificate has expired", "expired certificate"),
    ("certificate is not yet valid", "certificate is not valid yet"),
    ("unable to get local issuer", "certificate of an unknown authority"),
    ("self-signed", "certificate of an unknown authority"),
    ("self signed", "certificate of an unknown authority"),
    ("signature failure", "certificate of an unknown authority"),
    ("unsuitable certificate purpose", "certificate for another purpose"),
    ("peer did not return", "no client certificate"),
    ("unsupported_protocol", "TLS version"),
    ("unsupported protocol", "TLS version"),
    ("no_protocols_available", "TLS version"),
    ("version too low", "TLS version"),
    ("no_shared_cipher", "no shared cipher"),
    ("no shared cipher", "no shared cipher"),
    ("unknown_ca", "the client does not trust this server"),
    ("unknown ca", "the client does not trust this server"),
    ("bad certificate", "the client does not trust this server"),
    ("certificate unknown", "the client does not trust this server"),
)
TIMED_OUT = "handshake timed out"
ENDED = "the client ended it"
SILENT = "no first byte"
FAILED = "handshake failed"

_log = logging.getLogger(__name__)

# Host of the client, kind, reason: of one connection that is rejected.
OnRejected = Callable[[str, str, str], None]


def failure_kind(error: BaseException) -> str:
    """Return why a handshake failed, as one of few words."""
    text = f"{getattr(error, 'reason', '')} {error}".lower()
    for found, kind in _FAILURES:
        if found in text:
            return kind
    if isinstance(error, TimeoutError | ConnectionAbortedError) or "too long" in text:
        return TIMED_OUT
    return FAILED if isinstance(error, ssl.SSLError) else ENDED


@dataclass(frozen=True, slots=True)
class TlsListener:
    """What the connections of one port share; `context` is called for each of them."""

    context: Callable[[], ssl.SSLContext]
    pending: PendingConnections
    on_rejected: OnRejected
    handshake_seconds: float = HANDSHAKE_SECONDS


class TlsServer:
    """Accept the connections of a socket until it is closed; the interface of asyncio.Server."""

    def __init__(
        self,
        listener: TlsListener,
        new_protocol: Callable[[], asyncio.Protocol],
        listening: socket.socket,
        new_plain: Callable[[], asyncio.Protocol] | None = None,
    ) -> None:
        """Accept from now on, plain connections too if there is a protocol for them.

        The socket is closed with the server.
        """
        self._new_plain = new_plain
        self._listener = listener
        self._new_protocol = new_protocol
        self._listening = listening
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[_Handshake] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._is_closed = False
        listening.setblocking(False)
        self._read()

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        return () if self._is_closed else (self._listening,)

    def close(self) -> None:
        """Accept no more, and end handshakes; connections that are open live on."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listening.fileno())
        self._listening.close()
        for handshake in tuple(self._handshakes):
            handshake.cancel()

    async def wait_closed(self) -> None:
        tasks = [handshake.task for handshake in self._handshakes]
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- inside

    def _forget(self, handshake: "_Handshake", task: asyncio.Task[None]) -> None:
        self._handshakes.discard(handshake)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("connection not accepted", exc_info=error)

    def _read(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_A_TIME):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR:
                    raise
                self._loop.remove_reader(self._listening.fileno())
                self._pause = self._loop.call_later(NO_DESCRIPTOR_SECONDS, self._read)
                return
            accepted.setblocking(False)
            handshake = _Handshake(
                self._listener, self._new_protocol, self._new_plain, accepted, str(address[0])
            )
            self._handshakes.add(handshake)
            handshake.task.add_done_callback(partial(self._forget, handshake))


class _Handshake:
    """One connection until its handshake is over."""

    def __init__(
        self,
        listener: TlsListener,
        new_protocol: Callable[[], asyncio.Protocol],
        new_plain: Callable[[], asyncio.Protocol] | None,
        accepted: socket.socket,
        host: str,
    ) -> None:
        self._listener = listener
        self._accepted = accepted
        self._host = host
        self._is_rejected = False
        listener.pending.join(self, host)
        self._loop = asyncio.get_running_loop()
        self.task = self._loop.create_task(
            self._connect(new_protocol, new_plain), name="TLS handshake"
        )

    def reject(self, kind: str, reason: str) -> None:
        """End it, because there are too many."""
        self._is_rejected = True
        self._listener.on_rejected(self._host, kind, reason)
        self.cancel()

    def cancel(self) -> None:
        with contextlib.suppress(OSError):
            self._accepted.shutdown(socket.SHUT_RDWR)
        self.task.cancel()

    async def _connect(
        self,
        new_protocol: Callable[[], asyncio.Protocol],
        new_plain: Callable[[], asyncio.Protocol] | None,
    ) -> None:
        try:
            first = TLS_HANDSHAKE if new_plain is None else await self._first_byte()
            if new_plain is not None and first != TLS_HANDSHAKE:
                await self._loop.connect_accepted_socket(new_plain, self._accepted)
            else:
                await self._shake_hands(new_protocol)
        except _Silent as error:
            self._accepted.close()
            if error.is_late:
                self._listener.on_rejected(self._host, SILENT, str(error))
        except (OSError, RuntimeError) as error:
            self._accepted.close()
            if not self._is_rejected:
                kind = failure_kind(error)
                self._listener.on_rejected(self._host, f"TLS: {kind}", str(error)[:MAX_REASON])
        except asyncio.CancelledError:
            self._accepted.close()
            raise
        finally:
            self._listener.pending.forget(self)

    async def _shake_hands(self, new_protocol: Callable[[], asyncio.Protocol]) -> None:
        await self._loop.connect_accepted_socket(
            new_protocol,
            self._accepted,
            ssl=self._listener.context(),
            ssl_handshake_timeout=self._listener.handshake_seconds,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS,
        )

    async def _first_byte(self) -> bytes:
        """Return the first byte, which stays in the socket; raises _Silent if none comes."""
        seconds = self._listener.handshake_seconds
        try:
            async with asyncio.timeout(seconds):
                while True:
                    with contextlib.suppress(BlockingIOError, InterruptedError):
                        first = self._accepted.recv(1, socket.MSG_PEEK)
                        break
                    await self._readable()
        except TimeoutError:
            raise _Silent(f"none within {seconds:g} s", is_late=True) from None
        except OSError:
            first = b""
        if not first:
            raise _Silent(ENDED)
        return first

    async def _readable(self) -> None:
        readable = self._loop.create_future()
        self._loop.add_reader(self._accepted, readable.set_result, None)
        try:
            await readable
        finally:
            self._loop.remove_reader(self._accepted)


class _Silent(Exception):
    def __init__(self, text: str, *, is_late: bool = False) -> None:
        super().__init__(text)
        self.is_late = is_late
