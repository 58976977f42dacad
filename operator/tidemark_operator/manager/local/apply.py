"""Apply manifests to the local store as the API server would: defaults, rules, create or replace.

The result names each object with `created`, `configured` or `unchanged`; one rejected document
rejects all of them, before anything is written. A manifest changes what it says or said before, as
`kubectl apply` does (`with_manifest`).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from tidemark_protocol.manifests import (
    LAST_APPLIED,
    UnreadableManifest,
    read_objects,
    with_manifest,
)

from tidemark_operator.api import schemas
from tidemark_operator.api.kinds import BROKER_POOL, TIDEMARK_GROUP, TOPIC, Object, ResourceKind
from tidemark_operator.manager.local.object_metadata import metadata_faults
from tidemark_operator.store.object_store import Conflict, ObjectStore

Result = TypeVar("Result")

NAMESPACE = "default"
API_VERSION = f"{TIDEMARK_GROUP}/v1alpha1"
KINDS = {kind.kind: kind for kind in (TOPIC, BROKER_POOL)}
MAX_DOCUMENTS = 1000
MAX_TRIES = 5
MAX_PATCH_BYTES = 1024 * 1024
FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")
# In manifests that were read from a cluster; the store sets them.
OF_THE_STORE = frozenset(
    {
        *("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"),
        *("managedFields", "selfLink", "deletionGracePeriodSeconds"),
    }
)


class ManifestRejected(Exception):
    """An error; `problems` are sentences for the user."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Applied:
    kind: str
    name: str
    action: str  # created | configured | unchanged


async def apply_manifests(store: ObjectStore, text: str) -> tuple[Applied, ...]:
    """Apply YAML documents.

    Raises ManifestRejected, StoreError.
    """
    wanted: list[tuple[ResourceKind, Object]] = []
    after: dict[tuple[str, str], Object] = {}
    problems: list[str] = []
    for number, document in enumerate(_documents(text), start=1):
        kind = _kind(document, number)
        name = document["metadata"]["name"]
        stored = after.get((kind.kind, name)) or await store.get(kind, NAMESPACE, name)
        found = [*metadata_faults(document["metadata"], NAMESPACE)]
        found += _version_faults(document["metadata"], stored)
        if not found:
            item = schemas.apply_defaults(with_manifest(stored, _in_namespace(document)))
            found = schemas.validate(item, stored)
            wanted.append((kind, document))
            after[kind.kind, name] = item
        problems += [f"{kind.kind} {name[:300]}: {sentence}" for sentence in found]
    if problems:
        raise ManifestRejected(problems)
    if len(after) < len(wanted):  # an object is there twice: in turn
        return tuple([await _put(store, kind, document) for kind, document in wanted])
    # At once: they share a commit.
    return tuple(await asyncio.gather(*(_put(store, *each) for each in wanted)))


async def create_object(store: ObjectStore, kind: ResourceKind, text: str) -> Object:
    """Store one new object, given as JSON. Raises ManifestRejected, AlreadyExists, StoreError."""
    documents = _documents(text)
    if len(documents) != 1 or _kind(documents[0], 1) != kind:
        raise ManifestRejected([f"expected one {kind.kind}, found something else"])
    item = schemas.apply_defaults(_in_namespace(documents[0]))
    found = [*metadata_faults(item["metadata"], NAMESPACE), *_version_faults(item["metadata"])]
    found = found or schemas.validate(item)
    if found:
        name = item["metadata"]["name"]
        raise ManifestRejected([f"{kind.kind} {name[:300]}: {sentence}" for sentence in found])
    return await store.create(kind, item)


def _in_namespace(document: Object) -> Object:
    given = {k: v for k, v in document["metadata"].items() if k not in OF_THE_STORE}
    return {**document, "metadata": {**given, "namespace": NAMESPACE}}


def _version_faults(metadata: Object, stored: Object | None = None) -> list[str]:
    """Yield a fault if a manifest of `kubectl get -o yaml` has an outdated version."""
    version = metadata.get("resourceVersion")
    if version is None:
        return []
    if stored is None:
        return ["resourceVersion should not be set on objects to be created"]
    if version != stored["metadata"]["resourceVersion"]:
        return ["the object has been modified; apply your changes to the latest version"]
    return []


