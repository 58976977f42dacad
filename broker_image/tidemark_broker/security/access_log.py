"""Log denied accesses and admin actions, one structured line each, without any payload.

Lines about denials are limited for each principal, so that a client that repeats a request fills
no disk; the next line says how many were left out.
"""

import logging
from dataclasses import dataclass

from tidemark_protocol.access_messages import Access, Principal
from tidemark_protocol.audit_line import MAX_NAME, PERFORMED, REJECTED, AuditLine

from tidemark_broker.clock import Clock

LINES_OF_A_PERIOD = 10
PERIOD_MS = 10_000
MAX_PRINCIPALS = 1_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Origin:
    """The request that a line is about; `operation` is the name of the API or the HTTP route."""

    principal: Principal
    operation: str
    listener: str
    client_host: str
    correlation: str


@dataclass(slots=True)
class _Period:
    began_ms: int
    lines: int = 0
    left_out: int = 0


class AccessLog:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._periods: dict[Principal, _Period] = {}

    def denied(self, origin: Origin, access: Access) -> None:
        """Log one denied access."""
        period = self._period(origin.principal)
        if period.lines >= LINES_OF_A_PERIOD:
            period.left_out += 1
            return
        period.lines += 1
        extra = _fields(REJECTED, origin, access)
        if period.left_out:
            extra["suppressed"] = period.left_out
            period.left_out = 0
        _log.warning("access denied", extra=extra)

    def performed(self, origin: Origin, access: Access) -> None:
        """Log an action that changes topics, groups or the pool, and that succeeded."""
        _log.info("admin action", extra=_fields(PERFORMED, origin, access))

    def _period(self, principal: Principal) -> _Period:
        now_ms = self._clock()
        period = self._periods.get(principal)
        if period is None:
            while len(self._periods) >= MAX_PRINCIPALS:
                del self._periods[next(iter(self._periods))]
            period = self._periods[principal] = _Period(now_ms)
        elif now_ms - period.began_ms >= PERIOD_MS:
            period.began_ms, period.lines = now_ms, 0
        return period


def _fields(outcome: str, origin: Origin, access: Access) -> dict[str, object]:
    line = AuditLine(
        outcome=outcome,
        principal=origin.principal.name,
        address=origin.client_host,
        protocol="http" if origin.operation.startswith("/") else "kafka",
        listener=origin.listener,
        verb=access.verb.value,
        resource=access.kind.value,
        reason="access denied" if outcome == REJECTED else "",
    )
    return {
        **line.fields(),
        "resource_name": access.name[:MAX_NAME],
        "operation": origin.operation,
        "correlation": origin.correlation,
    }
