"""Ctrl-C for commands that have many processes work for them: they end at once, and say what they
had.

A terminal sends it to all processes of a command. Workers do not listen, so that none of them
breaks off with a traceback of its own; who began them ends them.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import active_children
from types import FrameType

EXIT_INTERRUPTED = 128 + signal.SIGINT


class Stop:
    """A handler of signals. It raises KeyboardInterrupt while inside, where somebody waits for it,
    also for a signal that came before. `signal_number` stays: an exception that is raised in the
    callback of a weak reference, where a handler may run, is told to nobody."""

    def __init__(self) -> None:
        self.signal_number = 0
        self._interrupts = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.signal_number = number
        if self._interrupts:
            raise KeyboardInterrupt

    def __enter__(self) -> None:
        self._interrupts = True
        if self.signal_number:
            self._interrupts = False
            raise KeyboardInterrupt

    def __exit__(self, *_: object) -> None:
        self._interrupts = False


@contextmanager
def workers_that_hear_no_ctrl_c() -> Iterator[None]:
    """Processes begun in here inherit that; their pool has to be there before."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_workers() -> None:
    """In the middle of what they do."""
    for worker in active_children():
        worker.terminate()
