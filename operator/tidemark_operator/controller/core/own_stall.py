"""Measure from its ticks how long a controller itself stood still.

Meanwhile no broker can be heard, whatever waits in its sockets, so that time is no broker's
silence. Each tick is a little late; only one that is an interval late, or more, was delayed.
"""


class OwnStall:
    def __init__(self, tick_interval_ms: int) -> None:
        self._interval_ms = tick_interval_ms
        self._ticked_at_ms: int | None = None

    def begin(self, now_ms: int) -> None:
        """Begin at a takeover: the first tick is due an interval from now."""
        self._ticked_at_ms = now_ms

    # guard: own-stall-is-noticed (S21)
    def tick(self, now_ms: int) -> int:
        """Return how long the controller stood still until this tick, or 0."""
        late_ms = self.late_ms(now_ms)
        self._ticked_at_ms = now_ms
        return late_ms if late_ms > self._interval_ms else 0

    def late_ms(self, now_ms: int) -> int:
        """Return by how much the next tick is overdue."""
        if self._ticked_at_ms is None:
            return 0
        return max(0, now_ms - self._ticked_at_ms - self._interval_ms)
