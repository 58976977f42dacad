"""Time as the shells see it: an asyncio loop in production, a simulated one in tests."""

import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """The part of asyncio's event loop that `Partitions` needs."""

    def call_soon(self, callback: Callable[[], object]) -> Timer: ...
    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer: ...


Clock = Callable[[], int]  # monotonic milliseconds


def monotonic_ms() -> int:
    """CLOCK_MONOTONIC: lag must not jump with the wall clock (S21)."""
    return time.monotonic_ns() // 1_000_000
