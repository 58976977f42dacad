"""What time it is for a group coordinator."""

from collections.abc import Callable

from tidemark_broker.groups.moment import Moment
from tidemark_broker.runtime.scheduling import Clock


class GroupClock:
    def __init__(self, clock: Clock, wall_clock_s: Callable[[], float]) -> None:
        self.monotonic_ms = clock
        self._wall_clock_s = wall_clock_s

    def now(self) -> Moment:
        return Moment(self.monotonic_ms(), int(self._wall_clock_s() * 1000))
