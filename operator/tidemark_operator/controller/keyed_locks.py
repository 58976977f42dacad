"""Keep one lock per key while a task holds it or waits for it."""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(slots=True)
class _Shared:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class KeyedLocks(Generic[Key]):
    """Locks by key. Not re-entrant, and no task holds two keys, so there are no deadlocks."""

    def __init__(self) -> None:
        self._locks: dict[Key, _Shared] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def hold(self, key: Key) -> AsyncIterator[None]:
        shared = self._locks.setdefault(key, _Shared())
        shared.users += 1
        try:
            async with shared.lock:
                yield
        finally:
            shared.users -= 1
            if shared.users == 0:
                del self._locks[key]
