"""Applies manifests to the local store as the API server would: defaults, rules, create or replace.

The answer names each object with `created`, `configured` or `unchanged`; one refused document
refuses all of them, before anything is written.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from tidemark_operator.manifests import schemas
from tidemark_operator.stores.object_store import (
    BROKER_POOL,
    TIDEMARK_GROUP,
    TOPIC,
    Object,
    ObjectStore,
    ResourceKind,
)

NAMESPACE = "default"
API_VERSION = f"{TIDEMARK_GROUP}/v1alpha1"
KINDS = {kind.kind: kind for kind in (TOPIC, BROKER_POOL)}
MAX_DOCUMENTS = 1000
MAX_PATCH_BYTES = 1024 * 1024


class ManifestRefused(Exception):
    """`problems` are sentences for the user."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Applied:
    kind: str
    name: str
    action: str  # created | configured | unchanged


async def apply_manifests(store: ObjectStore, text: str) -> tuple[Applied, ...]:
    """`text`: YAML documents. Raises ManifestRefused, StoreError."""
    wanted: list[tuple[ResourceKind, Object, Object | None]] = []
    problems: list[str] = []
    for number, document in enumerate(_documents(text), start=1):
        kind = _kind(document, number)
        metadata = document["metadata"]
        item = schemas.apply_defaults(
            {
                **document,
                "metadata": {**metadata, "namespace": metadata.get("namespace", NAMESPACE)},
            }
        )
        stored = await store.get(kind, item["metadata"]["namespace"], metadata["name"])
        found = schemas.validate(item, stored)
        problems += [f"{kind.kind} {metadata['name']}: {sentence}" for sentence in found]
        wanted.append((kind, item, stored))
    if problems:
        raise ManifestRefused(problems)
    # At once: they share a commit.
    return tuple(await asyncio.gather(*(_put(store, *each) for each in wanted)))


async def patch_object(store: ObjectStore, kind: ResourceKind, name: str, patch: bytes) -> Object:
    """A JSON merge patch (RFC 7396) of spec and annotations. Raises ManifestRefused, StoreError."""
    stored = await store.get(kind, NAMESPACE, name)
    if stored is None:
        raise ManifestRefused([f"expected a {kind.kind} named {name}, found none"])
    try:
        change = msgspec.json.decode(patch[:MAX_PATCH_BYTES])
    except msgspec.DecodeError as error:
        raise ManifestRefused([f"expected a JSON merge patch, found: {error}"]) from error
    if not isinstance(change, dict) or not change.keys() <= {"spec", "metadata"}:
        raise ManifestRefused(["expected an object with spec or metadata.annotations"])
    annotations = change.get("metadata", {}).get("annotations", {})
    wanted = {
        **stored,
        "spec": _merged(stored["spec"], change.get("spec", {})),
        "metadata": {
            **stored["metadata"],
            "annotations": _merged(stored["metadata"].get("annotations") or {}, annotations),
        },
    }
    problems = schemas.validate(wanted, stored)
    if problems:
        raise ManifestRefused([f"{kind.kind} {name}: {sentence}" for sentence in problems])
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
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise ManifestRefused([f"expected YAML, found: {error}"]) from error
    if not documents or len(documents) > MAX_DOCUMENTS:
        raise ManifestRefused([f"expected 1 to {MAX_DOCUMENTS} objects, found {len(documents)}"])
    return documents


def _kind(document: Any, number: int) -> ResourceKind:
    """Raises ManifestRefused unless it is one of our objects with a name."""
    if not isinstance(document, dict):
        raise ManifestRefused([f"document {number}: expected an object, found {document!r:.80}"])
    version, kind = document.get("apiVersion"), document.get("kind")
    if version != API_VERSION or kind not in KINDS:
        raise ManifestRefused(
            [
                f"document {number}: expected apiVersion {API_VERSION} and kind"
                f" {' or '.join(KINDS)}, found {version} {kind}"
            ]
        )
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise ManifestRefused([f"document {number} ({kind}): expected metadata.name, found none"])
    return KINDS[kind]


async def _put(
    store: ObjectStore, kind: ResourceKind, item: Object, stored: Object | None
) -> Applied:
    name = item["metadata"]["name"]
    if stored is None:
        await store.create(kind, item)
        return Applied(kind.kind, name, "created")
    if stored.get("spec") == item.get("spec"):
        return Applied(kind.kind, name, "unchanged")
    await store.replace(kind, {**stored, "spec": item["spec"]})
    return Applied(kind.kind, name, "configured")
