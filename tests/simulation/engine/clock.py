"""A machine's clocks: monotonic time at a rate of its own, and a wall clock that may jump.

The monotonic clock goes on while processes are frozen; it starts anew, somewhere, with each boot.
"""

from tests.simulation.engine.timeline import Timeline

MILLION = 1_000_000
EPOCH_US = 1_700_000_000 * MILLION  # wall clock at world time 0


class MachineClock:
    def __init__(self, timeline: Timeline, *, uptime_us: int) -> None:
        self.rate_ppm = MILLION  # microseconds that it counts in a second of the world
        self.wall_offset_us = 0
        self.latest_wall_us = 0  # that anybody was told
        self._timeline = timeline
        self._base_world_us = timeline.now_us
        self._base_us = uptime_us

    def monotonic_us(self) -> int:
        passed_us = self._timeline.now_us - self._base_world_us
        return self._base_us + passed_us * self.rate_ppm // MILLION

    def world_us_at(self, monotonic_us: int) -> int:
        """The first moment of the world at which this clock shows at least that."""
        ahead_us = max(0, monotonic_us - self._base_us)
        return self._base_world_us + -(-ahead_us * MILLION // self.rate_ppm)

    def set_rate(self, rate_ppm: int) -> None:
        """Timers of loops on this clock have to be rearranged after."""
        self._base_us = self.monotonic_us()
        self._base_world_us = self._timeline.now_us
        self.rate_ppm = rate_ppm

    def wall_us(self) -> int:
        wall_us = EPOCH_US + self._timeline.now_us + self.wall_offset_us
        self.latest_wall_us = max(self.latest_wall_us, wall_us)
        return wall_us
