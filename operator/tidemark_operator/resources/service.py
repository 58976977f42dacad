"""Build the Services of a pool and of each listener: one to bootstrap, one for each broker.

Brokers never use them: they connect to the pod addresses of the controller's metadata, because
cluster DNS may be half a minute old.
"""

from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.broker_pool import BrokerPool, ListenerSpec
from tidemark_operator.api.kinds import Object
from tidemark_operator.resources.broker_pod import HTTP_PORT, KAFKA_PORT, pool_owner_reference
from tidemark_operator.resources.names import (
    BROKER_ID_LABEL,
    LISTENER_LABEL,
    bootstrap_name,
    broker_labels,
    broker_name,
    listener_service_name,
    pool_labels,
    pool_selector,
)


def bootstrap_service_manifest(pool: BrokerPool) -> Object:
    """Return the Service of all brokers that are ready."""
    return _service(
        pool,
        name=bootstrap_name(pool.name),
        labels=pool_labels(pool.name),
        selector=pool_selector(pool.name),
        publishes_not_ready=False,
    )


def broker_service_manifest(pool: BrokerPool, broker_id: BrokerId) -> Object:
    """Return the Service of one broker, ready or not.

    A client that was sent to this leader has no other broker to ask.
    """
    return _service(
        pool,
        name=broker_name(pool.name, broker_id),
        labels=broker_labels(pool.name, broker_id),
        selector={**pool_selector(pool.name), BROKER_ID_LABEL: str(broker_id)},
        publishes_not_ready=True,
    )


def listener_service_manifest(
    pool: BrokerPool, listener: ListenerSpec, broker_id: BrokerId | None
) -> Object:
    """Return the listener's Service for one broker, or (None) for all that are ready."""
    if broker_id is None:
        labels, selector = pool_labels(pool.name), pool_selector(pool.name)
    else:
        labels = broker_labels(pool.name, broker_id)
        selector = {**pool_selector(pool.name), BROKER_ID_LABEL: str(broker_id)}
    manifest = _service(
        pool,
        name=listener_service_name(pool.name, listener.name, broker_id),
        labels={**labels, LISTENER_LABEL: listener.name},
        selector=selector,
        publishes_not_ready=broker_id is not None,
    )
    if listener.annotations:
        manifest["metadata"]["annotations"] = dict(listener.annotations)
    manifest["spec"]["type"] = listener.type
    manifest["spec"]["ports"] = [
        {
            "name": listener.protocol.lower(),
            "port": listener.port,
            "targetPort": listener.name,
        }
    ]
    return manifest


def _service(
    pool: BrokerPool,
    *,
    name: str,
    labels: dict[str, str],
    selector: dict[str, str],
    publishes_not_ready: bool,
) -> Object:
    spec: Object = {
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
