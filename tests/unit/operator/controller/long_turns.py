"""How long a loop's turns are, in calls of the operator's own functions: counted, never timed.

What a callback does without letting others run is its turn. Two sizes of one operation tell whether
a turn grows with the pool.
"""

import sys
from asyncio import events
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

OURS = "tidemark_operator"


class Turns:
    def __init__(self) -> None:
        self.longest = 0
        self.where = ""  # whose code the longest one began with
        self._calls = 0
        self._first = ""

    def run(self, handle: Any, original: Any) -> None:
        self._calls, self._first = 0, ""
        sys.setprofile(self._on_event)
        try:
            original(handle)
        finally:
            sys.setprofile(None)
            if self._calls > self.longest:
                self.longest, self.where = self._calls, self._first

    def _on_event(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and OURS in frame.f_code.co_filename:
            self._calls += 1
            self._first = self._first or frame.f_code.co_qualname


@contextmanager
def counted_turns() -> Iterator[Turns]:
    """Of every callback of any asyncio loop meanwhile; callbacks must not overlap it."""
    turns = Turns()
    original = events.Handle._run
    events.Handle._run = lambda self: turns.run(self, original)  # type: ignore[method-assign]
    try:
        yield turns
    finally:
        events.Handle._run = original  # type: ignore[method-assign]
        sys.setprofile(None)
