"""The claim of a broker: without an owner, with its own copy of the deletion policy."""

from typing import Any

import pytest
from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.api.schemas import validate
from tidemark_operator.resources.persistent_volume_claim import (
    access_mode_of,
    claim_manifest,
    policy_of,
)
from tidemark_protocol.ids import BrokerId

from tests.support.api_objects import broker_pool, parsed, with_spec

POOL = broker_pool(uid="pool-uid", replicas=3)
TWO = BrokerId(2)


def test_a_claim_has_no_owner() -> None:
    metadata = claim_manifest(POOL, TWO)["metadata"]
    assert (metadata["name"], metadata["namespace"]) == ("data-default-2", "shop")
    assert "ownerReferences" not in metadata  # S4


@pytest.mark.parametrize(
    ("storage", "mode"),
    [({}, "ReadWriteOnce"), ({"accessMode": "ReadWriteOncePod"}, "ReadWriteOncePod")],
)
def test_a_claim_has_the_access_mode_of_its_pool(storage: dict[str, str], mode: str) -> None:  # S13
    item = {
        "apiVersion": "tidemark.dev/v1alpha1", "kind": "BrokerPool",
        "metadata": {"name": "default", "namespace": "shop"}, "spec": {"storage": storage},
    }  # fmt: skip
    assert validate(item) == []
    assert claim_manifest(parsed(BrokerPool, item), TWO)["spec"]["accessModes"] == [mode]


def test_a_claim_has_its_own_copy_of_the_deletion_policy() -> None:
    assert policy_of(claim_manifest(POOL, TWO)) == "Retain"
    assert policy_of(claim_manifest(with_spec(POOL, deletion_policy="Delete"), TWO)) == "Delete"
    assert policy_of({"metadata": {}}) == ""


def test_a_claim_names_a_storage_class_only_where_its_pool_does() -> None:
    """A claim without one gets the cluster's default."""
    plain = claim_manifest(POOL, TWO)["spec"]
    assert "storageClassName" not in plain
    assert plain["resources"] == {"requests": {"storage": POOL.spec.storage.size}}
    fast = broker_pool(storage={"className": "fast", "size": "5Gi"})
    assert claim_manifest(fast, TWO)["spec"]["storageClassName"] == "fast"


@pytest.mark.parametrize(
    ("claim", "mode"),
    [
        ({"spec": {"accessModes": ["ReadWriteOnce"]}}, "ReadWriteOnce"),
        (
            {"spec": {"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}},
            "ReadWriteOnce, ReadWriteMany",
        ),
        ({"spec": {}}, ""),
        ({}, ""),
    ],
)
def test_the_access_modes_of_a_claim_are_read_as_one_text(claim: dict[str, Any], mode: str) -> None:
    assert access_mode_of(claim) == mode
