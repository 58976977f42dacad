"""Virtual time: one queue of what happens when, and the loops that have something to run now.

World time is whole microseconds from 0. Ties are settled by the order of scheduling, so a run is a
function of what was scheduled.
"""

import heapq
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

FOREVER_US = 1 << 62


class Runnable(Protocol):
    """An event loop with callbacks that are due."""

    is_queued: bool
    is_dead: bool

    def run_one(self) -> bool:
        """One callback, and it is queued again if it has more; False if there was none that may
        run now."""
        ...


class Event:
    """Something due at a moment of world time; without a callback it was cancelled."""

    __slots__ = ("arguments", "callback")

    def __init__(self, callback: Callable[..., object] | None, arguments: tuple[Any, ...]) -> None:
        self.callback = callback
        self.arguments = arguments

    def cancel(self) -> None:
        self.callback = None
        self.arguments = ()

    def cancelled(self) -> bool:
        return self.callback is None

    def fire(self) -> None:
        assert self.callback is not None
        self.callback(*self.arguments)


class Timeline:
    def __init__(self) -> None:
        self.now_us = 0
        self.steps = 0
        self._order = 0
        self._events: list[tuple[int, int, Event]] = []
        self.ran: Runnable | None = None  # whose callback the last step was
        self._ready: deque[Runnable] = deque()

    def at(self, when_us: int, act: Callable[..., object], *arguments: object) -> Event:
        event = Event(act, arguments)
        self.put(max(when_us, self.now_us), event)
        return event

    def after(self, delay_us: int, act: Callable[..., object], *arguments: object) -> Event:
        return self.at(self.now_us + delay_us, act, *arguments)

    def put(self, when_us: int, event: Event) -> None:
        self._order += 1
        heapq.heappush(self._events, (when_us, self._order, event))

    def rearrange(self, moved: Callable[[Event], int | None]) -> None:
        """A clock changed its rate: `moved` tells the new moment of an event, None if it stays."""
        changed = []
        for when_us, order, event in self._events:
            new_us = None if event.callback is None else moved(event)
            changed.append((when_us if new_us is None else max(new_us, self.now_us), order, event))
        heapq.heapify(changed)
        self._events = changed

    def queue(self, loop: Runnable) -> None:
        """It has callbacks to run now."""
        if not loop.is_queued:
            loop.is_queued = True
            self._ready.append(loop)

    def step(self, until_us: int = FOREVER_US) -> bool:
        """One callback of one loop, or else the next event in time; False when nothing is left
        that is due until then."""
        ready = self._ready
        while ready:
            loop = ready.popleft()
            loop.is_queued = False
            if loop.run_one():
                self.ran = loop
                self.steps += 1
                return True
        events = self._events
        while events:
            when_us, _, event = events[0]
            if event.callback is None:
                heapq.heappop(events)
                continue
            if when_us > until_us:
                return False
            heapq.heappop(events)
            self.now_us = when_us
            self.ran = None
            self.steps += 1
            event.fire()
            return True
        return False
