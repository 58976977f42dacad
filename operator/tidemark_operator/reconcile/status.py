"""Write statuses only when they differ, and not too often; the last state is always written.

Each object has a small allowance (a few writes at once, then one per interval), so that a Topic
becomes Ready without delay, and changes of its ISR do not load the API server.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from tidemark_operator.api.kinds import ResourceKind
from tidemark_operator.api.objects import ConditionStatus, Invalid, ObjectMetadata, ObjectStatus, T
from tidemark_operator.reconcile.conditions import Condition, stored_conditions
from tidemark_operator.store.object_store import ObjectStore

MAX_TRACKED = 20_000


@dataclass(slots=True)
class _Allowance:
    writes: float
    since_ms: int


class StatusWriter:
    def __init__(
        self,
        store: ObjectStore,
        *,
        interval_ms: int,
        burst: int = 4,
        now_ms: Callable[[], int],
        now_text: Callable[[], str],
        on_written: Callable[[ResourceKind, ObjectMetadata], None] = lambda kind, item: None,
    ) -> None:
        """Create a writer; `now_ms` is monotonic, `now_text` is RFC 3339 in UTC."""
        self._store = store
        self._interval_ms = interval_ms
        self._burst = burst
        self._now_ms = now_ms
        self._now_text = now_text
        self._on_written = on_written
        self._allowances: dict[str, _Allowance] = {}

    async def write(
        self,
        item: T | Invalid[T],
        fields: ObjectStatus,
        conditions: Iterable[Condition],
        *,
        at_once: bool = False,
    ) -> int | None:
        """Write the status of `item`, as just read; fields that are UNSET stay.

        Returns after how many ms to come back when the write has to wait, else None; `item` then
        holds what is stored.
        """
        metadata, stored = item.metadata, item.stored.get("status", {})
        status = {
            **stored,
            **_json(fields),
            "observedGeneration": metadata.generation,
            "conditions": _json(
                stored_conditions(
                    conditions,
                    item.status.known_conditions,
                    generation=metadata.generation,
                    now=self._now_text(),
                )
            ),
        }
        if status == stored:
            return None
        wait_ms = self._wait_ms(metadata.uid)
        if wait_ms > 0 and not at_once:
            return wait_ms
        written = await self._store.replace_status(item.resource, {**item.stored, "status": status})
        item.record_written(written)
        self._on_written(item.resource, item.metadata)
        return None

    def forget(self, uid: str) -> None:
        self._allowances.pop(uid, None)

    def _wait_ms(self, uid: str) -> int:
        """Return how long a write has to wait; 0 takes one from the allowance."""
        now_ms = self._now_ms()
        if len(self._allowances) > MAX_TRACKED:
            self._allowances.clear()
        allowance = self._allowances.setdefault(uid, _Allowance(self._burst, now_ms))
        earned = (now_ms - allowance.since_ms) / self._interval_ms
        allowance.writes = min(float(self._burst), allowance.writes + earned)
        allowance.since_ms = now_ms
        if allowance.writes < 1:
            return max(1, round((1 - allowance.writes) * self._interval_ms))
        allowance.writes -= 1
        return 0


def _json(value: ObjectStatus | list[ConditionStatus]) -> Any:
    """Return the value as the store decodes it: with lists, for a tuple equals none."""
    return msgspec.json.decode(msgspec.json.encode(value))
