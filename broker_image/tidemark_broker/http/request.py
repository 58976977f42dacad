"""Read one request: its headers, and its body within limits."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from tidemark_protocol.access_messages import ANONYMOUS, Principal, ResourceKind, Verb
from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.http.problems import HttpProblem, Outcome
from tidemark_broker.http.response import ClientGone, Receive, Scope
from tidemark_broker.security.client_connections import ClientConnections, CountedConnection

FORWARDED_BY = b"tidemark-forwarded-by"
CLIENT_ID = b"tidemark-client-id"
AUTHORIZATION = b"authorization"
LISTENER = "tidemark.listener"  # of the scope: the named listener that the connection came in by
CONNECTION = "tidemark.connection"  # of the scope: the CountedConnection
ADMIT = "tidemark.admit"  # of the scope: called when the client of its connection is known
CERTIFICATE = "tidemark.certificate"  # of the scope: of a client that showed one, verified
PRINCIPAL = "tidemark.principal"  # of the scope: who sent the request (http/authentication.py)


class RequestAccess(Protocol):
    """The check of what the sender of a request may do (route_access.py)."""

    async def require(
        self, request: "Request", verb: Verb, kind: ResourceKind, names: Iterable[str]
    ) -> None:
        """Raise HttpProblem (403) unless all of these are allowed."""
        ...


def authorization_of(scope: Scope) -> bytes:
    """Return the header Authorization, or b"" if it is not there exactly once."""
    found = [value for name, value in scope["headers"] if name == AUTHORIZATION]
    return bytes(found[0]) if len(found) == 1 else b""


def count_use(scope: Scope, connections: ClientConnections) -> None:
    """Count the connection of a request, unless another broker forwarded it for its client."""
    counted: CountedConnection | None = scope.get(CONNECTION)
    if counted is None or any(name == FORWARDED_BY for name, _ in scope["headers"]):
        return
    counted.used(connections, is_authenticated=PRINCIPAL in scope)


class Request:
    __slots__ = (
        "accept",
        "access",
        "authorization",
        "body_size_bytes",
        "client_host",
        "client_id",
        "content_encoding",
        "content_length",
        "content_type",
        "has_tls",
        "is_forwarded",
        "listener",
        "principal",
        "query_string",
        "raw_path",
        "receive",
    )

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.receive = receive
        self.query_string: bytes = scope["query_string"]
        self.raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        self.accept = self.content_encoding = self.content_length = self.content_type = b""
        self.authorization = b""
        self.is_forwarded = False
        self.client_id = ""
        self.listener: str = scope.get(LISTENER, "")
        self.has_tls = scope.get("scheme") == "https"
        self.principal: Principal = scope.get(PRINCIPAL, ANONYMOUS)
        self.client_host: str = (scope.get("client") or ("",))[0]
        self.access: RequestAccess | None = None  # None: everything is allowed
        self.body_size_bytes = 0  # of what was read
        for name, value in scope["headers"]:
            if name == b"content-type":
                self.content_type = value
            elif name == b"content-length":
                self.content_length = value
            elif name == b"accept":
                self.accept = value
            elif name == b"content-encoding":
                self.content_encoding = value
            elif name == CLIENT_ID:
                self.client_id = value.decode("latin-1")
            elif name == AUTHORIZATION:
                self.authorization = value
            elif name == FORWARDED_BY:
                # Any client may claim it: it only turns redirects and forwarding off.
                self.is_forwarded = True

    @property
    def target(self) -> str:
        """Return path and query as sent, which a redirect must repeat."""
        path = self.path
        return f"{path}?{self.query_string.decode('latin-1')}" if self.query_string else path

    @property
    def path(self) -> str:
        """Return the path, the `instance` of a problem."""
        return self.raw_path.decode("latin-1")

    async def require(self, verb: Verb, kind: ResourceKind, names: Iterable[str]) -> None:
        """Check names that only the body has. Raises HttpProblem (403)."""
        if self.access is not None:
            await self.access.require(self, verb, kind, names)

    def body_bytes_at_most(self, limits: HttpLimits) -> int:
        most_bytes = limits.forwarded_body_bytes if self.is_forwarded else limits.body_bytes
        return min(int(self.content_length), most_bytes) if self.content_length else most_bytes

    async def read_body(self, limits: HttpLimits) -> bytes:
        """Return the body, never holding more than the limit.

        Raises HttpProblem (413, 415, 408) or ClientGone.
        """
        if self.content_encoding not in (b"", b"identity"):
            raise HttpProblem(
                ErrorCode.INVALID_REQUEST,
                "Content-Encoding: expected none; "
                f"found {self.content_encoding[:40].decode('latin-1')!r}",
                status=415,
                must_close=True,
            )
        most_bytes = limits.forwarded_body_bytes if self.is_forwarded else limits.body_bytes
        if self.content_length and int(self.content_length) > most_bytes:
            raise _too_large(most_bytes, self.content_length.decode("latin-1"))
        deadline = _Deadline(limits.body_seconds)
        try:
            return await self._read(most_bytes)
        except asyncio.CancelledError:
            if not deadline.is_over_for_us():
                raise
            raise HttpProblem(
                ErrorCode.REQUEST_TIMED_OUT,
                f"body: expected all of it within {limits.body_seconds:g} s: send a smaller one",
                status=408,
                outcome=Outcome.NOT_WRITTEN,
                must_close=True,
            ) from None
        finally:
            deadline.timer.cancel()

    async def _read(self, most_bytes: int) -> bytes:
        chunks: list[bytes] = []
        size_bytes = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk: bytes = message.get("body", b"")
            size_bytes += len(chunk)
            self.body_size_bytes = size_bytes
            if size_bytes > most_bytes:
                raise _too_large(most_bytes, "more")
            if not message.get("more_body", False):
                break
            chunks.append(chunk)
        if not chunks:
            return chunk
        chunks.append(chunk)
        return b"".join(chunks)


class _Deadline:
    """A deadline as asyncio.timeout, at a quarter of its cost (7 us a request)."""

    __slots__ = ("_is_over", "_task", "timer")

    def __init__(self, seconds: float) -> None:
        self._task = asyncio.current_task()
        self._is_over = False
        self.timer = asyncio.get_running_loop().call_later(seconds, self._end)

    def _end(self) -> None:
        self._is_over = True
        if self._task is not None:
            self._task.cancel()

    def is_over_for_us(self) -> bool:
        """Return whether a cancellation is this deadline's alone, not of the whole task."""
        return self._is_over and self._task is not None and self._task.uncancel() == 0


def _too_large(most_bytes: int, found: str) -> HttpProblem:
    return HttpProblem(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"body: expected at most {most_bytes} bytes, found {found}: send fewer records per request",
        must_close=True,
    )
