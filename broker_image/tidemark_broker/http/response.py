"""Define a response to one request, and the ASGI types around it."""

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

JSON_TYPE = b"application/json"
TRANSPORT_BUFFER_BYTES = 64 * 1024  # asyncio's: from there on a sender has to wait


class ClientGone(Exception):
    """An error: the client closed its connection."""


async def until_gone(receive: Receive) -> None:
    """Wait until the client has closed its connection, for a request whose body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class AnyResponse(Protocol):
    """A response; `body` is what is held of it until it is sent."""

    status: int
    body: bytes

    async def send_to(self, send: Send) -> None: ...


@dataclass(slots=True)
class Response:
    status: int
    body: bytes
    content_type: bytes = JSON_TYPE
    headers: tuple[tuple[bytes, bytes], ...] = ()

    async def send_to(self, send: Send) -> None:
        about_body = (
            (b"content-type", self.content_type),
            (b"content-length", b"%d" % len(self.body)),
        )
        await send(
            {
                "type": "http.response.start",
                "status": self.status,
                # RFC 9110 8.6: there is nothing to be said of the body of a 204.
                "headers": [*(about_body if self.status != 204 else ()), *self.headers],
            }
        )
        # Sending waits for what was sent before it, never for itself: the empty end lasts until the
        # client has taken the body, which counts as held by us so long.
        is_large = len(self.body) > TRANSPORT_BUFFER_BYTES
        await send({"type": "http.response.body", "body": self.body, "more_body": is_large})
        if is_large:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
