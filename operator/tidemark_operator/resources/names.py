"""Name and label what belongs to a pool. Labels that select are few and never change."""

from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.kinds import Object

MANAGED_BY = "tidemark-operator"
POOL_LABEL = "tidemark.dev/pool"
BROKER_ID_LABEL = "tidemark.dev/broker-id"
LISTENER_LABEL = "tidemark.dev/listener"  # on its Services
DELETION_POLICY_LABEL = "tidemark.dev/deletion-policy"
# On a pod: the digest of the template it was made of.
TEMPLATE_ANNOTATION = "tidemark.dev/template"
# A volume of a broker's pod: the token by which the controller knows the broker.
CONTROLLER_TOKEN_VOLUME = "controller-token"
# What kopf watches brokers' pods and claims by, on the server's side.
BROKER_SELECTOR = f"app.kubernetes.io/managed-by={MANAGED_BY},app.kubernetes.io/component=broker"


def broker_name(pool_name: str, broker_id: BrokerId) -> str:
    """Return the name of the broker's pod, Service and Broker object."""
    return f"{pool_name}-{broker_id}"


def claim_name(pool_name: str, broker_id: BrokerId) -> str:
    return f"data-{pool_name}-{broker_id}"


def bootstrap_name(pool_name: str) -> str:
    return f"{pool_name}-bootstrap"


def listener_service_name(pool_name: str, listener: str, broker_id: BrokerId | None) -> str:
    """Return the name of a listener's Service; a `broker_id` of None is the bootstrap Service."""
    return f"{pool_name}-{listener}-{'bootstrap' if broker_id is None else broker_id}"


def pool_selector(pool_name: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "tidemark",
        "app.kubernetes.io/component": "broker",
        "app.kubernetes.io/instance": pool_name,
    }


def pool_labels(pool_name: str) -> dict[str, str]:
    return {
        **pool_selector(pool_name),
        "app.kubernetes.io/managed-by": MANAGED_BY,
        POOL_LABEL: pool_name,
    }


def broker_labels(pool_name: str, broker_id: BrokerId) -> dict[str, str]:
    return {**pool_labels(pool_name), BROKER_ID_LABEL: str(broker_id)}


def broker_id_of(item: Object) -> BrokerId | None:
    """Return the broker id of an object's label, or None if it has none."""
    text = (item["metadata"].get("labels") or {}).get(BROKER_ID_LABEL, "")
    return BrokerId(int(text)) if text.isdecimal() else None


def pool_name_of(item: Object) -> str | None:
    return (item["metadata"].get("labels") or {}).get(POOL_LABEL)
