"""The Services of a pool: one to begin with, one for each broker, and those of listeners."""

from typing import Any

from tidemark_operator.api.broker_pool import ListenerSpec
from tidemark_operator.resources.broker_pod import PodSettings, broker_pod_manifest
from tidemark_operator.resources.names import BROKER_ID_LABEL
from tidemark_operator.resources.service import (
    bootstrap_service_manifest,
    broker_service_manifest,
    listener_service_manifest,
)
from tidemark_protocol.ids import BrokerId

from tests.support.api_objects import broker_pool

POOL = broker_pool(uid="pool-uid", replicas=3)
TWO = BrokerId(2)
OUTSIDE = ListenerSpec("outside", "NodePort", 9094, annotations={"owner": "shop"})


def pod() -> dict[str, Any]:
    return broker_pod_manifest(POOL, TWO, claim_uid="claim-uid", settings=PodSettings())


def test_services_select_pods_by_labels_that_these_have() -> None:
    labels = pod()["metadata"]["labels"]
    for service in (bootstrap_service_manifest(POOL), broker_service_manifest(POOL, TWO)):
        assert service["spec"]["selector"].items() <= labels.items()
    assert broker_service_manifest(POOL, TWO)["spec"]["publishNotReadyAddresses"] is True
    assert bootstrap_service_manifest(POOL)["spec"]["publishNotReadyAddresses"] is False


def test_the_service_to_begin_with_leads_to_any_broker_that_is_ready() -> None:
    service = listener_service_manifest(POOL, OUTSIDE, None)
    assert service["metadata"]["name"] == "default-outside-bootstrap"
    assert BROKER_ID_LABEL not in service["spec"]["selector"]
    assert service["spec"]["publishNotReadyAddresses"] is False


def test_a_listener_has_a_service_for_each_broker() -> None:
    service = listener_service_manifest(POOL, OUTSIDE, TWO)
    assert service["metadata"]["name"] == "default-outside-2"
    assert service["metadata"]["annotations"] == {"owner": "shop"}
    assert service["spec"]["selector"][BROKER_ID_LABEL] == "2"
    assert service["spec"]["type"] == "NodePort"
    assert service["spec"]["ports"] == [{"name": "kafka", "port": 9094, "targetPort": "outside"}]
    assert service["spec"]["publishNotReadyAddresses"] is True


def test_a_listener_of_http_names_its_port_so() -> None:
    web = ListenerSpec("web", "LoadBalancer", 8081, protocol="HTTP")
    service = listener_service_manifest(POOL, web, TWO)
    assert service["spec"]["ports"] == [{"name": "http", "port": 8081, "targetPort": "web"}]
