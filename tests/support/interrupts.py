"""Ctrl-C for commands that have many processes work for them: they end at once, and say what they
had.

A terminal sends it to all processes of a command. Workers do not listen, so that none of them
breaks off with a traceback of its own; who began them ends them.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import active_children
from types import FrameType
from typing import Any

EXIT_INTERRUPTED = 128 + signal.SIGINT


class Stop:
    """A handler of signals. It raises KeyboardInterrupt while inside, where somebody waits for it,
    also for a signal that came before. `signal_number` stays: what is raised in the callback of a
    weak reference, where a handler may run, goes no further. Python then writes a traceback, which
    is left out here."""

    def __init__(self) -> None:
        self.signal_number = 0
        self._interrupts = False
        self._previous_hook: Callable[[Any], object] = sys.unraisablehook

    def __call__(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.signal_number = number
        if self._interrupts:
            raise KeyboardInterrupt

    def __enter__(self) -> None:
        self._previous_hook, sys.unraisablehook = sys.unraisablehook, self._record_lost
        self._interrupts = True
        if self.signal_number:
            self.__exit__()
            raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        self._interrupts = False
        sys.unraisablehook = self._previous_hook

    def _record_lost(self, lost: Any) -> None:
        if lost.exc_type is not KeyboardInterrupt or not self.signal_number:
            self._previous_hook(lost)


@contextmanager
def workers_that_hear_no_ctrl_c() -> Iterator[None]:
    """Processes that are spawned in here inherit that; their pool has to be there before.

    Signals that come meanwhile are handled at the end. Blocking them in this thread is not enough:
    another one takes them, and the handler runs in this one, between the start of a process and
    the bytes that it waits for.
    """
    came: list[int] = []
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    held = [number for number, handler in handlers.items() if callable(handler)]
    for number in held:
        signal.signal(number, lambda number, _: came.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number in held:
            signal.signal(number, handlers[number])
        for heard in came:
            signal.raise_signal(heard)


def end_workers() -> None:
    """In the middle of what they do."""
    for worker in active_children():
        worker.terminate()
