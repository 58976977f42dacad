"""Typed API objects for tests, parsed as the operator parses what is stored."""

from typing import Any, TypeVar

from msgspec.structs import replace
from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.api.objects import ApiObject, Invalid, parse

T = TypeVar("T", bound=ApiObject)


def parsed(kind: type[T], item: dict[str, Any]) -> T:
    found = parse(kind, item)
    assert not isinstance(found, Invalid), found.sentences
    return found


def broker_pool(*, uid: str = "uid", **spec: Any) -> BrokerPool:
    item = {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "BrokerPool",
        "metadata": {"namespace": "shop", "name": "default", "uid": uid, "generation": 1},
        "spec": spec,
    }
    return parsed(BrokerPool, item)


def with_spec(item: T, **fields: Any) -> T:
    """Return the object with other values of these fields of its spec."""
    found: Any = item
    changed: T = replace(found, spec=replace(found.spec, **fields))
    return changed
