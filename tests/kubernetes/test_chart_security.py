"""What a real API server says of the chart: permissions, Pod Security, NetworkPolicies.

Nothing of it is deployed: accounts and Roles of a release in its own namespace, pods as dry runs.
"""

import json
import logging
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tidemark_operator.api.broker_pool import BrokerPool
from tidemark_operator.api.chaos_experiment import ChaosExperiment
from tidemark_operator.api.replication_audit import ReplicationAudit
from tidemark_operator.resources.audit_job import job_manifest
from tidemark_operator.resources.broker_pod import PodSettings, broker_pod_manifest
from tidemark_operator.resources.chaos_job import ChaosJobSettings, heal_job, run_job
from tidemark_protocol.ids import BrokerId

from tests.kubernetes.kube_cluster import LOAD_IMAGE, ON_KUBERNETES, KubeCluster
from tests.support.api_objects import parsed
from tests.support.audit_objects import audit_object

log = logging.getLogger(__name__)

pytestmark = [*ON_KUBERNETES, pytest.mark.timeout(300)]

GRANTS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
OPERATOR, CHAOS, RUNNER = "tidemark-operator", "tidemark-chaos", "tidemark-chaos-runner"
ELSEWHERE = "default"  # a namespace that the release does not watch
Question = tuple[str, str, str]  # verb, resource, namespace; "": all namespaces
# What would let the holder become someone else, or see what is no business of the operator.
ESCALATIONS = [
    ("create", "pods/exec"),
    ("create", "pods/attach"),
    ("create", "pods/portforward"),
    ("create", "serviceaccounts/token"),
    ("create", "roles.rbac.authorization.k8s.io"),
    ("create", "rolebindings.rbac.authorization.k8s.io"),
    ("update", "rolebindings.rbac.authorization.k8s.io"),
    ("create", "deployments.apps"),
    ("create", "daemonsets.apps"),
    ("update", "pods/ephemeralcontainers"),
    ("delete", "secrets"),
    ("list", "secrets"),
    ("watch", "secrets"),
]
CLUSTER_WIDE = [
    ("impersonate", "users"),
    ("impersonate", "serviceaccounts"),
    ("list", "secrets"),
    ("get", "secrets"),
    ("list", "pods"),
    ("create", "pods"),
    ("list", "namespaces"),
    ("list", "nodes"),
    ("get", "nodes/proxy"),
    ("update", "nodes"),
    ("create", "clusterroles.rbac.authorization.k8s.io"),
    ("bind", "clusterroles.rbac.authorization.k8s.io"),
    ("escalate", "clusterroles.rbac.authorization.k8s.io"),
    ("update", "customresourcedefinitions.apiextensions.k8s.io"),
    ("create", "mutatingwebhookconfigurations.admissionregistration.k8s.io"),
    ("create", "persistentvolumes"),
    ("list", "topics.tidemark.dev"),
]
IN_OTHER_NAMESPACES = [
    ("get", "secrets"),
    ("create", "pods"),
    ("delete", "pods"),
    ("get", "configmaps"),
    ("delete", "persistentvolumeclaims"),
    ("update", "leases.coordination.k8s.io"),
    ("list", "topics.tidemark.dev"),
    ("create", "events"),
]


@pytest.fixture
def cluster() -> Iterator[KubeCluster]:
    """A namespace with the accounts and Roles of a release, that admits restricted pods only."""
    cluster = KubeCluster.of_rig(f"test-{uuid.uuid4().hex[:8]}")
    cluster.make_namespace()
    grants = [each for each in rendered(cluster) if each["kind"] in GRANTS]
    try:
        cluster.apply({"apiVersion": "v1", "kind": "List", "items": grants})
        yield cluster
    finally:
        for each in grants:
            if each["kind"].startswith("Cluster"):
                cluster.kubectl("delete", "--wait=false", each["kind"], each["metadata"]["name"])
        cluster.delete_namespace()


def rendered(cluster: KubeCluster) -> list[dict[str, Any]]:
    ended = cluster.run(
        *("helm", "template", "tidemark", "charts/tidemark", "--namespace", cluster.namespace),
        *("--kube-version", "1.34.0", "--set", "clusterRoles.create=false"),
        *("--set", "chaos.enabled=true", "--set", f"chaos.namespaces={{{cluster.namespace}}}"),
    )
    assert ended.code == 0, ended.err
    items = [each for each in yaml.safe_load_all(ended.out) if each]
    # None of another release's: with these names they are of this namespace.
    own = [each for each in items if each["kind"].startswith("Cluster")]
    assert all(each["metadata"]["name"].endswith(f".{cluster.namespace}") for each in own)
    return items


