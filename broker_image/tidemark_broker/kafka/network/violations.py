"""Log connections that are closed for what their client did, without a line for each.

The first of a client host and kind is logged at once; those that follow within a minute are counted
and logged with the next. The number of hosts and kinds a minute is bounded; the rest is one number.
"""

import logging

from tidemark_broker.clock import Clock

WINDOW_MS = 60_000
MAX_KINDS = 100  # host and kind, in one window

_log = logging.getLogger(__name__)


class ProtocolViolations:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[tuple[str, str], int] = {}
        self._unannounced = 0
        self._window_ends_ms = 0

    def note(self, host: str, kind: str, reason: str) -> None:
        self.sweep()
        key = (host, kind)
        if key in self._counts:
            self._counts[key] += 1
        elif len(self._counts) < MAX_KINDS:
            self._counts[key] = 0
            _log.warning("connection closed", extra={"peer": host, "kind": kind, "reason": reason})
        else:
            self._unannounced += 1

    def sweep(self) -> None:
        """Log the counts of a window that is over. Call it now and then."""
        now_ms = self._clock()
        if now_ms >= self._window_ends_ms:
            self.log_counts()
            self._window_ends_ms = now_ms + WINDOW_MS

    def log_counts(self) -> None:
        """Log what was only counted since the window began."""
        for (host, kind), count in self._counts.items():
            if count:
                _log.warning(
                    "more connections closed", extra={"peer": host, "kind": kind, "count": count}
                )
        if self._unannounced:
            _log.warning("more connections closed", extra={"count": self._unannounced})
        self._counts.clear()
        self._unannounced = 0
