"""Names and labels of what belongs to a pool, and how they are read back."""

from typing import Any

import pytest
from tidemark_operator.resources.broker_pod import PodSettings, broker_pod_manifest
from tidemark_operator.resources.names import (
    BROKER_ID_LABEL,
    BROKER_SELECTOR,
    bootstrap_name,
    broker_id_of,
    broker_labels,
    broker_name,
    claim_name,
    listener_service_name,
    pool_labels,
    pool_name_of,
    pool_selector,
)
from tidemark_operator.resources.persistent_volume_claim import claim_manifest
from tidemark_protocol.ids import BrokerId

from tests.support.api_objects import broker_pool

POOL = broker_pool(uid="pool-uid", replicas=3)
TWO = BrokerId(2)


def pod() -> dict[str, Any]:
    return broker_pod_manifest(POOL, TWO, claim_uid="claim-uid", settings=PodSettings())


def test_every_object_of_a_pool_has_a_name_of_its_own() -> None:
    assert broker_name("default", TWO) == "default-2"
    assert claim_name("default", TWO) == "data-default-2"
    assert bootstrap_name("default") == "default-bootstrap"
    assert listener_service_name("default", "outside", TWO) == "default-outside-2"
    assert listener_service_name("default", "outside", BrokerId(0)) == "default-outside-0"
    assert listener_service_name("default", "outside", None) == "default-outside-bootstrap"


def test_labels_of_a_broker_are_those_of_its_pool_and_its_id() -> None:
    labels = broker_labels("default", TWO)
    assert pool_selector("default").items() <= pool_labels("default").items() <= labels.items()
    item = {"metadata": {"labels": labels}}
    assert (pool_name_of(item), broker_id_of(item)) == ("default", TWO)


@pytest.mark.parametrize("text", ["", "two", "-1", "1.5", " 2"])
def test_a_label_that_is_no_number_names_no_broker(text: str) -> None:
    assert broker_id_of({"metadata": {"labels": {BROKER_ID_LABEL: text}}}) is None


@pytest.mark.parametrize("metadata", [{}, {"labels": None}, {"labels": {"team": "shop"}}], ids=str)
def test_an_object_without_our_labels_is_of_no_pool_and_no_broker(metadata: dict[str, Any]) -> None:
    item = {"metadata": metadata}
    assert (pool_name_of(item), broker_id_of(item)) == (None, None)


def test_the_watches_select_pods_and_claims() -> None:
    selected = [each.split("=") for each in BROKER_SELECTOR.split(",")]
    for item in (pod(), claim_manifest(POOL, TWO)):
        labels = item["metadata"]["labels"]
        assert all(labels[key] == value for key, value in selected)
        assert broker_id_of(item) == TWO
