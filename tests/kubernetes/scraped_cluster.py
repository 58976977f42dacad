"""A pool in a namespace of its own, and what its Prometheus has seen of it."""

import contextlib
import json
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator

from tests.kubernetes import prometheus_pod
from tests.kubernetes.kube_cluster import KubeCluster

INTERVAL_MS = 1000
TARGETS = 5  # 3 brokers and 2 operators


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextlib.contextmanager
def scraped_cluster(name: str) -> Iterator[KubeCluster]:
    """`prometheus_pod.deploy` is the caller's to do, once its topics are there."""
    cluster = KubeCluster.of_rig(f"{name}-{uuid.uuid4().hex[:8]}")
    cluster.install_chart()
    cluster.make_namespace()
    yield cluster
    prometheus_pod.remove_rights(cluster)
    cluster.delete_namespace()


def queried(url: str, query: str) -> float:
    """The one value that the query has now; 0 if there is none."""
    requested = urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(f"{url}/api/v1/query?{requested}", timeout=10) as response:
        found = json.loads(response.read())["data"]["result"]
    return float(found[0]["value"][1]) if found else 0.0


def up(url: str) -> int:
    return int(queried(url, "sum(up)"))


def until_scraped(
    cluster: KubeCluster, url: str, *, after_ms: int | None = None, targets: int = TARGETS
) -> None:
    """So many answered scrapes that began after this moment (None: now)."""
    since_ms = now_ms() if after_ms is None else after_ms
    query = f"count((timestamp(up) > {since_ms / 1000:.3f}) and (up == 1))"
    cluster.until(
        lambda: queried(url, query) >= targets,
        f"{targets} targets scraped after {since_ms}",
        timeout_s=max(0, since_ms - now_ms()) / 1000 + 60,
    )
