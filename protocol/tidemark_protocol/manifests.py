"""Read manifests as users write them, and apply a manifest to an object.

They are read as kubectl reads them: a repeated key is an error, a `List` is its items, a date is
text. A change is kubectl's three-way merge, so that both tools may apply the same object.
"""

import json
from collections.abc import Iterator
from typing import Any

import yaml

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MAX_NODES = 200_000  # an alias that is used again and again makes much of a short text
MAX_INTEGER = 2**63 - 1
MAX_DEPTH = 64

Manifest = dict[str, Any]


class UnreadableManifest(Exception):
    """An error whose text is a sentence for the user."""


class _Loader(yaml.SafeLoader):
    """A YAML loader with JSON's values and unique keys."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            line = key.start_mark.line + 1
            raise UnreadableManifest(f"line {line}: expected a key, found a list or an object")
        if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
            line = key.start_mark.line + 1
            raise UnreadableManifest(f'line {line}: key "{key.value}" already set in map')
        seen.add(key.value)
    loader.flatten_mapping(node)
    return {str(key.value): loader.construct_object(value, deep=True) for key, value in node.value}


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", lambda _, node: str(node.value))


def read_objects(text: str) -> list[Any]:
    """Return the documents, with the items of a `kind: List` in its place.

    Raises UnreadableManifest.
    """
    try:
        documents = list(yaml.load_all(text, Loader=_Loader))
    # Constructors of explicit tags (`!!int ''`) raise what their conversion raises.
    except (yaml.YAMLError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise UnreadableManifest(f"expected YAML, found: {error}") from error
    _check_plain(documents)
    return [item for document in documents if document is not None for item in _items(document)]


def _items(document: Any) -> Iterator[Any]:
    is_list = isinstance(document, dict) and document.get("kind") == "List"
    if is_list and document.get("apiVersion") == "v1":
        items = document.get("items") or []
        if not isinstance(items, list):
            raise UnreadableManifest(f"items of a List: expected a list, found {items!r:.80}")
        yield from items
    else:
        yield document


def _check_plain(documents: list[Any]) -> None:
    """Check, in bounded work, that JSON can express the documents."""
    to_see = [(document, 0) for document in documents]
    seen = 0
    while to_see:
        value, depth = to_see.pop()
        seen += 1
        if seen > MAX_NODES or depth > MAX_DEPTH:
            raise UnreadableManifest(
                f"expected at most {MAX_NODES} values in {MAX_DEPTH} levels, found more"
            )
        if isinstance(value, dict):
            to_see.extend((child, depth + 1) for child in value.values())
        elif isinstance(value, list):
            to_see.extend((child, depth + 1) for child in value)
        elif isinstance(value, float) and value - value != 0:
            raise UnreadableManifest(f"expected a finite number, found {value}")
        elif isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise UnreadableManifest("expected an integer of at most 64 bits, found a larger one")
        elif value is not None and not isinstance(value, str | int | float | bool):
            raise UnreadableManifest(f"expected a JSON value, found {value!r:.80}")


def with_manifest(stored: Manifest | None, manifest: Manifest) -> Manifest:
    """Return the object after `kubectl apply`.

    Fields that neither this manifest nor the last applied one sets stay, such as the placement that
    `tidemark move` wrote.
    """
    said = {name: value for name, value in manifest.items() if name != "status"}
    metadata = said["metadata"]
    given = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != LAST_APPLIED}
    plain = {**said, "metadata": {**metadata, "annotations": given}}
    marked = {**given, LAST_APPLIED: json.dumps(plain, separators=(",", ":"), sort_keys=True)}
    if stored is None:
        return {**said, "metadata": {**metadata, "annotations": marked}}
    last = last_applied(stored)
    last_metadata, kept = last.get("metadata") or {}, stored["metadata"]
    after = {**kept}
    for name, wanted in (("annotations", marked), ("labels", metadata.get("labels") or {})):
        before = {k: v for k, v in (last_metadata.get(name) or {}).items() if k != LAST_APPLIED}
        after[name] = _merged(before, kept.get(name) or {}, wanted)
        if not after[name]:
            del after[name]
    spec = _merged(last.get("spec") or {}, stored.get("spec") or {}, said.get("spec") or {})
    return {**stored, "metadata": after, "spec": spec}


def last_applied(stored: Manifest) -> Manifest:
    """Return the manifest that was applied last; {} if there is none or it cannot be read."""
    text = (stored["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _merged(last: Any, stored: Any, wanted: Any) -> Any:
    if not isinstance(wanted, dict) or not isinstance(stored, dict):
        return wanted
    known = last if isinstance(last, dict) else {}
    result = {k: v for k, v in stored.items() if k in wanted or k not in known}
    for name, value in wanted.items():
        result[name] = _merged(known.get(name), result[name], value) if name in result else value
    return result
