"""A scheduler and clock that move only when told: no test sleeps."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class SimulatedTimer:
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class SimulatedTime:
    """asyncio's call_soon and call_later, in milliseconds of its own."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self._order = itertools.count()
        self._queue: list[tuple[int, int, SimulatedTimer, Callable[[], object]]] = []

    def clock(self) -> int:
        return self.now_ms

    def call_soon(self, callback: Callable[[], object]) -> SimulatedTimer:
        return self.call_later(0, callback)

    def call_later(self, delay: float, callback: Callable[[], object]) -> SimulatedTimer:
        timer = SimulatedTimer()
        due_ms = self.now_ms + round(delay * 1000)
        heapq.heappush(self._queue, (due_ms, next(self._order), timer, callback))
        return timer

    def run(self, for_ms: int = 0) -> None:
        """All that is due within `for_ms`, in order."""
        end_ms = self.now_ms + for_ms
        while self._queue and self._queue[0][0] <= end_ms:
            due_ms, _, timer, callback = heapq.heappop(self._queue)
            self.now_ms = max(self.now_ms, due_ms)
            if not timer.is_cancelled:
                callback()
        self.now_ms = end_ms
