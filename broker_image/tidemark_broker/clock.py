"""Time as the shells see it: the running event loop's, which is simulated in tests."""

import asyncio
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
    """Of the running loop, so CLOCK_MONOTONIC: lag must not jump with the wall clock (S21)."""
    return round(asyncio.get_running_loop().time() * 1000)
