"""Run requests that need more than one turn of the loop in slices, in rotation.

A small request runs at once. Of the others one slice runs in each turn of the loop, so that many
large requests delay the others no longer than one does. Slices are counted in steps: a step is an
element read, looked up or written, some 2 to 15 microseconds; longer work counts as several.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Generic

from tidemark_broker.clock import Timer
from tidemark_broker.kafka.network.request import KafkaRequest
from tidemark_broker.kafka_wire.messages.cooperative_steps import Outcome, Steps
from tidemark_broker.kafka_wire.messages.primitives import MalformedFrame

STEPS_OF_A_SLICE = 512

_log = logging.getLogger(__name__)


class Job(Generic[Outcome]):
    __slots__ = ("_done", "_request", "_steps", "_steps_of_a_slice", "is_over")

    def __init__(
        self,
        request: KafkaRequest,
        steps: Steps[Outcome],
        done: Callable[[Outcome], object],
        steps_of_a_slice: int,
    ) -> None:
        self._request = request
        self._steps = steps
        self._done = done
        self._steps_of_a_slice = steps_of_a_slice
        self.is_over = False

    def cancel(self) -> None:
        self.is_over = True

    def first_slice(self) -> None:
        """Run the first slice; raise what a step raises."""
        try:
            left = self._steps_of_a_slice
            while left > 0:
                left -= next(self._steps)
        except StopIteration as end:
            if not self.is_over:  # else cancelled by its own doing
                self.is_over = True
                self._done(end.value)

    def next_slice(self) -> None:
        if not self.is_over:
            self._request.measured(self._try_slice)

    def _try_slice(self) -> None:
        try:
            self.first_slice()
        except MalformedFrame as error:
            self.is_over = True
            self._request.fail(error)
        except Exception as error:
            _log.exception("request failed")
            self.is_over = True
            self._request.fail(f"{type(error).__name__}: {error}")


class FairQueue:
    def __init__(self) -> None:
        self._waiting: deque[Job[Any]] = deque()
        self._timer: Timer | None = None

    def take(
        self,
        request: KafkaRequest,
        steps: Steps[Outcome],
        done: Callable[[Outcome], object],
        *,
        steps_of_a_slice: int = STEPS_OF_A_SLICE,
    ) -> Job[Outcome]:
        """Run the first slice at once, the others later, then call `done`, unless it is cancelled.

        Raises what the first slice raises; what a later slice raises ends the connection.
        """
        work = Job(request, steps, done, steps_of_a_slice)
        work.first_slice()
        if not work.is_over:
            self._waiting.append(work)
            self._go_on_soon()
        return work

    def _go_on_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._timer = None
        work = self._waiting.popleft()
        work.next_slice()
        if not work.is_over:
            self._waiting.append(work)
        if self._waiting:
            self._go_on_soon()
