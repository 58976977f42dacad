"""Read stored objects as typed values: defaults, rules and conversion in one place.

`crds/*.yaml` is the one source of schemas, defaults and rules; the structs only name what is read,
and have no default where the schema has one. What a status lacks is UNSET, never a default.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from tidemark_operator.api import schemas
from tidemark_operator.api.kinds import Object, ResourceKind


class ObjectMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The part of an object's metadata that the operator reads."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None  # RFC 3339, as the store stamped it
    deletion_timestamp: str | None = None
    annotations: dict[str, str] | None = None

    @property
    def is_going(self) -> bool:
        """Return whether the object is deleted, and only finalizers hold it."""
        return self.deletion_timestamp is not None

    @property
    def version(self) -> str:
        """Return UID and version: another object of the same name has another UID."""
        return f"{self.uid} {self.resource_version}"


class ConditionStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A condition of a stored status, as metav1.Condition."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str
    observed_generation: int | UnsetType = UNSET


class ObjectStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields that every status of ours has; a write leaves those that are UNSET as they are."""

    observed_generation: int | UnsetType = UNSET
    conditions: tuple[ConditionStatus, ...] | UnsetType = UNSET

    @property
    def known_conditions(self) -> tuple[ConditionStatus, ...]:
        return self.conditions or ()


class ApiObject(msgspec.Struct, kw_only=True, rename="camel"):
    """An object as stored; a write of its status updates it in place.

    Subclasses add `spec` and the type of their status.
    """

    resource: ClassVar[ResourceKind]

    metadata: ObjectMetadata
    status: ObjectStatus = ObjectStatus()
    stored: Object = {}  # the JSON, for the write of the status only

    @classmethod
    def faults(cls, item: Object) -> list[str]:
        """Return sentences for the user, none if the stored object is valid."""
        return schemas.stored_faults(item)

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def name(self) -> str:
        return self.metadata.name

    def record_written(self, stored: Object) -> None:
        """Take over what a write of the status has stored."""
        self.metadata = read_metadata(stored)
        self.status = msgspec.convert(stored.get("status") or {}, type(self.status))
        self.stored = stored


T = TypeVar("T", bound=ApiObject)


@dataclass(slots=True)
class Invalid(Generic[T]):
    """A stored object that breaks its schema or a rule."""

    resource: ResourceKind
    metadata: ObjectMetadata
    sentences: tuple[str, ...]  # for the user
    stored: Object = field(repr=False)

    @property
    def status(self) -> ObjectStatus:
        """Return what is known of the status, which may be what is invalid."""
        try:
            return msgspec.convert(self.stored.get("status") or {}, ObjectStatus)
        except msgspec.ValidationError:
            return ObjectStatus()

    def record_written(self, stored: Object) -> None:
        self.metadata, self.stored = read_metadata(stored), stored


def read_metadata(item: Object) -> ObjectMetadata:
    return msgspec.convert(item["metadata"], ObjectMetadata)


def parse(kind: type[T], item: Object) -> T | Invalid[T]:
    """Return a stored object as a value with all defaults, or what is wrong with it."""
    faults = kind.faults(item)
    if not faults:
        try:
            return _converted(kind, schemas.effective(item), item)
        except msgspec.ValidationError as error:
            faults = [f"{kind.resource.kind}: {error}"]
    return Invalid(kind.resource, read_metadata(item), tuple(faults), item)


def parse_unchecked(kind: type[T], item: Object) -> T:
    """Return a stored object as a value with the schema's defaults, whatever rules it breaks."""
    return _converted(kind, schemas.apply_defaults(item), item)


def _converted(kind: type[T], item: Object, stored: Object) -> T:
    value = msgspec.convert(item, kind)
    value.stored = stored
    return value
