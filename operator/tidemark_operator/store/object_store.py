"""The seam to whatever keeps objects: the Kubernetes API server or a SQLite file.

Objects are Kubernetes JSON (dicts with apiVersion, kind, metadata); the layers above turn them into
typed values at once. Every write is one legal step from what is really stored: `replace` compares
the object's metadata.resourceVersion and raises `Conflict` when another write came first.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol, runtime_checkable

from tidemark_operator.api.kinds import Object, ResourceKind


class StoreError(Exception):
    """The store could not be asked, or refused."""


class Conflict(StoreError):
    """Somebody else wrote first: read again, decide again."""


class AlreadyExists(StoreError):
    """Create of a name that is taken."""


class NotFound(StoreError):
    """Replace, patch or delete of what is not there."""


class UnknownKind(NotFound):
    """No such kind is served: its CRD is not installed."""


class Rejected(StoreError):
    """The object breaks its schema or a rule; the text is for the user."""


class Forbidden(Rejected):
    """A right is lacking, or an admission policy says no."""


class NamespaceTerminating(Rejected):
    """Create in a namespace that is being deleted: nothing will come of trying again."""


class OutcomeUnknown(StoreError):
    """A write was sent and its answer lost: it may or may not have happened (S3)."""


class ObjectStore(Protocol):
    """All methods raise StoreError subclasses; every call has a limit of `timeout_ms`."""

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        """A quorum read, never a cache. None: there is no such object, of a kind that is served."""
        ...

    async def list(
        self, kind: ResourceKind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        """All namespaces where `namespace` is None. Quorum read, in name order."""
        ...

    async def create(self, kind: ResourceKind, item: Object) -> Object: ...

    async def replace(self, kind: ResourceKind, item: Object) -> Object:
        """Compare-and-set on metadata.resourceVersion of the whole object (not its status, where
        the kind has a status subresource). Returns what is stored now."""
        ...

    async def replace_status(self, kind: ResourceKind, item: Object) -> Object:
        """The same for the status subresource."""
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
        """Gone already is fine. With `uid` only that very object, with `resource_version` only as
        it was read (else Conflict)."""
        ...


@runtime_checkable
class PagedStore(Protocol):
    """A store whose lists may be larger than what should be in memory at once."""

    def pages(self, kind: ResourceKind, namespace: str | None) -> AsyncIterator[list[Object]]:
        """A list, page by page, in no order."""
        ...
