"""Virtual time: one queue of what happens when, and the loops that have something to run now.

World time is whole microseconds from 0. Ties are settled by the order of scheduling, so a run is a
function of what was scheduled.
"""

import heapq
from collections import deque
from collections.abc import Callable
from typing import Protocol


class Runnable(Protocol):
    """An event loop with callbacks that are due."""

    is_queued: bool

    def run_one(self) -> bool:
        """One callback; False if there was none that may run now."""
        ...

    @property
    def has_more(self) -> bool: ...


class Event:
    """Something due at a moment of world time."""

    __slots__ = ("act", "arguments")

    def __init__(self, act: Callable[..., object] | None, arguments: tuple[object, ...]) -> None:
        self.act = act
        self.arguments = arguments

    def cancel(self) -> None:
        self.act = None
        self.arguments = ()

    @property
    def is_cancelled(self) -> bool:
        return self.act is None


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
            new_us = None if event.is_cancelled else moved(event)
            changed.append((when_us if new_us is None else max(new_us, self.now_us), order, event))
        heapq.heapify(changed)
        self._events = changed

    def queue(self, loop: Runnable) -> None:
        """It has callbacks to run now."""
        if not loop.is_queued:
            loop.is_queued = True
            self._ready.append(loop)

    def step(self) -> bool:
        """One callback of one loop, or else the next event in time; False when nothing is left."""
        ready = self._ready
        while ready:
            loop = ready.popleft()
            loop.is_queued = False
            did_run = loop.run_one()
            if loop.has_more:
                self.queue(loop)
            if did_run:
                self.ran = loop
                self.steps += 1
                return True
        while self._events:
            when_us, _, event = heapq.heappop(self._events)
            act = event.act
            if act is None:
                continue
            self.now_us = when_us
            self.ran = None
            self.steps += 1
            act(*event.arguments)
            return True
        return False

    def next_event_us(self) -> int | None:
        """When the next thing happens: now, if a callback is due."""
        if self._ready:
            return self.now_us
        while self._events and self._events[0][2].is_cancelled:
            heapq.heappop(self._events)
        return self._events[0][0] if self._events else None
