"""Pods cut from others for as long as a test needs, as `tidemark chaos` does it on kind."""

import contextlib
from collections.abc import Iterator, Sequence

from tidemark_chaos.faults.node_scripts import cut_script, heal_script, rules_between

from tests.kubernetes.kube_cluster import CommandFailed, KubeCluster

AT_MOST_SECONDS = 600.0


@contextlib.contextmanager
def cut_off(
    cluster: KubeCluster, broker_id: int, *, peers: Sequence[int] | None = None
) -> Iterator[None]:
    """From these brokers; None: from everybody. Both ways, new and open connections."""
    pod = cluster.must_get("pod", f"default-{broker_id}")
    node, address = pod["spec"]["nodeName"], pod["status"]["podIP"]
    others = None
    if peers is not None:
        others = [cluster.must_get("pod", f"default-{peer}")["status"]["podIP"] for peer in peers]
    rules = rules_between(address, others)
    try:
        _run(cluster, node, cut_script(rules, AT_MOST_SECONDS))
        yield
    finally:
        _run(cluster, node, heal_script(rules))


def _run(cluster: KubeCluster, node: str, script: str) -> None:
    ended = cluster.run("docker", "exec", node, "sh", "-c", script)
    if ended.code != 0:
        raise CommandFailed(f"{script} on {node}: {ended.err.strip()}")
