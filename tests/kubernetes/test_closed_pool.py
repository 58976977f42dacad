"""Test that a pool without spec.security is closed, and that examples/client.yaml works with it."""

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tidemark_operator.api.schemas import validate

from tests.kubernetes.kube_cluster import (
    ON_KUBERNETES,
    ROOT,
    CommandFailed,
    KubeCluster,
    manifest,
)

pytestmark = [*ON_KUBERNETES, pytest.mark.timeout(300)]

OF_A_MANIFEST = ("apiVersion", "kind", "spec")
CLOSED: dict[str, Any] = {"tls": {"mode": "Required"}, "authentication": "kubernetes"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeCluster]:
    cluster = KubeCluster.of_rig(f"test-{uuid.uuid4().hex[:8]}")
    cluster.install_chart(is_open=False)
    cluster.make_namespace()
    cluster.apply(manifest("examples/orders.yaml"))
    cluster.wait_ready("orders", timeout_s=180)
    example = (ROOT / "examples/client.yaml").read_text()
    example = example.replace("namespace: default", f"namespace: {cluster.namespace}")
    example = example.replace("tidemark/default/", f"tidemark/{cluster.namespace}/")
    cluster.kubectl("apply", "-f", "-", stdin=example)
    cluster.kubectl(
        *("rollout", "status", "deployment/orders-client", "--timeout=90s"), timeout_s=100
    )
    yield cluster
    cluster.delete_namespace()
    cluster.install_chart()  # other tests' pools are open


def uids_of_brokers(cluster: KubeCluster) -> list[str]:
    return [cluster.must_get("pod", f"default-{n}")["metadata"]["uid"] for n in range(3)]


def in_client(cluster: KubeCluster, *command: str) -> str:
    return cluster.kubectl("exec", "deploy/orders-client", "--", *command)


def test_new_pool_is_closed_and_says_so(cluster: KubeCluster) -> None:
    pool = cluster.must_get("brokerpool", "default")
    assert (pool["spec"]["security"], pool["status"]["security"]) == (CLOSED, CLOSED)
    assert cluster.condition("brokerpool", "default", "Closed")["status"] == "True"
    header, row = cluster.kubectl("get", "brokerpool", "default").splitlines()
    assert row.split()[header.split().index("SECURITY")] == "Closed"


def test_example_client_writes_and_reads(cluster: KubeCluster) -> None:
    in_client(cluster, "tidemark", "produce", "orders", "hello")
    read = in_client(cluster, "tidemark", "consume", "orders", "--from", "earliest", "--max", "1")
    assert "hello" in read


@pytest.mark.parametrize(
    "command",
    [
        "TIDEMARK_TOKEN_FILE= tidemark topics list",
        "TIDEMARK_SERVER=http://default-bootstrap:8080 tidemark topics list",
    ],
)
def test_client_without_token_or_tls_is_refused(cluster: KubeCluster, command: str) -> None:
    with pytest.raises(CommandFailed):
        in_client(cluster, "sh", "-c", command)


def test_replace_that_drops_the_fields_does_not_open_the_pool(cluster: KubeCluster) -> None:
    pool = cluster.must_get("brokerpool", "default")
    pods = uids_of_brokers(cluster)
    del pool["spec"]["security"]
    cluster.kubectl("replace", "-f", "-", stdin=json.dumps(pool))
    cluster.until(
        lambda: cluster.must_get("brokerpool", "default")["spec"].get("security") == CLOSED,
        "the fields are set again",
    )
    in_client(cluster, "tidemark", "produce", "orders", "again")
    assert uids_of_brokers(cluster) == pods


@pytest.mark.parametrize(
    "change",
    [
        {"security": {"tls": {"mode": "Disabled"}}},
        {"security": {"authentication": "none"}},
        {"listeners": [{"name": "a", "type": "NodePort", "port": 9091}]},
        {
            "listeners": [
                {"name": "a", "type": "NodePort", "protocol": "HTTP", "authentication": "optional"}
            ]
        },
    ],
    ids=str,
)
def test_api_server_rejects_what_the_mirror_rejects(
    cluster: KubeCluster, change: dict[str, Any]
) -> None:
    old = {key: cluster.must_get("brokerpool", "default")[key] for key in OF_A_MANIFEST}
    old["metadata"] = {"name": "default"}
    security = {**CLOSED, **change.get("security", {})}
    new = {**old, "spec": {**old["spec"], **change, "security": security}}
    (sentence,) = validate(new, old)
    ended = cluster.run(
        *("kubectl", "-n", cluster.namespace, "patch", "brokerpool", "default"),
        *("--type=merge", "--dry-run=server", "-p", json.dumps({"spec": change})),
    )
    assert ended.code != 0 and sentence in ended.err
