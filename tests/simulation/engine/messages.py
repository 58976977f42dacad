"""Requests and answers over simulated connections: what HTTP is between the real processes.

One connection a request. The server's handler is cancelled when the connection breaks, as the
controller's API does it. A request may be lost, doubled or held back on its way, an answer lost:
then the connection stays open and says nothing, as behind a stuck proxy.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from tests.simulation.engine.costs import charge_message

_REQUEST = struct.Struct(">IHH")  # body, path, token
_RESPONSE = struct.Struct(">IH")  # body, status

STATUS_OK = 200
STATUS_BAD = 400
STATUS_UNKNOWN = 404


class Sender(NamedTuple):
    """Where a request comes from, and the token that it presents."""

    host: str
    token: str = ""


Handler = Callable[[Sender, bytes], Awaitable[bytes]]


class RequestFailed(Exception):
    """The server said so."""


@dataclass(slots=True)
class MessageFaults:
    """Chances per request, 0 to 1."""

    request_lost: float = 0.0
    request_doubled: float = 0.0
    request_late: float = 0.0
    response_lost: float = 0.0
    most_late_ms: int = 2000


async def request(host: str, port: int, path: str, body: bytes, token: str = "") -> bytes:
    """Raises ConnectionError, OSError, RequestFailed. No limit of time: cancel it."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_connection(lambda: _Caller(loop), host, port)
    try:
        name, shown = path.encode(), token.encode()
        charge_message(body)
        transport.write(_REQUEST.pack(len(body), len(name), len(shown)) + name + shown + body)
        status, response = await protocol.responded
        charge_message(response)
    finally:
        transport.close()
    if status != STATUS_OK:
        raise RequestFailed(f"expected status 200, found {status}: {response[:200]!r}")
    return response


class _Caller(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.responded: asyncio.Future[tuple[int, bytes]] = loop.create_future()
        self._data = b""

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) < _RESPONSE.size or self.responded.done():
            return
        size_bytes, status = _RESPONSE.unpack_from(self._data)
        if len(self._data) >= _RESPONSE.size + size_bytes:
            self.responded.set_result((status, self._data[_RESPONSE.size :]))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.responded.done():
            self.responded.set_exception(exc or ConnectionResetError("the server disconnected"))
            self.responded.exception()  # the caller may be gone


class MessageServer:
    """Listens for requests; `handlers` by path may be added to at any time."""

    def __init__(self, handlers: dict[str, Handler], faults: MessageFaults, chance: Random) -> None:
        self.handlers = handlers
        self.faults = faults
        self.chance = chance

    async def start(self, host: str, port: int) -> "tuple[asyncio.AbstractServer, int]":
        """Raises OSError when the port is taken."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Served(self), host, port)
        return server, server.sockets[0].getsockname()[1]

    async def answer(self, path: str, sender: Sender, body: bytes) -> tuple[int, bytes]:
        handler = self.handlers.get(path)
        if handler is None:
            return STATUS_UNKNOWN, path.encode()
        faults, chance = self.faults, self.chance
        if faults.request_late and chance.random() < faults.request_late:
            await asyncio.sleep(chance.random() * faults.most_late_ms / 1000)
        if faults.request_lost and chance.random() < faults.request_lost:
            await asyncio.get_running_loop().create_future()
        if faults.request_doubled and chance.random() < faults.request_doubled:
            asyncio.get_running_loop().create_task(_ignored(handler(sender, body)))
        try:
            response = await handler(sender, body)
        except Exception as error:
            return STATUS_BAD, f"{type(error).__name__}: {error}".encode()
        if faults.response_lost and chance.random() < faults.response_lost:
            await asyncio.get_running_loop().create_future()
        return STATUS_OK, response


async def _ignored(work: Awaitable[bytes]) -> None:
    try:
        await work
    except Exception:
        return


class _Served(asyncio.Protocol):
    def __init__(self, server: MessageServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._host = ""
        self._data = b""
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        # The network says it, not the sender.
        self._host, _ = transport.get_extra_info("peername") or ("", 0)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) < _REQUEST.size or self._task is not None:
            return
        body_bytes, path_bytes, token_bytes = _REQUEST.unpack_from(self._data)
        token_at = _REQUEST.size + path_bytes
        start = token_at + token_bytes
        if len(self._data) >= start + body_bytes:
            path = self._data[_REQUEST.size : token_at].decode()
            sender = Sender(self._host, self._data[token_at:start].decode())
            body = self._data[start : start + body_bytes]
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._answer(path, sender, body), name=f"answer {path}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._task is not None:
            self._task.cancel()

    async def _answer(self, path: str, sender: Sender, body: bytes) -> None:
        charge_message(body)
        status, response = await self._server.answer(path, sender, body)
        charge_message(response)
        if self._transport is not None:
            self._transport.write(_RESPONSE.pack(len(response), status) + response)