async def patch_object(store: ObjectStore, kind: ResourceKind, name: str, patch: bytes) -> Object:
    """Apply a JSON merge patch (RFC 7396) of spec, annotations and labels.

    Raises ManifestRejected, StoreError.
    """
    return await _undisturbed(lambda: _patch_once(store, kind, name, patch))


async def _patch_once(store: ObjectStore, kind: ResourceKind, name: str, patch: bytes) -> Object:
    stored = await store.get(kind, NAMESPACE, name)
    if stored is None:
        raise ManifestRejected([f"expected a {kind.kind} named {name}, found none"])
    try:
        change = msgspec.json.decode(patch[:MAX_PATCH_BYTES])
    except msgspec.DecodeError as error:
        raise ManifestRejected([f"expected a JSON merge patch, found: {error}"]) from error
    notes = change.get("metadata", {}) if isinstance(change, dict) else None
    if not isinstance(notes, dict) or not {*change} <= {"spec", "metadata"}:
        raise ManifestRejected(["expected an object with spec or metadata.annotations"])
    if not {*notes} <= {"annotations", "labels"}:
        raise ManifestRejected(["only annotations and labels of the metadata can be changed"])
    changed = {name: _merged(stored["metadata"].get(name) or {}, notes[name]) for name in notes}
    wanted = {
        **stored,
        "spec": _merged(stored["spec"], change.get("spec", {})),
        "metadata": {**stored["metadata"], **changed},
    }
    problems = [*metadata_faults(wanted["metadata"], NAMESPACE)]
    problems = problems or schemas.validate(wanted, stored)
    if problems:
        raise ManifestRejected([f"{kind.kind} {name}: {sentence}" for sentence in problems])
    return await store.replace(kind, wanted)


def _merged(value: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for name, change in patch.items():
        if change is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), change)
    return result


def _documents(text: str) -> list[Any]:
    try:
        documents = read_objects(text)
    except UnreadableManifest as error:
        raise ManifestRejected([str(error)]) from error
    if not documents or len(documents) > MAX_DOCUMENTS:
        raise ManifestRejected([f"expected 1 to {MAX_DOCUMENTS} objects, found {len(documents)}"])
    return documents


def _kind(document: Any, number: int) -> ResourceKind:
    """Return the kind of a document.

    Raises ManifestRejected unless it is one of our objects with a name.
    """
    if not isinstance(document, dict):
        raise ManifestRejected([f"document {number}: expected an object, found {document!r:.80}"])
    version, kind = document.get("apiVersion"), document.get("kind")
    if version != API_VERSION or kind not in KINDS:
        raise ManifestRejected(
            [
                f"document {number}: expected apiVersion {API_VERSION} and kind"
                f" {' or '.join(KINDS)}, found {version} {kind}"
            ]
        )
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise ManifestRejected([f"document {number} ({kind}): expected metadata.name, found none"])
    problems = [f'unknown field "{name}"' for name in document if name not in FIELDS]
    if "spec" not in document:
        problems.append("spec: Required value")
    if problems:
        name = metadata["name"][:300]
        raise ManifestRejected([f"{kind} {name}: {sentence}" for sentence in problems])
    return KINDS[kind]


async def _put(store: ObjectStore, kind: ResourceKind, document: Object) -> Applied:
    return await _undisturbed(lambda: _put_once(store, kind, document))


async def _undisturbed(write: Callable[[], Awaitable[Result]]) -> Result:
    """Repeat a write after a conflict with the operator, which changes statuses at any time."""
    for _ in range(MAX_TRIES - 1):
        with contextlib.suppress(Conflict):
            return await write()
    return await write()


async def _put_once(store: ObjectStore, kind: ResourceKind, document: Object) -> Applied:
    name = document["metadata"]["name"]
    stored = await store.get(kind, NAMESPACE, name)
    item = schemas.apply_defaults(with_manifest(stored, _in_namespace(document)))
    if stored is None:
        await store.create(kind, item)
        return Applied(kind.kind, name, "created")
    written = await store.replace(kind, item)
    is_same = _without_mark(written) == _without_mark(stored)
    return Applied(kind.kind, name, "unchanged" if is_same else "configured")


def _without_mark(item: Object) -> tuple[Any, ...]:
    metadata = item["metadata"]
    notes = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != LAST_APPLIED}
    return item.get("spec"), notes, metadata.get("labels") or {}
