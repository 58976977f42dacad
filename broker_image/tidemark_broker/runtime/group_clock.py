"""The time of a group coordinator: wall milliseconds that run like the monotonic clock.

They are written to the log, so they are the wall's; sessions hang on them, so they neither jump nor
go back when somebody sets the wall clock. It is looked at again at each start of a leadership.
"""

from collections.abc import Callable

from tidemark_broker.runtime.scheduling import Clock


class GroupClock:
    def __init__(self, clock: Clock, wall_clock_s: Callable[[], float]) -> None:
        self._clock = clock
        self._wall_clock_s = wall_clock_s
        self._ahead_ms = 0  # of the monotonic clock
        self._newest_ms = 0
        self.set_by_wall()

    def set_by_wall(self) -> None:
        self._ahead_ms = int(self._wall_clock_s() * 1000) - self._clock()

    def now_ms(self) -> int:
        self._newest_ms = max(self._newest_ms, self._clock() + self._ahead_ms)
        return self._newest_ms
