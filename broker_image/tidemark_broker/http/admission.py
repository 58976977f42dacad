"""Limit what is admitted at once; at a limit a request is rejected with Retry-After.

`HttpQuotas` applies the quotas of a BrokerPool over HTTP, by the client id that a request names
(KIP-13). The counts are shared with the Kafka port. A client above its quota is rejected before
anything is read or done, with the seconds until it is within it again. Time on the event loop is
not counted here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.http.problems import HttpProblem, Outcome
from tidemark_broker.http.request import Request
from tidemark_broker.quota_manager import ClientQuotaManager, QuotaType


class Admission:
    """The number of requests, and the bytes of their bodies and responses.

    Each `enter` has its `leave`.
    """

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
        f"this broker is at its limit of {what}: try again later",
        outcome=Outcome.NOT_WRITTEN,
        must_close=True,
    )


class HttpQuotas:
    def __init__(self, quotas: ClientQuotaManager) -> None:
        self._quotas = quotas

    def require(self, request: Request, used: QuotaType) -> None:
        """Raise HttpProblem (429) for a client above its quota."""
        wait_ms = self._quotas.throttle_ms(request.client_id, used, 0)
        if wait_ms:
            name = f"client id {request.client_id[:80]!r}" if request.client_id else "no client id"
            raise HttpProblem(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{name}: the quota of {used.value} bytes is exceeded: try again in {wait_ms} ms",
                status=429,
                outcome=Outcome.NOT_WRITTEN,
                must_close=used is QuotaType.PRODUCE_BYTES,
                retry_after_seconds=ceil(wait_ms / 1000),
            )

    def note(self, request: Request, used: QuotaType, size_bytes: int) -> float:
        """Count bytes; return the seconds until the client is within its quota again."""
        return self._quotas.throttle_ms(request.client_id, used, size_bytes) / 1000
