"""What the operator makes for a pool: restricted pods, ownerless claims, Services, a budget."""

from typing import Any

import pytest
from tidemark_operator.api.broker_pool import BrokerPool, ListenerSpec
from tidemark_operator.api.schemas import validate
from tidemark_operator.reconcile.topic.apply import default_pool_manifest
from tidemark_operator.resources.broker_pod import PodSettings, broker_pod_manifest
from tidemark_operator.resources.names import BROKER_ID_LABEL, BROKER_SELECTOR, broker_id_of
from tidemark_operator.resources.persistent_volume_claim import claim_manifest, policy_of
from tidemark_operator.resources.pod_disruption_budget import disruption_budget_manifest
from tidemark_operator.resources.service import (
    bootstrap_service_manifest,
    broker_service_manifest,
    listener_service_manifest,
)
from tidemark_protocol.ids import BrokerId

from tests.support.api_objects import broker_pool, parsed, with_spec

POOL = broker_pool(uid="pool-uid", replicas=3)
TWO = BrokerId(2)


def pod(pool: BrokerPool = POOL) -> dict[str, Any]:
    return broker_pod_manifest(
        pool, TWO, claim_uid="claim-uid", settings=PodSettings("tidemark-operator.sys.svc:8070")
    )


def test_a_pod_passes_the_restricted_standard() -> None:
    spec = pod()["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_what_a_pool_says_of_groups_reaches_its_brokers() -> None:
    item = {
        "apiVersion": "tidemark.dev/v1alpha1", "kind": "BrokerPool",
        "metadata": {"name": "default", "namespace": "shop"},
        "spec": {"groups": {"offsetsRetentionMinutes": 60}},
    }  # fmt: skip
    (container,) = pod(parsed(BrokerPool, item))["spec"]["containers"]
    reported = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert reported["TIDEMARK_OFFSETS_RETENTION_MINUTES"] == "60"
    assert "TIDEMARK_GROUP_INITIAL_REBALANCE_DELAY_MS" not in reported
    item["spec"] = {"groups": {"offsetsRetentionMinutes": 0}}
    assert len(validate(item)) == 1


def test_a_pod_mounts_the_claim_of_its_id() -> None:
    spec = pod()["spec"]
    assert spec["volumes"][0] == {
        "name": "data",
        "persistentVolumeClaim": {"claimName": "data-default-2"},
    }
    assert spec["containers"][0]["volumeMounts"][0]["mountPath"] == "/var/lib/tidemark"


def test_the_broker_is_told_who_it_is_and_where_the_controller_is() -> None:
    values = {
        each["name"]: each.get("value") or each["valueFrom"]["fieldRef"]["fieldPath"]
        for each in pod()["spec"]["containers"][0]["env"]
    }
    assert values == {
        "TIDEMARK_BROKER_ID": "2",
        "TIDEMARK_POOL": "shop/default",
        "TIDEMARK_DATA_DIR": "/var/lib/tidemark",
        "TIDEMARK_CONTROLLERS": "tidemark-operator.sys.svc:8070",
        "TIDEMARK_ADVERTISED_HTTP_URL": "http://default-2.shop.svc:8080",
        "TIDEMARK_CLAIM_UID": "claim-uid",
        "TIDEMARK_LOG_FORMAT": "json",
        "TIDEMARK_METRICS_PROFILE": "audit",
        "TIDEMARK_POD_UID": "metadata.uid",
        "TIDEMARK_ADVERTISED_HOST": "status.podIP",
    }


def test_pods_are_owned_and_claims_are_not() -> None:
    (owner,) = pod()["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("BrokerPool", "pool-uid", True)
    assert "ownerReferences" not in claim_manifest(POOL, TWO)["metadata"]  # S4


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


def test_a_users_labels_never_replace_those_that_select() -> None:
    pool = with_spec(POOL, pod_template={"labels": {BROKER_ID_LABEL: "7", "team": "shop"}})
    labels = pod(pool)["metadata"]["labels"]
    assert (labels[BROKER_ID_LABEL], labels["team"]) == ("2", "shop")


def test_the_watches_select_pods_and_claims() -> None:
    selected = [each.split("=") for each in BROKER_SELECTOR.split(",")]
    for item in (pod(), claim_manifest(POOL, TWO)):
        labels = item["metadata"]["labels"]
        assert all(labels[key] == value for key, value in selected)
        assert broker_id_of(item) == TWO


def test_services_select_pods_by_labels_that_these_have() -> None:
    labels = pod()["metadata"]["labels"]
    for service in (bootstrap_service_manifest(POOL), broker_service_manifest(POOL, TWO)):
        assert service["spec"]["selector"].items() <= labels.items()
    assert broker_service_manifest(POOL, TWO)["spec"]["publishNotReadyAddresses"] is True
    assert bootstrap_service_manifest(POOL)["spec"]["publishNotReadyAddresses"] is False


def test_one_broker_at_a_time_may_be_evicted() -> None:
    spec = disruption_budget_manifest(POOL)["spec"]
    assert spec["maxUnavailable"] == 1
    assert spec["selector"]["matchLabels"].items() <= pod()["metadata"]["labels"].items()


def test_the_default_pool_is_a_valid_broker_pool() -> None:
    chart = {"replicas": 3, "image": "tidemark/broker:1", "storage": {"size": "1Gi"}}
    manifest = default_pool_manifest("shop", chart, at_least_replicas=5)
    assert validate(manifest) == []
    spec = parsed(BrokerPool, manifest).spec
    assert (spec.replicas, spec.image, spec.storage.size) == (5, "tidemark/broker:1", "1Gi")


OUTSIDE = ListenerSpec("outside", "NodePort", 9094, annotations={"owner": "shop"})


def test_a_listener_is_a_port_of_the_pod_and_a_service_for_each_broker() -> None:
    (container,) = pod(with_spec(POOL, listeners=(OUTSIDE,)))["spec"]["containers"]
    assert {"name": "outside", "containerPort": 9094} in container["ports"]
    assert {"name": "TIDEMARK_LISTENERS", "value": "outside:9094"} in container["env"]
    service = listener_service_manifest(POOL, OUTSIDE, TWO)
    assert service["metadata"]["name"] == "default-outside-2"
    assert service["metadata"]["annotations"] == {"owner": "shop"}
    assert service["spec"]["selector"][BROKER_ID_LABEL] == "2"
    assert service["spec"]["type"] == "NodePort"
    assert service["spec"]["ports"] == [{"name": "kafka", "port": 9094, "targetPort": "outside"}]
    assert service["spec"]["publishNotReadyAddresses"] is True


def test_only_a_pool_that_wants_topics_made_tells_its_brokers() -> None:
    def reported(pool: BrokerPool) -> list[str]:
        (container,) = pod(pool)["spec"]["containers"]
        env = container["env"]
        name = "TIDEMARK_AUTO_CREATE_TOPICS_ENABLE"
        return [entry["value"] for entry in env if entry["name"] == name]

    assert (reported(POOL), reported(with_spec(POOL, creates_topics=True))) == ([], ["true"])


def test_default_partitions_are_told_to_brokers_unless_they_are_1() -> None:
    def reported(pool: BrokerPool) -> list[str]:
        (container,) = pod(pool)["spec"]["containers"]
        env = container["env"]
        return [entry["value"] for entry in env if entry["name"] == "TIDEMARK_NUM_PARTITIONS"]

    assert (reported(POOL), reported(with_spec(POOL, default_partitions=6))) == ([], ["6"])


def test_listeners_of_http_are_told_to_brokers_beside_those_of_kafka() -> None:
    web = ListenerSpec("web", "LoadBalancer", 8081, protocol="HTTP")
    (container,) = pod(with_spec(POOL, listeners=(OUTSIDE, web)))["spec"]["containers"]
    assert {"name": "web", "containerPort": 8081} in container["ports"]
    reported = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert reported["TIDEMARK_LISTENERS"] == "outside:9094"
    assert reported["TIDEMARK_HTTP_LISTENERS"] == "web:8081"
    service = listener_service_manifest(POOL, web, TWO)
    assert service["spec"]["ports"] == [{"name": "http", "port": 8081, "targetPort": "web"}]


def test_the_service_to_begin_with_leads_to_any_broker_that_is_ready() -> None:
    service = listener_service_manifest(POOL, OUTSIDE, None)
    assert service["metadata"]["name"] == "default-outside-bootstrap"
    assert BROKER_ID_LABEL not in service["spec"]["selector"]
    assert service["spec"]["publishNotReadyAddresses"] is False


def test_a_pool_without_listeners_has_the_pods_that_it_always_had() -> None:
    (container,) = pod()["spec"]["containers"]
    assert [port["name"] for port in container["ports"]] == ["kafka", "http"]
    assert all("LISTENERS" not in entry["name"] for entry in container["env"])
