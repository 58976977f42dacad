"""Report and retry roles that could not be applied, mostly for lack of space.

The controller makes other brokers lead meanwhile. But a replica whose log was never created follows
no leader, and no push names it again.
"""

import logging
from collections.abc import Callable

from tidemark_protocol.ids import TopicId

_log = logging.getLogger(__name__)


class FailedRoleChanges:
    def __init__(
        self,
        failed_replicas: dict[tuple[TopicId, int], str],
        *,
        take: Callable[[tuple[TopicId, int]], None],
    ) -> None:
        """Create an empty set; heartbeats report `failed_replicas`, `take` applies a role."""
        self._failed_replicas = failed_replicas
        self._take = take
        # With what was reported of it before: a damaged log is that still.
        self._failed_roles: dict[tuple[TopicId, int], str | None] = {}

    @property
    def keys(self) -> tuple[tuple[TopicId, int], ...]:
        return tuple(self._failed_roles)

    def __contains__(self, key: tuple[TopicId, int]) -> bool:
        return key in self._failed_roles

    def note(self, key: tuple[TopicId, int], error: str) -> None:
        """Report a role that was not applied; the controller has to choose another broker."""
        if key not in self._failed_roles:
            _log.error("role not applied", extra={"partition": key[1], "error": error})
            self._failed_roles[key] = self._failed_replicas.get(key)
        self._failed_replicas[key] = error

    def forget(self, key: tuple[TopicId, int]) -> None:
        """Remove a role that was applied, may be, or is no longer this broker's."""
        if key not in self._failed_roles:
            return
        reported_before = self._failed_roles.pop(key)
        if reported_before is None:
            self._failed_replicas.pop(key, None)
        else:
            self._failed_replicas[key] = reported_before

    def retry(self) -> None:
        """Retry roles while there is space.

        A role that the controller gave to no broker meanwhile is no longer reported, so that it is
        assigned here again.
        """
        for key in self.keys:
            self._take(key)
