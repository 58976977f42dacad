"""Wrap the object store of one operator process with an index of what passed through it.

Reads are the store's own quorum reads: the index answers none of them.
"""

from collections.abc import Mapping

from tidemark_operator.api.kinds import Object, ResourceKind
from tidemark_operator.reconcile.object_index import ObjectIndex
from tidemark_operator.store.object_store import ObjectStore, PagedStore

# Inside the class `list` is the method.
Objects = list[Object]


class IndexedStore:
    """An `ObjectStore` that controller and reconcilers share, so that each knows all slices."""

    def __init__(self, store: ObjectStore, index: ObjectIndex | None = None) -> None:
        self._store = store
        self.index = index or ObjectIndex()

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        item = await self._store.get(kind, namespace, name)
        if item is None:
            self.index.record_gone(kind, namespace, name)
        else:
            self.index.note(kind, item)
        return item

    async def list(
        self, kind: ResourceKind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> Objects:
        items = await self._store.list(kind, namespace, labels)
        for item in items:
            self.index.note(kind, item)
        return items

    async def scan(self, kind: ResourceKind, namespace: str | None) -> None:
        """List objects for the index only, with at most a page of them in memory."""
        if not isinstance(self._store, PagedStore):
            await self.list(kind, namespace)
            return
        async for page in self._store.pages(kind, namespace):
            for item in page:
                self.index.note(kind, item)

    async def create(self, kind: ResourceKind, item: Object) -> Object:
        return self._recorded(kind, await self._store.create(kind, item))

    async def replace(self, kind: ResourceKind, item: Object) -> Object:
        return self._recorded(kind, await self._store.replace(kind, item))

    async def replace_status(self, kind: ResourceKind, item: Object) -> Object:
        return self._recorded(kind, await self._store.replace_status(kind, item))

    async def delete(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        await self._store.delete(kind, namespace, name, uid=uid, resource_version=resource_version)
        # A finalizer may hold it: then the next read finds it again.
        self.index.record_gone(kind, namespace, name, uid=uid)

    def _recorded(self, kind: ResourceKind, item: Object) -> Object:
        self.index.note(kind, item)
        return item
