"""Run a controller's decisions to their end, whatever becomes of their callers.

None begins once the Lease is lost, also while the loop is busy (I16).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tidemark_operator.controller.slice_store import ControllerSuperseded

logger = logging.getLogger(__name__)

MAX_TASKS = 10_000

Result = TypeVar("Result")


class NotController(Exception):
    """An error: this controller does not lead; ask the leading one."""


class DecisionTasks:
    """The decisions under way; `on_superseded` is called when one meets a later controller."""

    def __init__(self, on_superseded: Callable[[], None]) -> None:
        self._on_superseded = on_superseded
        self._tasks: dict[asyncio.Task[Any], None] = {}  # by age
        self.is_closed = False  # the Lease is lost, and this loop has not turned since

    def open(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        """Let no decision begin from now on. From any thread."""
        self.is_closed = True

    def under_way(self) -> tuple[asyncio.Task[Any], ...]:
        return tuple(self._tasks)

    async def decide(self, decision: Coroutine[Any, Any, Result]) -> Result:
        """Run a decision to its end, whatever becomes of the caller.

        Raises NotController if this controller steps down meanwhile.
        """
        task = self.spawn(decision, "decision")
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            # Both may be cancelled at once: who is to end must not be told to try again.
            if task.cancelled() and not (caller is not None and caller.cancelling()):
                raise NotController("the controller stepped down during the command") from None
            raise

    def spawn(self, coroutine: Coroutine[Any, Any, Result], name: str) -> "asyncio.Task[Result]":
        if self.is_closed or len(self._tasks) >= MAX_TASKS:
            coroutine.close()
            raise NotController("the Lease is lost, or too many commands are running")
        task = asyncio.create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._record_done)
        return task

    def _record_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, ControllerSuperseded):
            logger.error("controller superseded, on standby", extra={"error": str(error)})
            self._on_superseded()
        elif error is not None and task.get_name() != "decision":
            logger.error("controller task failed", exc_info=error, extra={"task": task.get_name()})
