"""A pool of the former release is upgraded and then closed, step by step, under load."""

import json
import logging
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.kube_cluster import (
    ON_KUBERNETES,
    OPEN,
    OPERATOR_NAMESPACE,
    ROOT,
    CommandFailed,
    KubeCluster,
    manifest,
    topic,
)
from tests.support.releases import unpack_previous_release

log = logging.getLogger(__name__)

pytestmark = [*ON_KUBERNETES, pytest.mark.timeout(1200)]

PARTS = ("operator", "broker")
FORMER = "former"  # the tag of the former release's images
PRESENT = "dev"
BROKER_IDS = (0, 1, 2)


@pytest.fixture
def cluster() -> Iterator[KubeCluster]:
    cluster = KubeCluster.of_rig(f"test-{uuid.uuid4().hex[:8]}")
    cluster.install_chart()  # the nodes hold the images of this tree from then on
    cluster.make_namespace()
    yield cluster
    cluster.delete_namespace()
    cluster.install_chart()  # also where this test failed half way


def must_run(cluster: KubeCluster, *command: str, timeout_s: float = 120) -> str:
    ended = cluster.run(*command, timeout_s=timeout_s)
    assert ended.code == 0, f"{command}: {ended.err}"
    return ended.out


def build_previous_images(cluster: KubeCluster, tree: Path) -> None:
    """Load the images of `tree` into the nodes; `:dev` stays the name of this tree's images."""
    present = {
        part: must_run(
            cluster, "docker", "image", "inspect", "-f", "{{.Id}}", f"tidemark/{part}:{PRESENT}"
        ).strip()
        for part in PARTS
    }
    must_run(cluster, str(tree / "hack/images/build"), timeout_s=300)
    for part in PARTS:
        name = f"tidemark/{part}"
        must_run(cluster, "docker", "tag", f"{name}:{PRESENT}", f"{name}:{FORMER}")
        must_run(cluster, "docker", "tag", present[part], f"{name}:{PRESENT}")
    names = (f"tidemark/{part}:{FORMER}" for part in PARTS)
    must_run(cluster, "hack/kind/cluster", "load", *names, timeout_s=180)


def deploy(cluster: KubeCluster, tree: Path, tag: str, *values: str) -> None:
    must_run(cluster, "kubectl", "apply", "--filename", str(tree / "crds"))
    must_run(
        cluster,
        *("helm", "upgrade", "--install", "tidemark", str(tree / "charts/tidemark")),
        *("--namespace", OPERATOR_NAMESPACE, "--create-namespace", "--timeout", "120s", "--wait"),
        *("--set", f"image.tag={tag}", "--set", f"defaultPool.image=tidemark/broker:{tag}"),
        *("--set", "defaultPool.storage.size=1Gi"),
        *(word for each in values for word in ("--set", each)),
        timeout_s=150,
    )


def images_of_brokers(cluster: KubeCluster) -> set[str]:
    pods = (cluster.must_get("pod", f"default-{broker_id}") for broker_id in BROKER_IDS)
    return {container["image"] for pod in pods for container in pod["spec"]["containers"]}


def securities(cluster: KubeCluster) -> tuple[Any, Any]:
    """What the spec says, and what brokers have."""
    pool = cluster.must_get("brokerpool", "default")
    return pool["spec"].get("security"), pool["status"].get("security")


def until_rolled(cluster: KubeCluster, security: dict[str, Any], what: str) -> None:
    def is_rolled() -> bool:
        status = cluster.must_get("brokerpool", "default")["status"]
        rolled = status.get("updatedBrokers") == 3 == status.get("activeBrokers")
        return rolled and status.get("security") == security

    cluster.until(is_rolled, what, timeout_s=300)


def set_security(cluster: KubeCluster, mode: str, authentication: str) -> dict[str, Any]:
    security = {"tls": {"mode": mode}, "authentication": authentication}
    cluster.kubectl(
        *("patch", "brokerpool", "default", "--type=merge", "-p"),
        json.dumps({"spec": {"security": security}}),
    )
    return security


def pool_with(cluster: KubeCluster, security: dict[str, Any]) -> dict[str, Any]:
    pool = cluster.must_get("brokerpool", "default")
    metadata = {"name": "default", "namespace": cluster.namespace}
    spec = {**pool["spec"], "security": security}
    return {**pool, "metadata": metadata, "spec": spec, "status": {}}


def is_replaced(cluster: KubeCluster, broker_id: int, previous_epoch: int) -> bool:
    return cluster.broker_epoch(broker_id) > previous_epoch


def test_pool_of_former_release_is_upgraded_and_closed_under_load(
    cluster: KubeCluster, tmp_path: Path
) -> None:
    previous = unpack_previous_release(tmp_path / "former")
    build_previous_images(cluster, previous)
    deploy(cluster, previous, FORMER)
    cluster.apply(manifest("examples/orders.yaml"))
    cluster.wait_ready("orders", timeout_s=90)
    cluster.until_in_sync("orders")
    assert images_of_brokers(cluster) == {f"tidemark/broker:{FORMER}"}
    epochs = {broker_id: cluster.broker_epoch(broker_id) for broker_id in BROKER_IDS}

    with cluster.load("orders", "upgrade") as load:
        with pytest.raises(AssertionError, match="watchNamespaces: the operator that is installed"):
            deploy(cluster, ROOT, PRESENT)
        deploy(cluster, ROOT, PRESENT, "watchNamespaces={*}")
        load.goes_on()
        cluster.kubectl(
            *("patch", "brokerpool", "default", "--type=merge", "-p"),
            f'{{"spec": {{"image": "tidemark/broker:{PRESENT}"}}}}',
        )
        for broker_id in BROKER_IDS:
            cluster.until(
                partial(is_replaced, cluster, broker_id, epochs[broker_id]),
                f"broker {broker_id} is replaced",
                timeout_s=120,
            )
        cluster.until_in_sync("orders", timeout_s=60)
        load.goes_on()
        assert images_of_brokers(cluster) == {f"tidemark/broker:{PRESENT}"}
        # The upgrade has not changed what the pool's ports accept, and says so.
        assert securities(cluster) == (OPEN, OPEN)
        assert cluster.condition("brokerpool", "default", "Closed")["reason"] == "Open"
        jump = {"tls": {"mode": "Required"}, "authentication": "kubernetes"}
        assert "set Optional first" in cluster.rejection(pool_with(cluster, jump))

        migrating = set_security(cluster, "Optional", "optional")
        until_rolled(cluster, migrating, "all brokers accept both")
        cluster.until_in_sync("orders", timeout_s=60)
        load.goes_on()
        report = load.clean_verdict()
    log.info(f"upgraded and opened for both with a write gap of {report.write_gap_ms:.0f} ms")

    cluster.make_client("shop")
    cluster.apply(topic("moved", partitions=3, replicationFactor=3))
    cluster.wait_ready("moved")
    with cluster.load("moved", "closing", client="shop") as load:
        closed = set_security(cluster, "Required", "kubernetes")
        until_rolled(cluster, closed, "all brokers are closed")
        cluster.until_in_sync("moved", timeout_s=60)
        load.goes_on()
        report = load.clean_verdict()
    log.info(f"closed with a write gap of {report.write_gap_ms:.0f} ms")
    assert cluster.condition("brokerpool", "default", "Closed")["status"] == "True"
    with pytest.raises(CommandFailed):
        cluster.kubectl(
            *("exec", "default-0", "--", "tidemark", "topics", "list"),
            *("--server", "http://default-bootstrap:8080"),
        )
