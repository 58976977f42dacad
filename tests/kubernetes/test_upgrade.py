"""Pods of the former release are replaced by those of this tree, under load."""

import logging
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.kubernetes.kube_cluster import (
    ON_KUBERNETES,
    OPERATOR_NAMESPACE,
    ROOT,
    KubeCluster,
    manifest,
)
from tests.support.releases import unpack_previous_release

log = logging.getLogger(__name__)

pytestmark = [*ON_KUBERNETES, pytest.mark.timeout(600)]

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


def is_replaced(cluster: KubeCluster, broker_id: int, previous_epoch: int) -> bool:
    return cluster.broker_epoch(broker_id) > previous_epoch


def test_a_pool_of_the_former_release_is_upgraded_under_load(
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
        report = load.clean_verdict()

    assert images_of_brokers(cluster) == {f"tidemark/broker:{PRESENT}"}
    log.info(f"upgraded with a write gap of {report.write_gap_ms:.0f} ms")
