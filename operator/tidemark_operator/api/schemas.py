"""Defaults and rules of the manifests that users write, from crds/*.yaml.

The API server applies the same files; this mirror serves stores without one (local mode) and
manifests that reached the store around it. What the API server would refuse, or prune in silence,
comes out here as sentences for the user: schema, unknown fields, then the rules
(`validation_rules.py`).
"""

import copy
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

from tidemark_operator.api.kinds import Object
from tidemark_operator.api.topic_configs import effective_config
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
    """The CRD files in the package, else those of the checkout."""
    package = Path(__file__).resolve().parent.parent
    candidates = (package / "crds", package.parent.parent / "crds")
    for candidate in candidates:
        if any(candidate.glob("*.yaml")):
            return candidate
    raise FileNotFoundError(f"no CRD files in {candidates[0]} or {candidates[1]}")


def load_schema(kind: str) -> dict[str, Any]:
    """The openAPIV3Schema of `kind`; raises KeyError for a kind that is not ours."""
    schema = _schemas().get(kind)
    if schema is None:
        raise KeyError(f"no CRD of kind {kind} in {crd_directory()}")
    return schema


@cache
def _schemas() -> dict[str, dict[str, Any]]:
    """By kind. Reading them takes some 200 ms: no event loop should be the first to ask."""
    schemas = {}
    for path in sorted(crd_directory().glob("*.yaml")):
        crd = yaml.safe_load(path.read_text(encoding="utf-8"))
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        schemas[crd["spec"]["names"]["kind"]] = schema
    return schemas


def apply_defaults(item: Object) -> Object:
    """A copy with the schema's defaults: what the API server would store."""
    item = copy.deepcopy(item)
    _fill_defaults(item, load_schema(item["kind"]))
    return item


def effective(item: Object) -> Object:
    """A copy with the operator's own defaults too: topicName and every known config. Only for
    objects that passed `validate`."""
    item = apply_defaults(item)
    if item["kind"] == "Topic":
        spec = item["spec"]
        spec["topicName"] = topic_name(item)
        spec["config"] = effective_config(spec["config"], spec["replicationFactor"])
    return item


def validate(item: Object, old: Object | None = None) -> list[str]:
    """Sentences for the user, empty when all is well. With `old` (what is stored now), the rules
    about changes too."""
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
    """Of what the API server took, sentences for the user. Fields that we do not know are of a
    newer CRD, and have its defaults: to stop at them would leave a pool without its brokers until
    the operator is as new. An annotation is no part of the spec: what is wrong with one is said
    beside it. The status is ours."""
    judged = {name: value for name, value in item.items() if name != "status"}
    judged["metadata"] = {**item["metadata"], "annotations": {}}
    schema = load_schema(item["kind"])["properties"]["spec"]
    return validate({**judged, "spec": _without_unknown(item.get("spec"), schema)})


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
    """What the API server would prune: kubectl calls it an unknown field, and so do we."""
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
