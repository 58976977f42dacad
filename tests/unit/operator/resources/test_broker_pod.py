"""The pod of a broker: restricted, with the claim of its id, told all that it has to know."""

from typing import Any

import pytest
from tidemark_operator.api.broker_pool import BrokerPool, ListenerSpec
from tidemark_operator.api.schemas import validate
from tidemark_operator.resources.broker_pod import (
    PodSettings,
    broker_pod_manifest,
    present_templates,
    template_of,
)
from tidemark_operator.resources.names import BROKER_ID_LABEL
from tidemark_protocol.ids import BrokerId

from tests.support.api_objects import broker_pool, parsed, with_spec

POOL = broker_pool(uid="pool-uid", replicas=3)
TWO = BrokerId(2)
OUTSIDE = ListenerSpec("outside", "NodePort", 9094)


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


@pytest.mark.parametrize(
    ("authority", "source"),
    [
        ({"configMapName": "clients"}, {"configMap": {"name": "clients"}}),
        ({"secretName": "clients"}, {"secret": {"secretName": "clients"}}),
    ],
)
def test_authorities_of_clients_are_mounted_without_any_other_key(
    authority: dict[str, str], source: dict[str, dict[str, Any]]
) -> None:
    security = {"tls": {"mode": "Required"}, "clientAuthority": authority}
    spec = pod(broker_pool(uid="pool-uid", replicas=3, security=security))["spec"]
    (volume,) = [each for each in spec["volumes"] if each["name"] == "client-authority"]
    (kind,) = source
    items = [{"key": "ca.crt", "path": "ca.crt"}]
    assert volume[kind] == {**source[kind], "items": items, "optional": True}
    (container,) = spec["containers"]
    values = {each["name"]: each.get("value") for each in container["env"]}
    assert values["TIDEMARK_CLIENT_CA_FILE"] == "/etc/tidemark/client-authority/ca.crt"


@pytest.mark.parametrize(
    ("security", "problems"),
    [
        ({"tls": {"mode": "Required"}, "clientAuthority": {"configMapName": "a"}}, 0),
        ({"tls": {"mode": "Required"}, "clientAuthority": {}}, 1),
        (
            {
                "tls": {"mode": "Required"},
                "clientAuthority": {"configMapName": "a", "secretName": "b"},
            },
            1,
        ),
        ({"clientAuthority": {"configMapName": "a"}}, 0),  # new pools have TLS
        ({"tls": {"mode": "Disabled"}, "clientAuthority": {"configMapName": "a"}}, 1),
        ({"tls": {"mode": "Required", "authority": {"secretName": "a"}}}, 0),
        ({"tls": {"mode": "Required", "authority": {}}}, 1),
    ],
)
def test_which_authorities_a_pool_may_name(security: dict[str, Any], problems: int) -> None:
    item = {
        "apiVersion": "tidemark.dev/v1alpha1", "kind": "BrokerPool",
        "metadata": {"name": "default", "namespace": "shop"},
        "spec": {"security": security},
    }  # fmt: skip
    assert len(validate(item)) == problems


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
        "TIDEMARK_CONTROLLER_TOKEN_FILE": "/var/run/secrets/tidemark/token",
        "TIDEMARK_ADVERTISED_HTTP_URL": "http://default-2.shop.svc:8080",
        "TIDEMARK_CLAIM_UID": "claim-uid",
        "TIDEMARK_LOG_FORMAT": "json",
        "TIDEMARK_METRICS_PROFILE": "audit",
        "TIDEMARK_POD_UID": "metadata.uid",
        "TIDEMARK_ADVERTISED_HOST": "status.podIP",
    }


