"""Log and count connections and requests that are rejected before it is known whose they are.

The first of an address and reason is logged immediately; those that follow within a minute are
counted and logged with the next. The number of addresses and reasons a minute is bounded; the rest
is one number.
"""

import logging
from collections.abc import Callable, Iterator

from tidemark_protocol.audit_line import REJECTED, AuditLine

WINDOW_MS = 60_000
MAX_LINES = 1_000  # of address and reason, in one window
METRIC = "tidemark_connections_rejected_total"

_log = logging.getLogger(__name__)


class ConnectionRejections:
    """Of one process; `totals` has all rejections by protocol and reason."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._suppressed: dict[tuple[str, str, str, str], int] = {}
        self._unannounced = 0
        self._window_ends_ms = 0
        self.totals: dict[tuple[str, str], int] = {}

    def note(
        self, address: str, reason: str, detail: str, *, protocol: str, listener: str = ""
    ) -> None:
        """Log or count one; `reason` is one of few words, `detail` a sentence."""
        self.sweep()
        total = (protocol, reason)
        self.totals[total] = self.totals.get(total, 0) + 1
        key = (address, protocol, listener, reason)
        if key in self._suppressed:
            self._suppressed[key] += 1
        elif len(self._suppressed) < MAX_LINES:
            self._suppressed[key] = 0
            line = AuditLine(
                outcome=REJECTED,
                address=address,
                protocol=protocol,
                listener=listener,
                verb="connect",
                reason=reason,
                detail=detail,
            )
            _log.warning("connection closed", extra=line.fields())
        else:
            self._unannounced += 1

    def sweep(self) -> None:
        """Log the counts of a window that is over. Call it now and then."""
        now_ms = self._clock_ms()
        if now_ms >= self._window_ends_ms:
            self.log_counts()
            self._window_ends_ms = now_ms + WINDOW_MS

    def log_counts(self) -> None:
        """Log what was only counted since the window began."""
        for (address, protocol, listener, reason), count in self._suppressed.items():
            if count:
                line = AuditLine(
                    outcome=REJECTED,
                    address=address,
                    protocol=protocol,
                    listener=listener,
                    reason=reason,
                )
                _log.warning(
                    "more connections closed", extra={**line.fields(), "suppressed": count}
                )
        if self._unannounced:
            line = AuditLine(outcome=REJECTED)
            _log.warning(
                "more connections closed", extra={**line.fields(), "suppressed": self._unannounced}
            )
        self._suppressed.clear()
        self._unannounced = 0

    def render(self) -> Iterator[str]:
        """Return the counter of `/metrics`."""
        yield f"# HELP {METRIC} Connections and requests rejected before they had a known client.\n"
        yield f"# TYPE {METRIC} counter\n"
        for (protocol, reason), count in sorted(self.totals.items()):
            yield f'{METRIC}{{protocol="{protocol}",reason="{reason}"}} {count}\n'
