"""The chart's renders: namespaced by default, restricted pods, and the flows of NetworkPolicies."""

from typing import Any

import pytest

from tests.support import chart_renders

NAMESPACED_GRANTS = {"Role", "RoleBinding"}
Labels = dict[str, str]


def pods(name: str) -> list[dict[str, Any]]:
    return [
        item["spec"]["template"]["spec"]
        for item in chart_renders.load(name)
        if item["kind"] == "Deployment"
    ]


def cluster_wide(name: str) -> set[str]:
    return {
        item["metadata"]["name"]
        for item in chart_renders.load(name)
        if item["kind"] == "ClusterRoleBinding"
    }


@pytest.mark.parametrize("name", sorted(chart_renders.VALUES))
def test_a_render_is_of_this_chart(name: str) -> None:
    assert chart_renders.digest_of(name) == chart_renders.chart_digest(), "run hack/chart-renders"


def test_without_values_only_reviews_and_racks_are_granted_cluster_wide() -> None:
    assert cluster_wide("default") == {
        "tidemark-operator-reviews.tidemark-system",
        "tidemark-operator-racks.tidemark-system",
    }
    namespaces = {
        item["metadata"]["namespace"]
        for item in chart_renders.load("default")
        if item["kind"] in NAMESPACED_GRANTS
    }
    assert namespaces == {"tidemark-system"}


def test_nothing_cluster_wide_is_left_if_it_is_turned_off() -> None:
    kinds = {item["kind"] for item in chart_renders.load("no-cluster-roles")}
    assert not {"ClusterRole", "ClusterRoleBinding"} & kinds


def test_all_namespaces_are_watched_by_an_explicit_value() -> None:
    assert "tidemark-operator" in cluster_wide("all-namespaces")


@pytest.mark.parametrize("name", sorted(chart_renders.VALUES))
def test_each_pod_is_restricted(name: str) -> None:
    found = pods(name)
    assert found
    for pod in found:
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert ("runAsUser" in context) == (name != "openshift")
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        assert all("hostPath" not in volume for volume in pod["volumes"])
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


@pytest.mark.parametrize("name", ["pull-secrets", "everything"])
def test_each_pod_has_the_pull_secrets(name: str) -> None:
    for pod in pods(name):
        assert pod["imagePullSecrets"] == [{"name": "registry"}]


# NetworkPolicies: a model of what Kubernetes says of ingress, by which each flow is decided.

OPERATOR = {"app.kubernetes.io/name": "tidemark", "app.kubernetes.io/component": "operator",
            "app.kubernetes.io/instance": "tidemark"}  # fmt: skip
BROKER = {"app.kubernetes.io/name": "tidemark", "app.kubernetes.io/component": "broker"}
CHAOS = {"app.kubernetes.io/name": "tidemark", "app.kubernetes.io/component": "chaos"}
AUDIT = {"app.kubernetes.io/name": "tidemark", "app.kubernetes.io/component": "audit"}
FOREIGN: Labels = {"app": "other"}
# A pod of the operator names its ports; policies use the names.
PORT_NAMES = {"controller": 8070, "controller-tls": 8443, "health": 8080}
NAMESPACE_LABELS = {
    "others": {},
    "apps": {"clients": "allowed"},
    "prometheus": {"monitoring": "allowed"},
    "desks": {"people": "allowed"},
}


def selects(selector: dict[str, Any], labels: Labels) -> bool:
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for each in selector.get("matchExpressions", ()):
        assert each["operator"] == "In", each
        if labels.get(each["key"]) not in each["values"]:
            return False
    return True


def is_peer(peer: dict[str, Any], policy_namespace: str, namespace: str, labels: Labels) -> bool:
    if "namespaceSelector" in peer:
        own = {"kubernetes.io/metadata.name": namespace, **NAMESPACE_LABELS.get(namespace, {})}
        if not selects(peer["namespaceSelector"], own):
            return False
    elif namespace != policy_namespace:
        return False
    return selects(peer.get("podSelector", {}), labels)


