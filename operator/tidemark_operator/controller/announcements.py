"""Notify brokers and reconcilers of durable changes, once for many changes.

Brokers are notified together of all that became durable in one turn of the loop. Reconcilers are
notified of a decision about many slices when it is complete: their work would delay elections.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidemark_operator.controller.core.views import StateChange


class Announcements:
    def __init__(
        self, on_image: Callable[[], None], on_change: Callable[[StateChange], None]
    ) -> None:
        self._on_image = on_image
        self._on_change = on_change
        self._is_image_due = False
        self._holding = 0
        self._reported: dict[StateChange, None] = {}

    def image(self) -> None:
        """Notify the brokers of a changed image at the end of this turn."""
        if not self._is_image_due:
            self._is_image_due = True
            asyncio.get_running_loop().call_soon(self._notify_brokers)

    def change(self, change: StateChange) -> None:
        if self._holding:
            self._reported[change] = None
        else:
            self._on_change(change)

    @contextmanager
    def changes_at_the_end(self) -> Iterator[None]:
        self._holding += 1
        try:
            yield
        finally:
            self._holding -= 1
            if not self._holding:
                held, self._reported = self._reported, {}
                for change in held:
                    self._on_change(change)

    def _notify_brokers(self) -> None:
        self._is_image_due = False
        self._on_image()
