"""Track what turns have seen of their objects, so that known changes cost no further turn.

Most events of a watch are of the operator's own status writes, and most changes of slices are made
by the turn of their own Topic.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tidemark_operator.api.kinds import ResourceKind
from tidemark_operator.api.objects import ObjectMetadata
from tidemark_operator.reconcile.work_queue import WorkKey


@dataclass(slots=True)
class Turn:
    """What happened to an object while its turn was running."""

    has_changed: bool = False  # in the controller, since it was last observed
    newest: str = ""  # version of the object that a watch told of; "": none


class Turns:
    def __init__(self) -> None:
        self._running: dict[WorkKey, Turn] = {}
        self._seen: dict[WorkKey, str] = {}  # which version of the object the last turn saw

    @contextmanager
    def begin(self, key: WorkKey) -> Iterator[Turn]:
        turn = self._running[key] = Turn()
        try:
            yield turn
        finally:
            del self._running[key]

    def is_due_again(self, key: WorkKey, turn: Turn) -> bool:
        """Return, after a turn, whether something happened meanwhile that it does not know."""
        return turn.has_changed or turn.newest not in ("", self._seen.get(key))

    def record_seen(self, kind: ResourceKind, metadata: ObjectMetadata) -> None:
        """Record the version that a turn has read or written."""
        self._seen[key_of(kind, metadata)] = metadata.version

    def record_gone(self, key: WorkKey) -> None:
        self._seen.pop(key, None)

    def record_change(self, key: WorkKey) -> bool:
        """Record a change of the controller's state; return whether a running turn handles it."""
        turn = self._running.get(key)
        if turn is not None:
            turn.has_changed = True
        return turn is not None

    def is_change(self, key: WorkKey, metadata: ObjectMetadata, *, is_deleted: bool) -> bool:
        """Return whether an event needs another turn now."""
        version = "deleted" if is_deleted else metadata.version
        turn = self._running.get(key)
        if turn is not None:
            turn.newest = version
            return False
        return version != self._seen.get(key)


def key_of(kind: ResourceKind, metadata: ObjectMetadata) -> WorkKey:
    return WorkKey(kind.kind, metadata.namespace, metadata.name)
