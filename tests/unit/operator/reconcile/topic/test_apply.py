"""What applying a Topic's plan writes."""

from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.api.schemas import validate
from tidemark_operator.reconcile.topic.apply import default_pool_manifest

from tests.support.api_objects import parsed


def test_the_default_pool_is_a_valid_broker_pool() -> None:
    chart = {"replicas": 3, "image": "tidemark/broker:1", "storage": {"size": "1Gi"}}
    manifest = default_pool_manifest("shop", chart, at_least_replicas=5)
    assert validate(manifest) == []
    spec = parsed(BrokerPool, manifest).spec
    assert (spec.replicas, spec.image, spec.storage.size) == (5, "tidemark/broker:1", "1Gi")
