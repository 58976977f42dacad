"""Map times of the window to positions in a plot, and choose the labels below it."""

from dataclasses import dataclass

from tidemark_audit.report.formatting import moment
from tidemark_audit.report.markup import Markup, element

WIDTH = 1000.0  # of every plot, in its own units: the browser stretches it
DAY_MS = 86_400_000
MOST_TICKS = 7
_STEPS_MS = (
    1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000,
    3_600_000, 7_200_000, 10_800_000, 21_600_000, 43_200_000, DAY_MS, 2 * DAY_MS, 7 * DAY_MS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TimeScale:
    start_ms: int
    end_ms: int

    @property
    def length_ms(self) -> int:
        return max(1, self.end_ms - self.start_ms)

    def x(self, at_ms: float) -> float:
        """0 to WIDTH; what lies outside of the window is at its edge."""
        ratio = (at_ms - self.start_ms) / self.length_ms
        return round(WIDTH * min(1.0, max(0.0, ratio)), 2)

    def percent(self, at_ms: float) -> str:
        return f"{self.x(at_ms) / WIDTH * 100:.3f}%"

    def ticks(self) -> list[int]:
        """Round moments, and the window's two ends."""
        step = next((s for s in _STEPS_MS if self.length_ms / s <= MOST_TICKS), 7 * DAY_MS)
        step *= max(1, -(-self.length_ms // (step * MOST_TICKS)))
        first = -(-self.start_ms // step) * step
        inner = range(first, self.end_ms, step)
        margin = self.length_ms * 0.07
        kept = [at for at in inner if margin < at - self.start_ms < self.length_ms - margin]
        return [self.start_ms, *kept, self.end_ms]

    def axis(self) -> Markup:
        marks = (
            element("span", self._written(at), style=f"left:{self.percent(at)}")
            for at in self.ticks()
        )
        return element("div", marks, class_="times")

    def _written(self, at_ms: int) -> str:
        if self.length_ms > 3 * DAY_MS:
            return moment(at_ms)[:-9]
        return moment(at_ms, with_date=False)[: 8 if self.length_ms < 600_000 else 5]