def is_allowed(
    name: str, source: tuple[str, Labels], target: tuple[str, Labels], port: int
) -> bool:
    policies = [
        item
        for item in chart_renders.load(name)
        if item["kind"] == "NetworkPolicy"
        and item["metadata"]["namespace"] == target[0]
        and selects(item["spec"]["podSelector"], target[1])
    ]
    if not policies:
        return True
    for policy in policies:
        for rule in policy["spec"]["ingress"]:
            ports = {PORT_NAMES.get(each["port"], each["port"]) for each in rule["ports"]}
            if port in ports and (
                "from" not in rule
                or any(is_peer(peer, target[0], *source) for peer in rule["from"])
            ):
                return True
    return False


SYSTEM = "tidemark-system"
FLOWS = [
    # source, target, port, allowed
    (("shop", BROKER), (SYSTEM, OPERATOR), 8070, True),
    (("shop", BROKER), (SYSTEM, OPERATOR), 8443, True),
    ((SYSTEM, OPERATOR), (SYSTEM, OPERATOR), 8080, True),  # a standby reads from the leader
    ((SYSTEM, OPERATOR), ("shop", BROKER), 8080, True),
    (("shop", CHAOS), ("shop", BROKER), 8080, True),
    (("shop", CHAOS), (SYSTEM, OPERATOR), 8070, True),
    (("shop", BROKER), ("shop", BROKER), 9091, True),
    (("shop", BROKER), ("shop", BROKER), 9092, True),
    (("apps", FOREIGN), ("shop", BROKER), 9092, True),
    (("apps", FOREIGN), ("shop", BROKER), 9094, True),
    (("prometheus", FOREIGN), ("shop", BROKER), 8080, True),
    (("prometheus", FOREIGN), (SYSTEM, OPERATOR), 8080, True),
    (("desks", FOREIGN), (SYSTEM, OPERATOR), 8070, True),
    # Others reach none of it.
    (("apps", FOREIGN), ("shop", BROKER), 9091, False),
    (("web", BROKER), ("shop", BROKER), 9091, False),
    (("shop", FOREIGN), ("shop", BROKER), 9091, False),
    ((SYSTEM, OPERATOR), ("shop", BROKER), 9091, False),
    (("others", FOREIGN), ("shop", BROKER), 9092, False),
    (("prometheus", FOREIGN), ("shop", BROKER), 9092, False),
    (("others", FOREIGN), (SYSTEM, OPERATOR), 8070, False),
    (("others", FOREIGN), (SYSTEM, OPERATOR), 8443, False),
    (("others", FOREIGN), (SYSTEM, OPERATOR), 8080, False),
    (("others", FOREIGN), (SYSTEM, OPERATOR), 8081, False),
    (("web", CHAOS), (SYSTEM, OPERATOR), 8070, False),
    (("others", FOREIGN), ("shop", AUDIT), 8080, False),
    (("others", FOREIGN), ("shop", CHAOS), 8080, False),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target", "port", "expected"), FLOWS)
def test_a_flow(
    source: tuple[str, Labels], target: tuple[str, Labels], port: int, expected: bool
) -> None:
    assert is_allowed("everything", source, target, port) == expected


@pytest.mark.parametrize("name", ["default", "all-namespaces", "openshift"])
def test_without_values_a_foreign_pod_reaches_clients_ports_and_metrics_only(name: str) -> None:
    pool = "shop" if name == "all-namespaces" else SYSTEM
    foreign = ("others", FOREIGN)
    assert is_allowed(name, foreign, (pool, BROKER), 9092)
    assert is_allowed(name, foreign, (SYSTEM, OPERATOR), 8080)
    assert not is_allowed(name, foreign, (pool, BROKER), 9091)
    assert not is_allowed(name, foreign, (SYSTEM, OPERATOR), 8070)
    assert not is_allowed(name, foreign, (SYSTEM, OPERATOR), 8443)
