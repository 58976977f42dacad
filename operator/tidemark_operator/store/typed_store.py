"""Read objects from an object store as typed values."""

from tidemark_operator.api.objects import Invalid, T, parse, parse_unchecked
from tidemark_operator.store.object_store import ObjectStore


class TypedStore:
    """The one place where what the operator reconciles is parsed, defaulted and validated."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def get(self, kind: type[T], namespace: str, name: str) -> T | Invalid[T] | None:
        """Return an object by a quorum read; None if it does not exist."""
        item = await self._store.get(kind.resource, namespace, name)
        return None if item is None else parse(kind, item)

    async def read(self, kind: type[T], namespace: str, name: str) -> T | None:
        """Return an object also if it breaks a rule; None if it does not exist."""
        item = await self._store.get(kind.resource, namespace, name)
        return None if item is None else parse_unchecked(kind, item)
