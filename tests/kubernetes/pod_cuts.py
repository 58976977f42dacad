"""Pods cut from others where their node forwards their packets: silent, as a network that broke.

What the node itself sends is not forwarded, so the kubelet's probes go on: a cut pod is not
restarted, and is not seen to be gone by anybody but its peers.
"""

import contextlib
from collections.abc import Iterator, Sequence

from tests.kubernetes.kube_cluster import CommandFailed, KubeCluster

Rule = tuple[str, ...]


@contextlib.contextmanager
def cut_off(
    cluster: KubeCluster, broker_id: int, *, peers: Sequence[int] | None = None
) -> Iterator[None]:
    """From these brokers; None: from everybody. Both ways, new and open connections."""
    pod = cluster.must_get("pod", f"default-{broker_id}")
    node, address = pod["spec"]["nodeName"], pod["status"]["podIP"]
    rules: list[Rule] = [("-s", address), ("-d", address)]
    if peers is not None:
        others = [cluster.must_get("pod", f"default-{peer}")["status"]["podIP"] for peer in peers]
        rules = [
            rule
            for other in others
            for rule in (("-s", address, "-d", other), ("-s", other, "-d", address))
        ]
    with contextlib.ExitStack() as undone:
        for rule in rules:
            _iptables(cluster, node, "--insert", rule)
            undone.callback(_iptables, cluster, node, "--delete", rule)
        yield


def _iptables(cluster: KubeCluster, node: str, what: str, rule: Rule) -> None:
    ended = cluster.run(
        "docker", "exec", node, "iptables", "--wait", what, "FORWARD", *rule, "--jump", "DROP"
    )
    if ended.code != 0:
        raise CommandFailed(f"iptables {what} {rule} on {node}: {ended.err.strip()}")
