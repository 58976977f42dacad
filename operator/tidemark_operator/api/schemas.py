"""Apply the defaults and rules of crds/*.yaml to manifests that users write.

The API server applies the same files. This mirror serves stores without an API server (local mode),
and objects that reached the store without it. What the API server would reject or prune is returned
as sentences for the user: schema, unknown fields, then the rules (`validation_rules.py`).
"""

import copy
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

from tidemark_operator.api.config_checks import effective_config
from tidemark_operator.api.kinds import Object
from tidemark_operator.api.validation_rules import (
    audit_change_faults,
    audit_faults,
    pool_change_faults,
    pool_faults,
    topic_change_faults,
    topic_faults,
    topic_name,
)

_RULES: dict[str, Callable[[Object], Iterator[str]]] = {
    "Topic": topic_faults,
    "BrokerPool": pool_faults,
    "ReplicationAudit": audit_faults,
}
_CHANGE_RULES: dict[str, Callable[[Object, Object], Iterator[str]]] = {
    "Topic": topic_change_faults,
    "BrokerPool": pool_change_faults,
    "ReplicationAudit": audit_change_faults,
}
MAX_SENTENCES = 20


def crd_directory() -> Path:
    """Return the folder of CRD files in the package, else that of the checkout."""
    package = Path(__file__).resolve().parent.parent
    candidates = (package / "crds", package.parent.parent / "crds")
    for candidate in candidates:
        if any(candidate.glob("*.yaml")):
            return candidate
    raise FileNotFoundError(f"no CRD files in {candidates[0]} or {candidates[1]}")


def load_schema(kind: str) -> dict[str, Any]:
    """Return the openAPIV3Schema of `kind`.

    Raises KeyError for an unknown kind.
    """
    schema = _schemas().get(kind)
    if schema is None:
        raise KeyError(f"no CRD of kind {kind} in {crd_directory()}")
    return schema


@cache
def _schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas by kind.

    Reading them takes some 200 ms, so the first call should not be on an event loop.
    """
    schemas = {}
    for path in sorted(crd_directory().glob("*.yaml")):
        crd = yaml.safe_load(path.read_text(encoding="utf-8"))
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schemas[crd["spec"]["names"]["kind"]] = schema
    return schemas


def apply_defaults(item: Object) -> Object:
    """Return a copy with the schema's defaults, as the API server would store it."""
    item = copy.deepcopy(item)
    _fill_defaults(item, load_schema(item["kind"]))
    return item


def effective(item: Object) -> Object:
    """Return a copy with the operator's own defaults too: topicName and each known config.

    Only for objects that passed `validate`.
    """
    item = apply_defaults(item)
    if item["kind"] == "Topic":
        spec = item["spec"]
        spec["topicName"] = topic_name(item)
        spec["config"] = effective_config(spec["config"], spec["replicationFactor"])
    return item


def validate(item: Object, old: Object | None = None) -> list[str]:
    """Return sentences for the user, none if the manifest is valid.

    With `old`, the stored object, the rules about changes are checked too.
    """
    kind = item.get("kind")
    if kind not in _RULES:
        return [f"kind: expected one of {', '.join(sorted(_RULES))}, found {kind!r}"]
    schema = load_schema(kind)
    item = apply_defaults(item)
    sentences = [
        f"{'.'.join(str(part) for part in error.absolute_path) or kind}: {error.message}"
        for error in _validator(kind).iter_errors(item)
    ]
    sentences += _unknown_fields(item, schema, "")
    if not isinstance(item.get("metadata", {}).get("name"), str):
        sentences.append("metadata.name: expected a name, found none")
    if not sentences:
        sentences += _RULES[kind](item)
    if not sentences and old is not None:
        sentences += _CHANGE_RULES[kind](item, apply_defaults(old))
    return sentences[:MAX_SENTENCES]


def stored_faults(item: Object) -> list[str]:
    """Return sentences about an object that the API server accepted.

    Unknown fields are of a newer CRD and have its defaults: rejecting them would leave a pool
    without its brokers until the operator is as new. Annotations are not part of the spec; their
    errors are reported separately. The status is ours.
    """
    checked = {name: value for name, value in item.items() if name != "status"}
    checked["metadata"] = {**item["metadata"], "annotations": {}}
    schema = load_schema(item["kind"])["properties"]["spec"]
    return validate({**checked, "spec": _without_unknown(item.get("spec"), schema)})


def _without_unknown(value: Any, schema: dict[str, Any]) -> Any:
    if isinstance(value, list):
        return [_without_unknown(entry, schema.get("items", {})) for entry in value]
    known = schema.get("properties")
    if not isinstance(value, dict) or known is None:
        return value
    keeps_all = "x-kubernetes-preserve-unknown-fields" in schema
    return {
        name: _without_unknown(child, known.get(name, {}))
        for name, child in value.items()
        if keeps_all or name in known
    }


@cache
def _validator(kind: str) -> Draft202012Validator:
    return Draft202012Validator(load_schema(kind))


def _fill_defaults(value: Any, schema: dict[str, Any]) -> None:
    if isinstance(value, dict):
        for name, child in schema.get("properties", {}).items():
            if name not in value and "default" in child:
                value[name] = copy.deepcopy(child["default"])
            if name in value:
                _fill_defaults(value[name], child)
    elif isinstance(value, list):
        for entry in value:
            _fill_defaults(entry, schema.get("items", {}))


def _unknown_fields(value: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    """Yield what the API server would prune, as kubectl's "unknown field"."""
    if isinstance(value, list):
        for index, entry in enumerate(value):
            yield from _unknown_fields(entry, schema.get("items", {}), f"{path}[{index}]")
    known = schema.get("properties")
    if not isinstance(value, dict) or known is None:
        return
    for name, child in value.items():
        child_path = f"{path}.{name}" if path else str(name)
        if name in known:
            yield from _unknown_fields(child, known[name], child_path)
        elif "x-kubernetes-preserve-unknown-fields" not in schema:
            yield f'unknown field "{child_path}"'
