"""The budget of a pool lets evictions take one broker at a time."""

from tidemark_operator.resources.names import broker_labels
from tidemark_operator.resources.pod_disruption_budget import disruption_budget_manifest
from tidemark_protocol.ids import BrokerId

from tests.support.api_objects import broker_pool

POOL = broker_pool(uid="pool-uid", replicas=3)


def test_one_broker_at_a_time_may_be_evicted() -> None:
    spec = disruption_budget_manifest(POOL)["spec"]
    assert spec["maxUnavailable"] == 1
    assert spec["selector"]["matchLabels"].items() <= broker_labels("default", BrokerId(2)).items()


def test_a_broker_that_catches_up_counts_as_unavailable() -> None:
    spec = disruption_budget_manifest(POOL)["spec"]
    assert spec["unhealthyPodEvictionPolicy"] == "IfHealthyBudget"


def test_a_budget_goes_with_its_pool_and_selects_no_other_pools_brokers() -> None:
    budget = disruption_budget_manifest(POOL)
    (owner,) = budget["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("BrokerPool", "pool-uid")
    assert (budget["metadata"]["name"], budget["metadata"]["namespace"]) == ("default", "shop")
    selector = budget["spec"]["selector"]["matchLabels"]
    assert not selector.items() <= broker_labels("other", BrokerId(2)).items()
