"""Request samples from an HTTP server; decide which errors are retried.

- 429, 500, 502, 503, 504, or a connection that breaks, before or within the response: retried after
  each pause of `RetryPolicy`; `Retry-After` is respected.
- No response, or an incomplete one in the time: retried once.
- 413, 422, and messages of too many samples or too long a query: `TooLarge`, and the caller asks
  for less.
- A refused connection, an unknown host: if the server never responded, the address is probably
  wrong and it is an error immediately; else it is a restart, and retried.
- All others (400, 401, 404, an untrusted certificate, no HTTP): an error immediately.

A truncated response is never taken for a short one: nothing of it is used.
"""

import http.client
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tidemark_audit.sources.source import SourceError

BUSY = (429, 500, 502, 503, 504)
TOO_LARGE = (413, 422)
# Prometheus says so with 400, 422, 500 or 503, by version and by interface.
_SAYS_TOO_LARGE = re.compile(
    r"too many samples|exceeded sample limit|query timed out|\"errorType\":\s*\"timeout\""
)
MOST_WAIT_SECONDS = 30.0  # that a `Retry-After` is given
MOST_RESPONSE_BYTES = 256 << 20  # five times what a batch takes in the longest form
MANY = 1 << 20  # as often as there are pauses
_PIECE_BYTES = 1 << 20
_SAID_BYTES = 300
_TIDEMARKS = "urn:tidemark:problem:"  # how brokers refuse

Read = TypeVar("Read")


class TooLarge(Exception):
    """Report that the server asks for a smaller request."""


class TruncatedResponse(Exception):
    """Report that a response ended before it was complete."""


class NoServerResponse(SourceError):
    """Report that the server rejected a request; `status` is its HTTP status, 0 without HTTP."""

    status: int = 0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Hold the limits and pauses of retries."""

    silence_seconds: float = 120.0  # without one byte: Prometheus's own limit of a query
    response_seconds: float = 600.0  # until an answer is whole, however it trickles
    pauses_seconds: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    token: str = ""
    patience: RetryPolicy = RetryPolicy()
    has_responded: bool = False  # so that a refused connection means a restart

    def ask(
        self, path: str, body: bytes, headers: Mapping[str, str], read: "Callable[[Response], Read]"
    ) -> Read:
        """Send a request and return what `read` makes of the complete response.

        Raises SourceError, TooLarge, and what `read` raises.
        """
        requested = 0
        while True:
            try:
                return self._requested_once(path, body, headers, read)
            except _Trouble as trouble:
                requested += 1
                if requested >= min(trouble.most_times, 1 + len(self.patience.pauses_seconds)):
                    raise self._error(path, trouble, requested) from trouble
                pause = max(self.patience.pauses_seconds[requested - 1], trouble.wait_seconds)
            time.sleep(pause)

    def _requested_once(
        self, path: str, body: bytes, headers: Mapping[str, str], read: "Callable[[Response], Read]"
    ) -> Read:
        started = time.monotonic()
        try:
            request = urllib.request.Request(self.url + path, data=body, headers=dict(headers))
            if self.token:
                request.add_header("Authorization", f"Bearer {self.token}")
            with urllib.request.urlopen(request, timeout=self.patience.silence_seconds) as response:
                return read(Response(response, started + self.patience.response_seconds))
        except urllib.error.HTTPError as error:
            raise _of_status(error) from error
        except urllib.error.URLError as error:
            raise self._of_connection(error.reason) from error
        except (OSError, http.client.HTTPException, TruncatedResponse, UnicodeError) as error:
            raise self._of_connection(error) from error

    def _of_connection(self, error: object) -> "_Trouble":
        text = str(error) or type(error).__name__
        match error:
            case TimeoutError():
                return _Trouble(f"no complete response in time ({text})", most_times=2)
            case http.client.IncompleteRead() | TruncatedResponse():
                return _Trouble(f"a truncated response ({text})")
            case ConnectionRefusedError() | socket.gaierror():
                return _Trouble(text, most_times=MANY if self.has_responded else 1)
            case ConnectionError():
                return _Trouble(f"a closed connection ({text})")
            case ssl.SSLError():
                return _Trouble(text, most_times=1)
            case OSError():
                return _Trouble(text, most_times=MANY if self.has_responded else 1)
            case _:  # no address, or no HTTP
                return _Trouble(f"{type(error).__name__}: {text}", most_times=1)

    def _error(self, path: str, trouble: "_Trouble", requested: int) -> NoServerResponse:
        error = NoServerResponse(
            self.url + path,
            expected="a response of Prometheus",
            found=trouble.said
            if requested == 1
            else f"{trouble.said}; requested {requested} times",
            to_do=_to_do(trouble),
        )
        error.status = trouble.status
        return error


class Response:
    """Read the bytes of a response; a broken connection raises, and is not its end."""

    def __init__(self, response: http.client.HTTPResponse, give_up_at: float) -> None:
        self._response = response
        self._give_up_at = give_up_at
        self._missing = response.length

    @property
    def content_type(self) -> str:
        return str(self._response.headers.get("Content-Type", "")).split(";")[0].strip()

    @property
    def says_its_length(self) -> bool:
        """Return whether the response states its length.

        Else it ends with the connection, whatever ended that.
        """
        return self._response.chunked or self._missing is not None

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; b"" at the end.

        Raises TimeoutError, TruncatedResponse, HTTPException.
        """
        if time.monotonic() > self._give_up_at:
            raise TimeoutError("the response is too slow")
        if self._missing is None:
            return self._response.read1(size)
        data = self._response.read1(min(size, self._missing)) if self._missing else b""
        self._missing -= len(data)
        if not data and self._missing:
            raise TruncatedResponse(f"{self._missing} bytes missing")
        return data

    def whole(self) -> bytes:
        """Return the complete response.

        Raises what `read` raises, and TooLarge.
        """
        window_parts = []
        size = 0
        while window_part := self.read(_PIECE_BYTES):
            window_parts.append(window_part)
            size += len(window_part)
            if size > MOST_RESPONSE_BYTES:
                raise TooLarge(f"a response of more than {MOST_RESPONSE_BYTES} bytes")
        return b"".join(window_parts)


class _Trouble(Exception):
    def __init__(
        self, said: str, *, most_times: int = MANY, wait_seconds: float = 0.0, status: int = 0
    ) -> None:
        super().__init__(said)
        self.said = said
        self.most_times = most_times
        self.wait_seconds = wait_seconds
        self.status = status


def _to_do(trouble: _Trouble) -> str:
    if _TIDEMARKS in trouble.said:
        return (
            "this is a Tidemark broker: use the Prometheus that scrapes it, such as"
            " http://prometheus:9090"
        )
    match trouble.status:
        case 0:
            return "check the address and whether Prometheus listens there"
        case 401 | 403:
            return "check the token: --token-file needs a token with read permission"
        case status if status < 500:
            return "check that the address is that of Prometheus, without a login page or a path"
    return "see the log of Prometheus, which may be overloaded; retry, or use a shorter --window"


def _of_status(error: urllib.error.HTTPError) -> Exception:
    try:
        body = error.read(_SAID_BYTES).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        body = ""  # the status is enough
    said = f"{error.code} {error.reason}: {body}"
    if error.code in TOO_LARGE or _SAYS_TOO_LARGE.search(body):
        return TooLarge(said)
    if error.code not in BUSY:
        return _Trouble(said, most_times=1, status=error.code)
    after = error.headers.get("Retry-After", "")
    wait = min(float(after), MOST_WAIT_SECONDS) if after.isdecimal() else 0.0
    return _Trouble(said, wait_seconds=wait, status=error.code)
