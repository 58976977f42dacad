"""Define the interface to what stores objects: the Kubernetes API server or a SQLite file.

Objects are Kubernetes JSON (dicts with apiVersion, kind, metadata); the layers above turn them into
typed values. Each write is one legal step from what is really stored: `replace` compares the
object's metadata.resourceVersion and raises `Conflict` when another write came first.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol, runtime_checkable

from tidemark_operator.api.kinds import Object, ResourceKind


class StoreError(Exception):
    """An error: the store could not be reached, or rejected the call."""


class Conflict(StoreError):
    """An error: another writer came first; read again, decide again."""


class AlreadyExists(StoreError):
    """An error: a create of a name that is taken."""


class NotFound(StoreError):
    """An error: a replace, patch or delete of a missing object."""


class UnknownKind(NotFound):
    """An error: the kind is not served, so its CRD is not installed."""


class Rejected(StoreError):
    """An error: the object breaks its schema or a rule; the text is for the user."""


class Forbidden(Rejected):
    """An error: a right is missing, or an admission policy denies it."""


class NamespaceTerminating(Rejected):
    """An error: a create in a namespace that is being deleted; retrying is useless."""


class OutcomeUnknown(StoreError):
    """An error: a write's response was lost; it may or may not have happened (S3)."""


class ObjectStore(Protocol):
    """A store; all methods raise StoreError subclasses, and each call has a time limit."""

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        """Return an object by a quorum read, never from a cache; None if it does not exist."""
        ...

    async def list(
        self, kind: ResourceKind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """Return objects in name order, by a quorum read; all namespaces if None."""
        ...

    async def create(self, kind: ResourceKind, item: Object) -> Object: ...

    async def replace(self, kind: ResourceKind, item: Object) -> Object:
        """Replace an object by compare-and-set on metadata.resourceVersion; return what is stored.

        The status of a kind with a status subresource is not replaced.
        """
        ...

    async def replace_status(self, kind: ResourceKind, item: Object) -> Object:
        """Replace the status subresource in the same way."""
        ...

    async def delete(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        """Delete an object; a missing one is no error.

        With `uid` only that very object, with `resource_version` only as it was read (else
        Conflict).
        """
        ...


@runtime_checkable
class PagedStore(Protocol):
    """A store whose lists may be larger than memory should hold."""

    def pages(self, kind: ResourceKind, namespace: str | None) -> AsyncIterator[list[Object]]:
        """Yield a list page by page, in no order."""
        ...
