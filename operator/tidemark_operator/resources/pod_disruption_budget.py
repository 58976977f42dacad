"""Build the PodDisruptionBudget of a pool: evictions take one broker at a time (I19)."""

from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.api.kinds import Object
from tidemark_operator.resources.broker_pod import pool_owner_reference
from tidemark_operator.resources.names import pool_labels, pool_selector


def disruption_budget_manifest(pool: BrokerPool) -> Object:
    """Return the budget.

    maxUnavailable works for pods of a custom resource because BrokerPool has a scale subresource.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": pool.name,
            "namespace": pool.namespace,
            "labels": pool_labels(pool.name),
            "ownerReferences": [pool_owner_reference(pool)],
        },
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": pool_selector(pool.name)},
            # A broker that is catching up holds records too: it is no free victim.
            "unhealthyPodEvictionPolicy": "IfHealthyBudget",
        },
    }
