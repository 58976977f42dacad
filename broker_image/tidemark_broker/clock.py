"""Define time for the broker: the running event loop's, which is simulated in tests."""

import asyncio
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """The part of asyncio's event loop that the replica manager needs."""

    def call_soon(self, callback: Callable[[], object]) -> Timer: ...
    def call_later(self, delay: float, callback: Callable[[], object]) -> Timer: ...


Clock = Callable[[], int]  # monotonic milliseconds


def monotonic_ms() -> int:
    """Return the running loop's time, CLOCK_MONOTONIC.

    Lag must not jump with the wall clock (S21).
    """
    return round(asyncio.get_running_loop().time() * 1000)
