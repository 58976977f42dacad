"""The pool `default`, made when the first Topic needs it."""

from typing import Any

from tidemark_operator.manifests.specs import DEFAULT_POOL
from tidemark_operator.stores.object_store import BROKER_POOL, Object


def default_pool_manifest(
    namespace: str, spec: dict[str, Any], *, at_least_replicas: int
) -> Object:
    """`spec` is the installation's (chart values); it has more brokers where the Topic needs."""
    replicas = max(spec.get("replicas", 0), at_least_replicas)
    return {
        "apiVersion": BROKER_POOL.api_version,
        "kind": BROKER_POOL.kind,
        "metadata": {
            "name": DEFAULT_POOL,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": "tidemark-operator"},
        },
        "spec": {**spec, "replicas": replicas},
    }
