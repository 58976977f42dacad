"""Roles that could not be taken, mostly for want of space: reported, and tried again.

The controller has others lead meanwhile; but a replica whose log was never made follows nobody, and
no push names it again.
"""

import logging
from collections.abc import Callable

from tidemark_protocol.ids import TopicId

_log = logging.getLogger(__name__)


class UntakenRoles:
    def __init__(
        self,
        failed_replicas: dict[tuple[TopicId, int], str],
        *,
        take: Callable[[tuple[TopicId, int]], None],
    ) -> None:
        """`failed_replicas`: what heartbeats report; `take` applies what is known of it."""
        self._failed_replicas = failed_replicas
        self._take = take
        # With what was reported of it before: a damaged log is that still.
        self._untaken: dict[tuple[TopicId, int], str | None] = {}

    @property
    def keys(self) -> tuple[tuple[TopicId, int], ...]:
        return tuple(self._untaken)

    def __contains__(self, key: tuple[TopicId, int]) -> bool:
        return key in self._untaken

    def note(self, key: tuple[TopicId, int], error: Exception) -> None:
        """Nothing was written and nothing is led here: the controller has to choose another."""
        if key not in self._untaken:
            _log.error("role not taken", extra={"partition": key[1], "error": str(error)})
            self._untaken[key] = self._failed_replicas.get(key)
        self._failed_replicas[key] = str(error)

    def forget(self, key: tuple[TopicId, int]) -> None:
        """It was taken or may be by now, or nobody wants it here any more."""
        if key not in self._untaken:
            return
        reported_before = self._untaken.pop(key)
        if reported_before is None:
            self._failed_replicas.pop(key, None)
        else:
            self._failed_replicas[key] = reported_before

    def take_again(self) -> None:
        """While there is space. A role that the controller gave to nobody meanwhile is reported
        no more, so that it is granted here again."""
        for key in self.keys:
            self._take(key)
