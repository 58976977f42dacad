"""Quotas of a BrokerPool over HTTP, by the client id that a request names (KIP-13).

The same counts as on the Kafka port. Who is above its quota is refused before anything is read or
done, with the seconds until it is within it again. Time on the event loop is not counted here.
"""

from math import ceil

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.http.problems import HttpProblem, Outcome
from tidemark_broker.http.requests import Request
from tidemark_broker.runtime.kafka.quotas import ClientQuotas, Used


class HttpQuotas:
    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas

    def require(self, request: Request, used: Used) -> None:
        """Raises HttpProblem (429)."""
        wait_ms = self._quotas.throttle_ms(request.client_id, used, 0)
        if wait_ms:
            name = f"client id {request.client_id[:80]!r}" if request.client_id else "no client id"
            raise HttpProblem(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"{name}: above its quota of {used.value} bytes for {wait_ms} ms more",
                status=429,
                outcome=Outcome.NOT_WRITTEN,
                must_close=used is Used.PRODUCE_BYTES,
                retry_after_seconds=ceil(wait_ms / 1000),
            )

    def note(self, request: Request, used: Used, size_bytes: int) -> float:
        """Seconds until it is within its quota again."""
        return self._quotas.throttle_ms(request.client_id, used, size_bytes) / 1000
