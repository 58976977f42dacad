"""HTTP/1.1 requests over kept connections, with nothing but the standard library.

aiohttp takes longer to import than a short command runs. What matters here is what a failure says:
`NotConnected` is certain that nothing was sent; after `BrokenOff` or a timeout the other side may
have acted. Only a GET on a kept connection that turns out to be closed is sent once more.
"""

import asyncio
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

HEAD_BYTES = 64 * 1024
MOST_BODY_BYTES = 256 * 1024 * 1024
KEEP_ALIVE_SECONDS = 10.0  # far below the brokers' 75 s: never used as they close it
HOSTS_SECONDS = 60.0
_WITHOUT_BODY = frozenset({204, 304})
_PATH_CHARACTERS = "/?&=%:@!$'()*+,;~-._"


class NotConnected(OSError):
    """No connection was made, so no byte of the request left us."""


class BrokenOff(OSError):
    """The connection ended before its answer did, or that is not HTTP."""


@dataclass(frozen=True, slots=True)
class TimeLimits:
    total_seconds: float
    connect_seconds: float = 0.25


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpSession:
    """Any number of requests at a time, of tasks of one loop."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, str], list[_Connection]] = {}
        self._hosts: dict[str, tuple[tuple[str, ...], float]] = {}

    async def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    async def get(
        self,
        url: str,
        limits: TimeLimits,
        *,
        most_bytes: int = MOST_BODY_BYTES,
        is_repeatable: bool = True,
    ) -> HttpAnswer:
        """`is_repeatable`: to be asked once more makes no difference to the other side. Redirects
        are answers. Raises NotConnected, BrokenOff, TimeoutError."""
        async with asyncio.timeout(limits.total_seconds):
            connection = self._kept(url)
            if connection is not None:
                try:
                    return await self._exchange(connection, "GET", url, most_bytes=most_bytes)
                except BrokenOff:
                    if connection.has_answered or not is_repeatable:
                        raise
            connection = await self._connected(url, limits)
            return await self._exchange(connection, "GET", url, most_bytes=most_bytes)

    async def post(
        self,
        url: str,
        limits: TimeLimits,
        *,
        body: bytes = b"",
        content_type: str = "application/json",
    ) -> HttpAnswer:
        """Raises as `get`."""
        async with asyncio.timeout(limits.total_seconds):
            connection = self._kept(url) or await self._connected(url, limits)
            return await self._exchange(
                connection, "POST", url, body=body, content_type=content_type
            )

    async def delete(self, url: str, limits: TimeLimits) -> HttpAnswer:
        """Raises as `get`."""
        async with asyncio.timeout(limits.total_seconds):
            connection = self._kept(url) or await self._connected(url, limits)
            return await self._exchange(connection, "DELETE", url)

    def _kept(self, url: str) -> "_Connection | None":
        idle = self._idle.get(_origin(url), [])
        while idle:
            connection = idle.pop()
            if connection.is_usable:
                return connection
            connection.close()
        return None

    async def _connected(self, url: str, limits: TimeLimits) -> "_Connection":
        """To the first address of its host that answers; `connect_seconds` are for each."""
        address = urlsplit(url)
        tls_name = address.hostname if address.scheme == "https" else None
        failure = "no address is known"
        try:
            port = address.port or (443 if tls_name else 80)
            hosts = await self._resolved(str(address.hostname), port)
        except (OSError, ValueError) as error:
            raise NotConnected(str(error) or type(error).__name__) from error
        for host in hosts:
            try:
                async with asyncio.timeout(limits.connect_seconds):
                    reader, writer = await asyncio.open_connection(
                        host,
                        port,
                        ssl=True if tls_name else None,
                        server_hostname=tls_name,
                        limit=4 * HEAD_BYTES,
                    )
            except TimeoutError:
                failure = f"{host}:{port}: no connection within {limits.connect_seconds} s"
            except OSError as error:
                failure = str(error) or type(error).__name__
            else:
                return _Connection(reader, writer)
        self._hosts.pop(str(address.hostname), None)  # it may have moved
        raise NotConnected(failure)

    async def _resolved(self, host: str, port: int) -> tuple[str, ...]:
        """Kept for a while: a name server may be slower than the connection."""
        loop = asyncio.get_running_loop()
        hosts, until = self._hosts.get(host, ((), 0.0))
        if loop.time() >= until:
            infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            hosts = tuple(dict.fromkeys(str(info[4][0]) for info in infos))
            self._hosts[host] = hosts, loop.time() + HOSTS_SECONDS
        return hosts

    async def _exchange(
        self,
        connection: "_Connection",
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        content_type: str = "",
        most_bytes: int = MOST_BODY_BYTES,
    ) -> HttpAnswer:
        try:
            connection.send(_request(method, url, body, content_type))
            answer = await connection.answer(most_bytes)
        except (EOFError, OSError, ValueError, asyncio.LimitOverrunError) as error:
            connection.close()
            raise BrokenOff(f"connection broken off: {error or type(error).__name__}") from error
        except BaseException:
            connection.close()  # what comes yet would be taken for the next answer
            raise
        if connection.is_kept:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.setdefault(_origin(url), []).append(connection)
        else:
            connection.close()
        return answer


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.has_answered = False  # the last request, at least in part
        self.is_kept = False  # by both sides, after the last answer
        self.idle_since = 0.0
        self._reader = reader
        self._writer = writer

    @property
    def is_usable(self) -> bool:
        is_closed = self._reader.at_eof() or self._writer.is_closing()
        age_seconds = asyncio.get_running_loop().time() - self.idle_since
        return not is_closed and age_seconds < KEEP_ALIVE_SECONDS

    def close(self) -> None:
        self._writer.transport.abort()

    def send(self, request: bytes) -> None:
        """Not waited for: who refuses a large body may answer before it has read it."""
        self.has_answered = self.is_kept = False
        self._writer.write(request)

    async def answer(self, most_bytes: int) -> HttpAnswer:
        """Raises EOFError, OSError, ValueError."""
        status, headers, is_kept = _head(await self._reader.readuntil(b"\r\n\r\n"))
        self.has_answered = True
        while 100 <= status < 200:
            status, headers, is_kept = _head(await self._reader.readuntil(b"\r\n\r\n"))
        length = headers.get("content-length")
        if status in _WITHOUT_BODY:
            body = b""
        elif "chunked" in headers.get("transfer-encoding", ""):
            body = await self._chunks(most_bytes)
        elif length is not None:
            body = await self._reader.readexactly(_size(length, 10, most_bytes))
        else:
            is_kept = False
            body = await self._rest(most_bytes)
        self.is_kept = is_kept
        return HttpAnswer(status, headers, body)

    async def _chunks(self, most_bytes: int) -> bytes:
        pieces: list[bytes] = []
        left_bytes = most_bytes
        while True:
            line = await self._reader.readuntil(b"\r\n")
            size = _size(line.partition(b";")[0].decode("latin-1"), 16, left_bytes)
            if size == 0:
                break
            pieces.append(await self._reader.readexactly(size))
            left_bytes -= size
            await self._reader.readexactly(2)
        while await self._reader.readuntil(b"\r\n") != b"\r\n":
            pass
        return b"".join(pieces)

    async def _rest(self, most_bytes: int) -> bytes:
        pieces: list[bytes] = []
        left_bytes = most_bytes
        while piece := await self._reader.read(HEAD_BYTES):
            left_bytes -= len(piece)
            if left_bytes < 0:
                raise ValueError(f"expected at most {most_bytes} bytes")
            pieces.append(piece)
        return b"".join(pieces)


def _origin(url: str) -> tuple[str, str]:
    """Raises NotConnected for what is no address."""
    try:
        address = urlsplit(url)
        is_address = address.scheme in ("http", "https") and bool(address.hostname)
    except ValueError:
        is_address = False
    if not is_address:
        raise NotConnected(f"expected http://HOST:PORT, found {url[:200]!r}")
    return address.scheme, address.netloc


def _request(method: str, url: str, body: bytes | None, content_type: str) -> bytes:
    address = urlsplit(url)
    target = quote(address.path or "/", safe=_PATH_CHARACTERS)
    if address.query:
        target += "?" + quote(address.query, safe=_PATH_CHARACTERS)
    lines = [f"{method} {target} HTTP/1.1", f"Host: {address.netloc}"]
    if body is not None:
        lines += [f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def _head(data: bytes) -> tuple[int, dict[str, str], bool]:
    """Status, headers, and whether the connection stays. Raises ValueError."""
    first, *lines = data.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or not re.fullmatch("[1-9][0-9][0-9]", status):
        raise ValueError(f"expected HTTP/1.1, found {first[:80]!r}")
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    wish = headers.get("connection", "").lower()
    is_kept = wish == "keep-alive" or (version == "HTTP/1.1" and wish != "close")
    return int(status), headers, is_kept


def _size(text: str, base: int, most_bytes: int) -> int:
    size = int(text, base)
    if not 0 <= size <= most_bytes:
        raise ValueError(f"expected at most {most_bytes} bytes, found {size}")
    return size
