"""`make bench-topics-on-kind`: many Topics on the kind cluster, from `kubectl apply` to Ready.

Needs `make cluster`; deploys this checkout onto it, works in a namespace of its own and removes it.
Writes build/bench-topics-on-kind.json.

    many      1,000 Topics of 3 partitions at once, a quiet minute, one more, all deleted
    operator  10,000 partitions, and the leading operator killed three times
"""

import argparse
import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kubernetes import client, config, watch

from bench.systems import BenchFailed

ROOT = Path(__file__).parent.parent
GROUP, VERSION = "tidemark.dev", "v1alpha1"
OPERATORS = "tidemark-system"
LIMIT_SECONDS = 900.0
LOOK_SECONDS = 0.5
QUIET_SECONDS = 60.0
SETTLE_SECONDS = 20.0
APPLIERS = 8
KILLS = 3
RATE_OF = 100  # Topics at the beginning and at the end

Note = Callable[[str, float, str], None]


class Cluster:
    def __init__(self, namespace: str) -> None:
        config.load_kube_config(str(ROOT / "build" / "kubeconfig"))
        self.namespace = namespace
        self.objects = client.CustomObjectsApi()
        self.core = client.CoreV1Api()
        self.leases = client.CoordinationV1Api()

    def apply_topics(self, names: list[str], partitions: int) -> None:
        def apply(name: str) -> None:
            topic = {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": "Topic",
                "metadata": {"name": name},
                "spec": {"partitions": partitions, "replicationFactor": 3},
            }
            self.objects.create_namespaced_custom_object(
                GROUP, VERSION, self.namespace, "topics", topic
            )

        with ThreadPoolExecutor(APPLIERS) as appliers:
            list(appliers.map(apply, names))

    def count(self, plural: str) -> int:
        listed = self.objects.list_namespaced_custom_object(
            GROUP, VERSION, self.namespace, plural, limit=1
        )
        return len(listed["items"]) + int(listed["metadata"].get("remainingItemCount") or 0)

    def delete_topics(self) -> None:
        self.objects.delete_collection_namespaced_custom_object(
            GROUP, VERSION, self.namespace, "topics"
        )

    def writes(self) -> float:
        """Count the writes to our kinds that the API server has served since it started."""
        text = _kubectl("get", "--raw", "/metrics")
        return sum(
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith("apiserver_request_total{")
            and f'group="{GROUP}"' in line
            and any(f'verb="{verb}"' in line for verb in ("POST", "PUT", "PATCH", "DELETE"))
        )

    def leading_operator(self) -> str:
        lease = self.leases.read_namespaced_lease("tidemark-controller", OPERATORS)
        return str(lease.spec.holder_identity or "").partition("/")[0]

    def operator_mb(self) -> float:
        """Of all that runs in the pod of the leading operator, the shell that asks left out."""
        script = "cat /proc/[0-9]*/status | grep VmRSS"
        done = _kubectl("-n", OPERATORS, "exec", self.leading_operator(), "--", "sh", "-c", script)
        sizes = [int(line.split()[1]) for line in done.splitlines() if line]
        return max(sizes) * 1024 / 1e6

    def kill_operator(self, pod: str) -> None:
        _kubectl(
            "-n", OPERATORS, "delete", "pod", pod, "--grace-period=0", "--force", "--wait=false"
        )


