"""What the chart's ClusterRoles and a user's Roles allow, by the API server's own answers.

`kubectl auth can-i` and the operator's reviews ask the same authorizer, so both are asked here.
NetworkPolicies are applied, not tried: the rig's network plugin (kindnet) need not enforce them.
"""

import json
import uuid
from collections.abc import Iterator

import pytest
from tidemark_operator.security.subject_access_review import review_object
from tidemark_protocol.access_messages import Access, Principal, ResourceKind, Verb

from tests.kubernetes.kube_cluster import ON_KUBERNETES, OPERATOR_NAMESPACE, KubeCluster

pytestmark = [
    *ON_KUBERNETES,
    pytest.mark.timeout(300),
]

OPERATOR = f"system:serviceaccount:{OPERATOR_NAMESPACE}:tidemark-operator"
ORDERS = "topics.tidemark.dev/orders"
GROUP = "consumergroups.tidemark.dev/g"


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeCluster]:
    cluster = KubeCluster.of_rig(f"test-{uuid.uuid4().hex[:8]}")
    cluster.install_chart()
    cluster.make_namespace()
    yield cluster
    cluster.delete_namespace()


def user(cluster: KubeCluster, name: str) -> str:
    return f"system:serviceaccount:{cluster.namespace}:{name}"


def bind(cluster: KubeCluster, name: str, role: str) -> None:
    cluster.kubectl(
        *("create", "rolebinding", name, f"--clusterrole={role}"),
        f"--serviceaccount={cluster.namespace}:{name}",
    )


def can(cluster: KubeCluster, name: str, verb: str, resource: str) -> bool:
    if resource == GROUP:  # kubectl knows no kind of groups, so it asks about another resource
        return reviewed(cluster, name, Access(Verb(verb), ResourceKind.GROUP, "g"))
    command = ("auth", "can-i", verb, resource, f"--as={user(cluster, name)}")
    ended = cluster.run("kubectl", "-n", cluster.namespace, *command)
    assert ended.out.strip() in ("yes", "no"), ended
    return ended.out.strip() == "yes"


def reviewed(cluster: KubeCluster, name: str, access: Access) -> bool:
    """What the operator is told, with the operator's own permissions."""
    item = review_object(Principal(user(cluster, name)), access, cluster.namespace)
    created = cluster.kubectl(
        *("create", "-f", "-", "-o", "json", "--validate=false", f"--as={OPERATOR}"),
        stdin=json.dumps(item),
    )
    return bool(json.loads(created)["status"]["allowed"])


@pytest.mark.parametrize(
    ("role", "allowed", "denied"),
    [
        (
            "tidemark-producer",
            [("produce", ORDERS), ("describe", ORDERS)],
            [("consume", ORDERS), ("create", ORDERS), ("describe", GROUP)],
        ),
        (
            "tidemark-consumer",
            [("consume", ORDERS), ("describe", ORDERS), ("consume", GROUP)],
            [("produce", ORDERS), ("delete", GROUP)],
        ),
        (
            "tidemark-viewer",
            [("describe", ORDERS), ("describe", GROUP), ("get", ORDERS)],
            [("consume", ORDERS), ("produce", ORDERS)],
        ),
        (
            "tidemark-admin",
            [
                ("produce", ORDERS),
                ("consume", GROUP),
                ("delete", ORDERS),
                ("alter", "brokerpools.tidemark.dev/default"),
            ],
            [("delete", "brokers.tidemark.dev/default-0")],
        ),
        ("view", [("describe", ORDERS)], [("consume", ORDERS), ("produce", ORDERS)]),
        ("edit", [("consume", ORDERS), ("produce", ORDERS)], [("alter", ORDERS)]),
        ("admin", [("alter", ORDERS), ("delete", GROUP)], []),
    ],
)
def test_a_role_allows_what_it_says(
    cluster: KubeCluster,
    role: str,
    allowed: list[tuple[str, str]],
    denied: list[tuple[str, str]],
) -> None:
    name = f"as-{role}"
    bind(cluster, name, role)
    # Aggregated roles follow their parts after a moment.
    cluster.until(lambda: can(cluster, name, *allowed[0]), f"{role} is effective")
    for verb, resource in allowed:
        assert can(cluster, name, verb, resource), (verb, resource)
    for verb, resource in denied:
        assert not can(cluster, name, verb, resource), (verb, resource)


def test_the_operator_is_told_the_same_about_single_names(cluster: KubeCluster) -> None:
    rule = {
        "apiGroups": ["tidemark.dev"],
        "resources": ["topics"],
        "resourceNames": ["orders"],
        "verbs": ["produce"],
    }
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "one-topic"},
        "rules": [rule],
    }
    cluster.apply(role)
    cluster.kubectl(
        *("create", "rolebinding", "one-topic", "--role=one-topic"),
        f"--serviceaccount={cluster.namespace}:one-topic",
    )
    orders = Access(Verb.PRODUCE, ResourceKind.TOPIC, "orders")
    cluster.until(lambda: reviewed(cluster, "one-topic", orders), "the Role is effective")
    assert can(cluster, "one-topic", "produce", ORDERS)
    for access in (
        Access(Verb.PRODUCE, ResourceKind.TOPIC, "other"),
        Access(Verb.PRODUCE, ResourceKind.TOPIC),
        Access(Verb.CONSUME, ResourceKind.TOPIC, "orders"),
        Access(Verb.CONSUME, ResourceKind.GROUP, "orders"),
    ):
        assert not reviewed(cluster, "one-topic", access), access


def test_the_chart_applies_its_network_policies(cluster: KubeCluster) -> None:
    ended = cluster.run(
        *("kubectl", "-n", OPERATOR_NAMESPACE, "get", "networkpolicy", "tidemark-operator")
    )
    assert ended.code == 0, ended
