"""Build the PersistentVolumeClaim of one broker: its storage and its identity.

It has no owner reference, so that garbage collection never deletes it, and its own copy of the
pool's deletionPolicy: only that copy decides when the pool is gone (S4).
"""

from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.api.kinds import Object
from tidemark_operator.resources.names import DELETION_POLICY_LABEL, broker_labels, claim_name


# guard: claims-have-no-owner (S4)
def claim_manifest(pool: BrokerPool, broker_id: BrokerId) -> Object:
    spec: Object = {
        # ReadWriteOncePod (S13) needs a CSI driver; kind's local-path has none. With ReadWriteOnce
        # the lock on the log directory keeps two pods of one node apart.
        "accessModes": [pool.spec.storage.access_mode],
        "resources": {"requests": {"storage": pool.spec.storage.size}},
    }
    if pool.spec.storage.class_name is not None:
        spec["storageClassName"] = pool.spec.storage.class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": claim_name(pool.name, broker_id),
            "namespace": pool.namespace,
            "labels": {
                **broker_labels(pool.name, broker_id),
                DELETION_POLICY_LABEL: pool.spec.deletion_policy,
            },
        },
        "spec": spec,
    }


def access_mode_of(claim: Object) -> str:
    """Return the claim's access modes, which can never be changed."""
    modes: list[str] = (claim.get("spec") or {}).get("accessModes") or []
    return ", ".join(modes)


# guard: claim-has-its-own-policy (S4)
def policy_of(claim: Object) -> str:
    """Return the claim's own deletionPolicy; "" means Retain."""
    policy: str = (claim["metadata"].get("labels") or {}).get(DELETION_POLICY_LABEL, "")
    return policy