class ReadyTimes:
    """When each Topic became Ready, by a watch of a thread of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self.at: dict[str, float] = {}
        self._cluster = cluster
        self._is_over = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        listing = self._cluster.objects.list_namespaced_custom_object
        while not self._is_over:
            try:
                for event in watch.Watch().stream(
                    listing, GROUP, VERSION, self._cluster.namespace, "topics", timeout_seconds=30
                ):
                    self._record(event["object"])
            except (client.ApiException, OSError):
                time.sleep(LOOK_SECONDS)

    def _record(self, topic: dict[str, Any]) -> None:
        conditions = topic.get("status", {}).get("conditions", ())
        if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
            self.at.setdefault(topic["metadata"]["name"], time.monotonic())

    def wait(self, names: list[str], seconds: float = LIMIT_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not all(name in self.at for name in names):
            if time.monotonic() > deadline:
                missing = sum(name not in self.at for name in names)
                raise BenchFailed(f"{missing} of {len(names)} Topics not Ready in {seconds:.0f} s")
            time.sleep(0.05)

    def end(self) -> None:
        self._is_over = True


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bench.topics_on_kind",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", default="many,operator")
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=10_000, help="of the part `operator`")
    options = parser.parse_args()
    subprocess.run([ROOT / "hack/deploy"], check=True)
    found: dict[str, float] = {}

    def note(key: str, figure: float, unit: str) -> None:
        found[f"{key} ({unit})"] = round(figure, 3)
        print(f"{key}: {figure:,.2f} {unit}", flush=True)

    parts = {
        "many": lambda cluster: _many(cluster, options.topics, note),
        "operator": lambda cluster: _operator(cluster, options.partitions, note),
    }
    try:
        for part in options.parts.split(","):
            with _namespace() as cluster:
                parts[part](cluster)
    except BenchFailed as error:
        print(f"bench-topics-on-kind: {error}", file=sys.stderr)
        return 1
    finally:
        (ROOT / "build" / "bench-topics-on-kind.json").write_text(json.dumps(found, indent=1))
    return 0


@contextmanager
def _namespace() -> Iterator[Cluster]:
    cluster = Cluster(f"bench-{int(time.time())}")
    cluster.core.create_namespace({"metadata": {"name": cluster.namespace}})
    try:
        # A first Topic brings the pool up; that is not what is measured.
        times = ReadyTimes(cluster)
        cluster.apply_topics(["first"], 1)
        times.wait(["first"])
        times.end()
        yield cluster
    finally:
        cluster.core.delete_namespace(cluster.namespace)


def _many(cluster: Cluster, topics: int, note: Note) -> None:
    names = [f"many-{number}" for number in range(topics)]
    times = ReadyTimes(cluster)
    begun = time.monotonic()
    cluster.apply_topics(names, 3)
    note(f"{topics} Topics applied", time.monotonic() - begun, "s")
    times.wait(names)
    at = sorted(times.at[name] for name in names)
    note(f"{topics} Topics Ready", at[-1] - begun, "s")
    first, last = at[RATE_OF] - begun, at[-1] - at[-1 - RATE_OF]
    note("rate of the last 100 to the first 100", first / max(last, 1e-3), "")
    note("memory of the operator", cluster.operator_mb(), "MB")
    time.sleep(SETTLE_SECONDS)
    before = cluster.writes()
    time.sleep(QUIET_SECONDS)
    note("writes in a quiet minute", cluster.writes() - before, "")
    begun = time.monotonic()
    cluster.apply_topics(["one-more"], 3)
    times.wait(["one-more"])
    note("one more Topic Ready", times.at["one-more"] - begun, "s")
    times.end()
    begun = time.monotonic()
    cluster.delete_topics()
    _until("all Topics and slices gone", lambda: _is_empty(cluster))
    note("all deleted", time.monotonic() - begun, "s")


def _is_empty(cluster: Cluster) -> bool:
    """Slices of topics with deletionPolicy Retain stay; they lose their leaders."""
    if cluster.count("topics"):
        return False
    slices = cluster.objects.list_namespaced_custom_object(
        GROUP, VERSION, cluster.namespace, "partitionslices"
    )["items"]
    return all(each.get("retained") for each in slices)


def _operator(cluster: Cluster, partitions: int, note: Note) -> None:
    names = [f"large-{number}" for number in range(math.ceil(partitions / 1000))]
    times = ReadyTimes(cluster)
    begun = time.monotonic()
    cluster.apply_topics(names, 1000)
    times.wait(names)
    note(f"{partitions} partitions Ready", time.monotonic() - begun, "s")
    note("memory of the operator", cluster.operator_mb(), "MB")
    for number in range(KILLS):
        time.sleep(SETTLE_SECONDS)
        _kill_operator(cluster, times, number, note)
    times.end()


def _kill_operator(cluster: Cluster, times: ReadyTimes, number: int, note: Note) -> None:
    killed = cluster.leading_operator()
    begun = time.monotonic()
    cluster.kill_operator(killed)
    _until("another operator leads", lambda: cluster.leading_operator() not in ("", killed))
    note(f"kill {number + 1}: another operator holds the Lease", time.monotonic() - begun, "s")
    name = f"after-{number}"
    cluster.apply_topics([name], 1)
    times.wait([name])
    note(f"kill {number + 1}: a new Topic Ready", times.at[name] - begun, "s")


def _until(what: str, is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise BenchFailed(f"waited {LIMIT_SECONDS:.0f} s for: {what}")
        time.sleep(0.1)


def _kubectl(*arguments: str) -> str:
    script = 'eval "$(hack/kind/cluster env)"; exec kubectl "$@"'
    done = subprocess.run(
        ["bash", "-c", script, "kubectl", *arguments],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode != 0:
        raise BenchFailed(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