def can(cluster: KubeCluster, account: str, question: Question) -> bool:
    """Ask the API server what this account may do.

    `kubectl auth can-i` loses the group of a resource without a CRD, such as consumergroups.
    """
    verb, resource, namespace = question
    name, _, subresource = resource.partition("/")
    name, _, group = name.partition(".")
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{cluster.namespace}:{account}",
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{cluster.namespace}",
                "system:authenticated",
            ],
            "resourceAttributes": {
                "verb": verb,
                "group": group,
                "resource": name,
                "subresource": subresource,
                "namespace": namespace,
            },
        },
    }
    ended = cluster.run("kubectl", "create", "-f", "-", "-o", "json", stdin=json.dumps(review))
    assert ended.code == 0, (question, ended)
    return bool(json.loads(ended.out)["status"]["allowed"])


def granted(cluster: KubeCluster, role: str) -> list[Question]:
    """Return each permission of a Role of the release as a question."""
    (rules,) = (
        each["rules"]
        for each in rendered(cluster)
        if each["kind"] in ("Role", "ClusterRole") and each["metadata"]["name"] == role
    )
    return [
        (verb, _resource(group, resource), cluster.namespace)
        for rule in rules
        if "resourceNames" not in rule
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def _resource(group: str, resource: str) -> str:
    name, slash, subresource = resource.partition("/")
    return (f"{name}.{group}" if group else name) + slash + subresource


@pytest.mark.parametrize(
    ("account", "role"),
    [
        (OPERATOR, "tidemark-operator"),
        (OPERATOR, "tidemark-operator-lease"),
        (CHAOS, "tidemark-chaos"),
        (RUNNER, "tidemark-chaos-runner"),
    ],
)
def test_the_api_server_grants_each_rule(cluster: KubeCluster, account: str, role: str) -> None:
    questions = granted(cluster, role)
    assert questions
    assert [each for each in questions if not can(cluster, account, each)] == []


def test_reviews_and_nodes_are_all_that_the_operator_may_do_cluster_wide(
    cluster: KubeCluster,
) -> None:
    for verb, resource in (
        ("create", "tokenreviews.authentication.k8s.io"),
        ("create", "subjectaccessreviews.authorization.k8s.io"),
        ("get", "nodes"),
    ):
        assert can(cluster, OPERATOR, (verb, resource, "")), resource
    questions = [(verb, resource, "") for verb, resource in CLUSTER_WIDE]
    assert [each for each in questions if can(cluster, OPERATOR, each)] == []


@pytest.mark.parametrize("account", [OPERATOR, CHAOS, RUNNER, "default"])
def test_no_account_reaches_other_namespaces_or_gains_rights(
    cluster: KubeCluster, account: str
) -> None:
    """The runner of experiments runs commands in pods: that is its purpose, and all of it."""
    allowed = {"pods/exec"} if account == RUNNER else set()
    questions = [(verb, resource, ELSEWHERE) for verb, resource in IN_OTHER_NAMESPACES]
    questions += [
        (verb, resource, cluster.namespace)
        for verb, resource in ESCALATIONS
        if resource not in allowed
    ]
    questions += [(verb, resource, ELSEWHERE) for verb, resource in ESCALATIONS]
    assert [each for each in questions if can(cluster, account, each)] == []


# Pod Security.


def our_pods(cluster: KubeCluster) -> dict[str, dict[str, Any]]:
    """Return the spec of each pod that chart and operator make, without Spark's."""
    namespace = cluster.namespace
    pool = parsed(
        BrokerPool,
        {
            "apiVersion": "tidemark.dev/v1alpha1", "kind": "BrokerPool",
            "metadata": {"name": "default", "namespace": namespace, "uid": "u"},
            "spec": {"imagePullSecrets": [{"name": "registry"}], "rackKey": "zone"},
        },
    )  # fmt: skip
    experiment = parsed(
        ChaosExperiment,
        {
            "apiVersion": "tidemark.dev/v1alpha1", "kind": "ChaosExperiment",
            "metadata": {"name": "one", "namespace": namespace, "uid": "u"},
            "spec": {"rounds": 1, "faults": [{"kind": "kill"}]},
        },
    )  # fmt: skip
    item = audit_object()
    item["metadata"] |= {"generation": 1, "uid": "u"}
    audit = parsed(ReplicationAudit, item)
    jobs = ChaosJobSettings("image:1", "Always", RUNNER, namespace, {})
    broker = broker_pod_manifest(pool, BrokerId(0), claim_uid="u", settings=PodSettings())
    found = {
        "broker": broker["spec"],
        "audit": job_manifest(audit)["spec"]["template"]["spec"],
        "chaos run": run_job(experiment, jobs)["spec"]["template"]["spec"],
        "chaos heal": heal_job(experiment, jobs)["spec"]["template"]["spec"],
    }
    for each in rendered(cluster):
        if each["kind"] == "Deployment":
            found[each["metadata"]["name"]] = each["spec"]["template"]["spec"]
    return found


def test_each_pod_of_ours_is_admitted_by_the_restricted_profile(cluster: KubeCluster) -> None:
    def pod(spec: dict[str, Any]) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}

    bare = {"containers": [{"name": "one", "image": "image:1"}]}
    assert 'violates PodSecurity "restricted' in cluster.rejection(pod(bare))
    pods = our_pods(cluster)
    assert set(pods) == {
        "broker", "audit", "chaos run", "chaos heal", "tidemark-operator", "tidemark-chaos"
    }  # fmt: skip
    for name, spec in pods.items():
        assert cluster.rejection(pod(spec)) == "", name
        for container in spec["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True, name


# NetworkPolicies.

LISTEN = """
import selectors, socket, sys
wait = selectors.DefaultSelector()
for port in map(int, sys.argv[1:]):
    wait.register(socket.create_server(("", port)), selectors.EVENT_READ)
while True:
    for key, _ in wait.select():
        key.fileobj.accept()[0].close()
"""
CONNECT = """
import json, socket, sys
found = {}
for target in sys.argv[1:]:
    host, port = target.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
        found[target] = True
    except OSError:
        found[target] = False
print(json.dumps(found))
"""
TIDEMARK = {"app.kubernetes.io/name": "tidemark", "app.kubernetes.io/instance": "tidemark"}


def start(cluster: KubeCluster, name: str, labels: dict[str, str], ports: dict[str, int]) -> None:
    container = {
        "name": "one",
        "image": LOAD_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", LISTEN, *map(str, ports.values())],
        "ports": [{"name": each, "containerPort": port} for each, port in ports.items()],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    metadata = {"name": name, "labels": labels}
    cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def address(cluster: KubeCluster, name: str) -> str:
    found: str = cluster.must_get("pod", name)["status"]["podIP"]
    return found


def reached(cluster: KubeCluster, source: str, *targets: str) -> dict[str, bool]:
    out = cluster.kubectl("exec", source, "--", "python3", "-c", CONNECT, *targets)
    found: dict[str, bool] = json.loads(out)
    return found


def test_a_foreign_pod_reaches_neither_9091_nor_the_controller_if_policies_are_enforced(
    cluster: KubeCluster,
) -> None:
    """Say whether this cluster enforces policies; where it does not, a flow shows nothing."""
    broker = {**TIDEMARK, "app.kubernetes.io/component": "broker"}
    operator = {**TIDEMARK, "app.kubernetes.io/component": "operator"}
    start(cluster, "broker-a", broker, {"kafka": 9092, "replication": 9091})
    start(cluster, "broker-b", broker, {"kafka": 9092, "replication": 9091})
    start(cluster, "operator", operator, {"controller": 8070, "controller-tls": 8443})
    start(cluster, "canary", {"canary": "yes"}, {"any": 7000})
    start(cluster, "foreign", {"app": "other"}, {"any": 7000})
    denied = {"podSelector": {"matchLabels": {"canary": "yes"}}, "policyTypes": ["Ingress"]}
    deny = {
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "canary"}, "spec": denied,
    }  # fmt: skip
    policies = [each for each in rendered(cluster) if each["kind"] == "NetworkPolicy"]
    cluster.apply({"apiVersion": "v1", "kind": "List", "items": [deny, *policies]})
    cluster.kubectl(
        *("wait", "--for=condition=Ready", "pod", "--all", "--timeout=90s"), timeout_s=100
    )
    a, operators = address(cluster, "broker-a"), address(cluster, "operator")
    canary = f"{address(cluster, 'canary')}:7000"
    # In both cases: what has to be reachable is.
    wanted = reached(cluster, "broker-b", f"{a}:9091", f"{a}:9092", f"{operators}:8070")
    assert all(wanted.values()), wanted
    assert all(reached(cluster, "foreign", f"{a}:9092").values())
    is_enforced = not reached(cluster, "foreign", canary)[canary]
    closed = reached(
        cluster, "foreign", f"{a}:9091", f"{operators}:8070", f"{operators}:8443"
    )  # fmt: skip
    log.warning(f"NetworkPolicies are {'' if is_enforced else 'NOT '}enforced here: {closed}")
    assert not is_enforced or not any(closed.values()), closed
