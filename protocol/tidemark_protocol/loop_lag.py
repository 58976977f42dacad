"""Measure how late the callbacks of an event loop run; broker and operator export it.

A beat that is late means that everything else on the loop was late too. Readers may be on other
threads: each value is one attribute.
"""

import asyncio
import time
from collections.abc import Callable

BEAT_SECONDS = 0.1
WINDOW_SECONDS = 60.0  # the maximum is of this window and the one before


class LoopLag:
    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        """Create a measurement; `now_s` is the loop's clock, readable from any thread."""
        self.last_s = 0.0  # of the last beat
        self._now_s = now_s
        self._last_beat_s = now_s()
        self._window_began_s = self._last_beat_s
        self._window_max_s = 0.0
        self._previous_max_s = 0.0

    @property
    def max_s(self) -> float:
        """Return the maximum of the last one to two minutes."""
        return max(self._window_max_s, self._previous_max_s)

    async def run(self) -> None:
        """Measure the running loop until cancelled."""
        self._last_beat_s = self._now_s()
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            self.beat()

    def beat(self) -> None:
        now_s = self._now_s()
        self.last_s = max(0.0, now_s - self._last_beat_s - BEAT_SECONDS)
        self._last_beat_s = now_s
        if now_s - self._window_began_s >= WINDOW_SECONDS:
            is_next = now_s - self._window_began_s < 2 * WINDOW_SECONDS
            self._previous_max_s = self._window_max_s if is_next else 0.0
            self._window_began_s, self._window_max_s = now_s, 0.0
        self._window_max_s = max(self._window_max_s, self.last_s)

    def stands_still_ms(self) -> int:
        """Return how late the next beat already is. Call it from any thread."""
        return max(0, round(1000 * (self._now_s() - self._last_beat_s - BEAT_SECONDS)))
