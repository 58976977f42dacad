"""How long a controller itself stood still, as its ticks say (pure).

While it does, no broker can be heard, whatever waits in its sockets: such time is nobody's silence.
Every tick is a little late; only one that comes an interval late, or more, was held up.
"""


class OwnStall:
    def __init__(self, tick_interval_ms: int) -> None:
        self._interval_ms = tick_interval_ms
        self._ticked_at_ms: int | None = None

    def begin(self, now_ms: int) -> None:
        """A take-over: the first tick is due an interval from now."""
        self._ticked_at_ms = now_ms

    # guard: own-stall-is-noticed (S21)
    def tick(self, now_ms: int) -> int:
        """How long it stood still until this tick; 0: it did not."""
        late_ms = self.late_ms(now_ms)
        self._ticked_at_ms = now_ms
        return late_ms if late_ms > self._interval_ms else 0

    def late_ms(self, now_ms: int) -> int:
        """By how much the next tick is overdue already."""
        if self._ticked_at_ms is None:
            return 0
        return max(0, now_ms - self._ticked_at_ms - self._interval_ms)
