"""How late the operator's event loop is, as its beats say.

A beat that comes late means that everything else on the loop came late too. Readers may be on other
threads: each value is one attribute.
"""

import asyncio
import time
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

BEAT_SECONDS = 0.1
WINDOW_SECONDS = 60.0  # the maximum is of this window and the one before


class LoopLag(Collector):
    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        """`now_s`: the clock of the loop, readable from any thread."""
        self._now_s = now_s
        self._last_beat_s = now_s()
        self._lag_s = 0.0
        self._window_began_s = self._last_beat_s
        self._window_max_s = 0.0
        self._former_max_s = 0.0

    async def run(self) -> None:
        """On the loop that is measured, until cancelled."""
        self._last_beat_s = self._now_s()
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            self.beat()

    def beat(self) -> None:
        now_s = self._now_s()
        self._lag_s = max(0.0, now_s - self._last_beat_s - BEAT_SECONDS)
        self._last_beat_s = now_s
        if now_s - self._window_began_s >= WINDOW_SECONDS:
            is_next = now_s - self._window_began_s < 2 * WINDOW_SECONDS
            self._former_max_s = self._window_max_s if is_next else 0.0
            self._window_began_s, self._window_max_s = now_s, 0.0
        self._window_max_s = max(self._window_max_s, self._lag_s)

    def stands_still_ms(self) -> int:
        """How late the next beat is already. From any thread."""
        return max(0, round(1000 * (self._now_s() - self._last_beat_s - BEAT_SECONDS)))

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "tidemark_controller_loop_lag_seconds",
            "How late the last beat of the event loop was",
            self._lag_s,
        )
        yield GaugeMetricFamily(
            "tidemark_controller_loop_lag_max_seconds",
            "The most of the last one to two minutes",
            max(self._window_max_s, self._former_max_s),
        )