def test_a_pod_goes_with_its_pool() -> None:
    (owner,) = pod()["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("BrokerPool", "pool-uid", True)


def test_a_users_labels_never_replace_those_that_select() -> None:
    pool = with_spec(POOL, pod_template={"labels": {BROKER_ID_LABEL: "7", "team": "shop"}})
    labels = pod(pool)["metadata"]["labels"]
    assert (labels[BROKER_ID_LABEL], labels["team"]) == ("2", "shop")


def test_a_listener_is_a_port_of_the_pod_that_the_broker_is_told() -> None:
    (container,) = pod(with_spec(POOL, listeners=(OUTSIDE,)))["spec"]["containers"]
    assert {"name": "outside", "containerPort": 9094} in container["ports"]
    assert {"name": "TIDEMARK_LISTENERS", "value": "outside:9094"} in container["env"]


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


def test_a_pool_without_listeners_has_the_pods_that_it_always_had() -> None:
    (container,) = pod()["spec"]["containers"]
    assert [port["name"] for port in container["ports"]] == ["kafka", "http"]
    assert all("LISTENERS" not in entry["name"] for entry in container["env"])


def test_a_pods_template_changes_with_all_that_it_was_made_of() -> None:
    def template(pool: BrokerPool, controllers: str = "here:1") -> str:
        settings = PodSettings(controllers)
        manifest = broker_pod_manifest(pool, TWO, claim_uid="claim", settings=settings)
        return template_of(manifest)

    changed = (
        with_spec(POOL, image="image:2"),
        with_spec(POOL, resources={"limits": {"memory": "1Gi"}}),
        with_spec(POOL, pod_template={"annotations": {"a": "b"}}),
    )
    found = {template(pool) for pool in changed} | {template(POOL)}
    found.add(template(POOL, "elsewhere:1"))
    assert len(found) == 5
    assert template(with_spec(POOL, replicas=5, deletion_policy="Delete")) == template(POOL)


def test_a_pod_of_the_former_release_stays_while_brokers_without_a_token_are_accepted() -> None:
    def templates(*, keeps: bool, pool: BrokerPool = POOL) -> frozenset[str]:
        settings = PodSettings("tidemark-operator.sys.svc:8070", keeps_pods_without_token=keeps)
        return present_templates(pool, TWO, claim_uid="claim-uid", settings=settings)

    former = "6b8e63068544c052"  # as the release before the tokens made it
    assert templates(keeps=True) == {former, template_of(pod())}
    assert templates(keeps=False) == {template_of(pod())}
    changed = with_spec(POOL, image="image:2")
    assert not templates(keeps=True, pool=changed) & {former, template_of(pod())}


def test_the_token_of_a_pod_is_for_the_controller_and_does_not_last() -> None:
    spec = pod()["spec"]
    (volume,) = (each for each in spec["volumes"] if each["name"] == "controller-token")
    assert volume["projected"]["sources"] == [
        {
            "serviceAccountToken": {
                "path": "token",
                "audience": "tidemark-controller",
                "expirationSeconds": 3600,
            }
        }
    ]
    mounts = spec["containers"][0]["volumeMounts"]
    assert {
        "name": "controller-token",
        "mountPath": "/var/run/secrets/tidemark",
        "readOnly": True,
    } in mounts


def test_authentication_of_clients_is_told_only_where_there_is_some() -> None:
    def told(**spec: Any) -> tuple[dict[str, str], set[str]]:
        (container,) = pod(broker_pool(replicas=3, **spec))["spec"]["containers"]
        values = {each["name"]: each.get("value", "") for each in container["env"]}
        names = {name for name in values if "AUTHENTICATION" in name}
        return {name: values[name] for name in names}, {port["name"] for port in container["ports"]}

    assert told() == ({}, {"kafka", "http"})
    outside = {"name": "out", "type": "NodePort", "authentication": "none"}
    assert told(security={"authentication": "kubernetes"}, listeners=[outside]) == (
        {
            "TIDEMARK_AUTHENTICATION": "kubernetes",
            "TIDEMARK_LISTENER_AUTHENTICATION": "out:none",
        },
        {"kafka", "http", "replication", "out"},
    )


def test_plain_pool_has_the_pod_that_it_had() -> None:
    """A digest of a pod from before there was TLS: brokers are not replaced by an upgrade."""
    plain = broker_pool(replicas=1, image="image", imagePullPolicy="Never", storage={"size": "1Gi"})
    settings = PodSettings(keeps_pods_without_token=True)
    found = present_templates(plain, BrokerId(0), claim_uid="u", settings=settings)
    assert "1a8eb6e9b4a7c4c8" in found


def test_pod_of_a_pool_with_tls_trusts_the_config_map() -> None:
    secured = broker_pool(
        replicas=1,
        image="image",
        imagePullPolicy="Never",
        storage={"size": "1Gi"},
        security={"tls": {"mode": "Required"}},
        listeners=[
            {"name": "a", "type": "NodePort", "port": 9094, "tls": False},
            {"name": "b", "type": "NodePort", "port": 9095},
        ],
    )
    pod = broker_pod_manifest(secured, BrokerId(0), claim_uid="u", settings=PodSettings())
    container = pod["spec"]["containers"][0]
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env["TIDEMARK_TLS"] == "true"
    assert env["TIDEMARK_CA_FILE"] == "/etc/tidemark/trust/all.crt"
    assert env["TIDEMARK_PLAIN_LISTENERS"] == "a"
    assert env["TIDEMARK_CONTROLLERS"] == "tidemark-operator:8443"
    assert env["TIDEMARK_ADVERTISED_HTTP_URL"] == "https://default-0.shop.svc:8080"
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    assert volumes["trust"]["configMap"]["name"] == "default-trust"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
    assert {"name": "replication", "containerPort": 9091} in container["ports"]


def test_a_pool_names_its_pull_secrets_and_without_them_pods_stay() -> None:
    assert "imagePullSecrets" not in pod()["spec"]
    with_secret = with_spec(POOL, image_pull_secrets=({"name": "registry"},))
    assert pod(with_secret)["spec"]["imagePullSecrets"] == [{"name": "registry"}]
