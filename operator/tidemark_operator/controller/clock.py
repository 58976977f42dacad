"""Implement `Clock` and `LeaseClock` by the system's clocks."""

import asyncio
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Return the time of a monotonic clock."""
        ...


class MonotonicClock:
    """The running loop's clock, CLOCK_MONOTONIC."""

    def now_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class LeaseSystemClock:
    """CLOCK_BOOTTIME: a holder that was suspended must not believe that its Lease was too (S21)."""

    def now_ms(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

    def wall_time(self) -> str:
        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
