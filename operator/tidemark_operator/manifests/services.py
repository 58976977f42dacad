"""Services of a pool: one to begin with, one for each broker. Peers never use them: they dial pod
addresses from the controller's metadata, because cluster DNS may be half a minute old."""

from typing import Any

from tidemark_protocol.ids import BrokerId

from tidemark_operator.manifests.names import (
    BROKER_ID_LABEL,
    bootstrap_name,
    broker_labels,
    broker_name,
    pool_labels,
    pool_selector,
)
from tidemark_operator.manifests.pods import HTTP_PORT, KAFKA_PORT, pool_owner_reference
from tidemark_operator.manifests.specs import PoolSpec
from tidemark_operator.stores.object_store import Object


def bootstrap_service_manifest(pool: PoolSpec) -> Object:
    """Any broker that is ready."""
    return _service(
        pool,
        name=bootstrap_name(pool.name),
        labels=pool_labels(pool.name),
        selector=pool_selector(pool.name),
        publishes_not_ready=False,
    )


def broker_service_manifest(pool: PoolSpec, broker_id: BrokerId) -> Object:
    """One broker, ready or not: a client that was sent to this leader has no other to ask."""
    return _service(
        pool,
        name=broker_name(pool.name, broker_id),
        labels=broker_labels(pool.name, broker_id),
        selector={**pool_selector(pool.name), BROKER_ID_LABEL: str(broker_id)},
        publishes_not_ready=True,
    )


def _service(
    pool: PoolSpec,
    *,
    name: str,
    labels: dict[str, str],
    selector: dict[str, str],
    publishes_not_ready: bool,
) -> Object:
    spec: dict[str, Any] = {
        "type": "ClusterIP",
        "selector": selector,
        "publishNotReadyAddresses": publishes_not_ready,
        "ports": [
            {"name": "kafka", "port": KAFKA_PORT, "targetPort": "kafka"},
            {"name": "http", "port": HTTP_PORT, "targetPort": "http"},
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": pool.namespace,
            "labels": labels,
            "ownerReferences": [pool_owner_reference(pool)],
        },
        "spec": spec,
    }
