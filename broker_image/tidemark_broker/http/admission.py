"""How much is let in at once. At a limit a request is refused at once, with Retry-After."""

from collections.abc import Iterator
from contextlib import contextmanager

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.http.problems import HttpProblem, Outcome


class Admission:
    """Counts requests and the bytes of their bodies and answers. Every `enter` has its `leave`."""

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self.requests_in_flight = 0
        self.bytes_in_flight = 0

    def enter(self, body_bytes: int) -> None:
        if self.requests_in_flight >= self._limits.requests_in_flight:
            raise _at_limit(f"{self._limits.requests_in_flight} requests in flight")
        self._reserve(body_bytes)
        self.requests_in_flight += 1

    def leave(self, body_bytes: int) -> None:
        self.requests_in_flight -= 1
        self.bytes_in_flight -= body_bytes

    @contextmanager
    def bytes_reserved(self, count: int) -> Iterator[None]:
        self._reserve(count)
        try:
            yield
        finally:
            self.bytes_in_flight -= count

    def _reserve(self, count: int) -> None:
        # One request is always let in, however large, so that a small limit cannot lock all out.
        if self.bytes_in_flight and self.bytes_in_flight + count > self._limits.bytes_in_flight:
            raise _at_limit(f"{self._limits.bytes_in_flight} bytes in flight")
        self.bytes_in_flight += count


def _at_limit(what: str) -> HttpProblem:
    return HttpProblem(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        f"this broker is at its limit of {what}; try again shortly",
        outcome=Outcome.NOT_WRITTEN,
        must_close=True,
    )
