"""Send HTTP requests, and tell what a failure means for the request.

After `NotConnected` certainly nothing was sent; after `TruncatedResponse` or a timeout the server
may have acted. aiohttp sends a GET again if its connection turns out to be closed; `_send_once`
prevents that. aiohttp is imported with the first request, because its import takes longer than many
a command.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark_client.credentials import authorization
from tidemark_client.trust import tls_context

if TYPE_CHECKING:
    import aiohttp

MOST_BODY_BYTES = 256 * 1024 * 1024
KEEP_ALIVE_SECONDS = 10.0  # far below the brokers' 75 s: never used as they close it


class NotConnected(OSError):
    """An error: no connection was made, so no byte of the request was sent."""


class TruncatedResponse(OSError):
    """An error: the connection ended before the response did, or the response is not HTTP."""


@dataclass(frozen=True, slots=True)
class TimeLimits:
    total_seconds: float
    connect_seconds: float = 0.25


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpSession:
    """A session for any number of requests at a time, of tasks of one loop."""

    def __init__(self, *, repeats_gets: bool = True, authenticates: bool = False) -> None:
        """Create a session; with `repeats_gets` a GET may be sent twice.

        With `authenticates` requests go to brokers, with the client's token if there is one.
        """
        self._repeats_gets = repeats_gets
        self._authenticates = authenticates
        self._opened: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()
            self._opened = None

    async def get(
        self, url: str, limits: TimeLimits, *, most_bytes: int = MOST_BODY_BYTES
    ) -> HttpResponse:
        """Send a GET; redirects are responses.

        Raises NotConnected, TruncatedResponse, TimeoutError.
        """
        return await self._ask("GET", url, limits, most_bytes=most_bytes)

    async def post(
        self,
        url: str,
        limits: TimeLimits,
        *,
        body: bytes = b"",
        content_type: str = "application/json",
    ) -> HttpResponse:
        """Send a POST.

        Raises what `get` raises.
        """
        return await self._ask("POST", url, limits, body=body, content_type=content_type)

    async def delete(
        self, url: str, limits: TimeLimits, *, headers: Mapping[str, str] | None = None
    ) -> HttpResponse:
        """Send a DELETE.

        Raises what `get` raises.
        """
        return await self._ask("DELETE", url, limits, headers=headers)

    def _session(self) -> "aiohttp.ClientSession":
        import aiohttp

        if self._opened is None:
            self._opened = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS),
                trust_env=False,
                middlewares=() if self._repeats_gets else (_send_once,),
            )
        return self._opened

    def _headers(self, content_type: str) -> dict[str, str]:
        headers = authorization() if self._authenticates else {}
        return headers | {"Content-Type": content_type} if content_type else headers

    async def _ask(
        self,
        method: str,
        url: str,
        limits: TimeLimits,
        *,
        body: bytes | None = None,
        content_type: str = "",
        most_bytes: int = MOST_BODY_BYTES,
        headers: Mapping[str, str] | None = None,
    ) -> HttpResponse:
        import aiohttp

        try:
            async with self._session().request(
                method,
                url,
                data=body,
                headers=self._headers(content_type) | dict(headers or {}),
                allow_redirects=False,
                ssl=tls_context(url) or True,
                timeout=aiohttp.ClientTimeout(
                    total=limits.total_seconds, sock_connect=limits.connect_seconds
                ),
            ) as response:
                named = {name.lower(): value for name, value in response.headers.items()}
                return HttpResponse(response.status, named, await _read(response, most_bytes))
        except aiohttp.ConnectionTimeoutError as error:
            raise NotConnected(f"no connection within {limits.connect_seconds} s") from error
        except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
            raise NotConnected(str(error)) from error
        except (aiohttp.ClientError, ValueError) as error:
            raise TruncatedResponse(
                f"connection closed during the response: {error or type(error).__name__}"
            ) from error


async def _send_once(
    request: "aiohttp.ClientRequest", send: "aiohttp.ClientHandlerType"
) -> "aiohttp.ClientResponse":
    """Send a request; replace the errors after which aiohttp would send it again."""
    import aiohttp

    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise aiohttp.ClientPayloadError(str(error)) from error


async def _read(response: "aiohttp.ClientResponse", most_bytes: int) -> bytes:
    """Return the body.

    Raises ClientError, and ValueError for more than `most_bytes`.
    """
    pieces: list[bytes] = []
    left_bytes = most_bytes
    async for piece in response.content.iter_any():
        left_bytes -= len(piece)
        if left_bytes < 0:
            raise ValueError(f"expected at most {most_bytes} bytes, found more")
        pieces.append(piece)
    return b"".join(pieces)
