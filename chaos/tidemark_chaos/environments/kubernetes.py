"""Run a cluster and a workload on kind: pods are killed from inside and deleted by force.

The cluster must be up and hold our images (`make demo ON=kind` prepares both). Workload and
verifier run as a pod in a namespace of their own; one watch of the PartitionSlices, the
controller's durable state, follows leadership.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from tidemark_client.cluster_status import status_of_objects
from tidemark_client.errors import CommandFailed
from tidemark_client.metadata import TopicView
from tidemark_client.waiting import until

from tidemark_chaos.environments.chaos_environment import Notify
from tidemark_chaos.environments.kubectl import Kubectl
from tidemark_chaos.environments.pool_client import as_client, client_objects
from tidemark_chaos.environments.processes import ENOUGH_RECORDS, read_report
from tidemark_chaos.faults import node_scripts
from tidemark_chaos.faults.fault import Fault
from tidemark_chaos.faults.node_scripts import Cut
from tidemark_chaos.spec import Party
from tidemark_chaos.verification import VerifyReport
from tidemark_chaos.workload_log import WorkloadLog, read_workload_log

IMAGE = "tidemark/broker:dev"
POOL = "default"
SERVER = f"https://{POOL}-bootstrap:8080"
LOAD_POD = "tidemark-demo-load"
BROKERS = f"app.kubernetes.io/component=broker,app.kubernetes.io/instance={POOL}"
OPERATORS = "app.kubernetes.io/name=tidemark,app.kubernetes.io/component=operator"
EVENTS = "/tmp/load.ndjson"  # in the load pod
STOP_FILE = "/tmp/stop"
READY_SECONDS = 120
WATCH_AGAIN_SECONDS = 0.2
SLICES = "/apis/tidemark.dev/v1alpha1/namespaces/{namespace}/partitionslices?watch=1"
TO_DO = "run: KUBECONFIG=build/kubeconfig kubectl -n {namespace} get topics,bkr,pslice,pods"

# Run by sh in the broker's container, which starts faster than Python: PID 1 is an init, so its
# child is the broker; who runs this has no parent in there. With a second argument the broker is
# resumed after so many seconds, by a shell that stays (and is a child of PID 1 then).
SIGNAL_BROKER = """
for stat in /proc/[0-9]*/stat; do
    read -r pid name state parent rest < "$stat" || continue
    if [ "$parent" != 1 ] || [ "$name" = "(sh)" ] || [ "$name" = "(sleep)" ]; then continue; fi
    echo "$(date +%s%N) $pid"; kill -"$1" "$pid"
    if [ -n "$2" ]; then (sleep "$2"; kill -CONT "$pid") < /dev/null > /dev/null 2>&1 & fi
done
"""


class KindEnvironment:
    def __init__(
        self,
        *,
        topic: str,
        manifest: str,
        options: Sequence[str],
        kubectl: Kubectl,
        events: Path,
        interval_ms: float,
    ) -> None:
        """Create it; `options` of `tidemark load` say which clients there are."""
        self.topic_name = topic
        self._options = options
        self._manifest = manifest
        self._events = events
        self._interval_ms = interval_ms
        self.namespace = f"tidemark-demo-{secrets.token_hex(2)}"
        self._kubectl = kubectl.within(self.namespace)
        self._slices: dict[str, Mapping[str, Any]] = {}
        self._watching: asyncio.Task[None] | None = None

    async def set_up(self, tell: Notify) -> None:
        tell("hack/deploy: images, CRDs, helm upgrade --install tidemark charts/tidemark")
        await self._kubectl.install_chart()
        await self._kubectl.must("create", "namespace", self.namespace)
        self._watching = asyncio.create_task(self._watch(), name="watch-slices")
        tell(f"kubectl apply of topic {self.topic_name}, in the empty namespace {self.namespace}")
        await self._kubectl.must("apply", "-f", "-", stdin=self._manifest.encode())
        tell(
            "waiting until the topic is Ready: the operator creates a pool, pods, claims and slices"
        )
        await self._kubectl.must(
            *(
                "wait",
                f"topic/{self.topic_name}",
                "--for=condition=Ready",
                f"--timeout={READY_SECONDS}s",
            ),
            within_seconds=READY_SECONDS + 10,
        )
        await self._until(self._is_in_sync, f"{self.topic_name} to be led and in sync", 0.05)

    async def start_workload(self) -> None:
        for item in client_objects(self.namespace):
            await self._kubectl.must("apply", "-f", "-", stdin=msgspec.json.encode(item))
        manifest = msgspec.json.encode(self.load_pod())
        await self._kubectl.must("apply", "-f", "-", stdin=manifest)
        await self._kubectl.must(
            *("wait", f"pod/{LOAD_POD}", "--for=condition=Ready", "--timeout=60s"),
            within_seconds=70,
        )
        await self._until(self._is_acknowledged, "the load to be acknowledged", 0.3)

    def load_pod(self) -> dict[str, Any]:
        """Return the manifest of the workload's pod."""
        pod = load_pod_manifest(self._interval_ms, topic=self.topic_name, options=self._options)
        return as_client(pod, self.namespace, POOL)

    async def topic(self) -> TopicView | None:
        return status_of_objects((), self._slices.values()).topic(self.topic_name)

    async def worn_brokers(self) -> frozenset[int]:
        """Return the brokers whose container the kubelet would restart late.

        It restarts a container at once the first time, then after 10, 20, 40 s.
        """
        pods = await self._kubectl.items("pods", "-l", BROKERS)
        return frozenset(
            int(pod["metadata"]["labels"]["tidemark.dev/broker-id"])
            for pod in pods
            if any(entry["restartCount"] for entry in pod["status"].get("containerStatuses", ()))
        )

    async def renew(self, broker_id: int) -> None:
        await self._kubectl.must("delete", "pod", f"{POOL}-{broker_id}", within_seconds=60)

        async def is_back() -> bool:
            return broker_id not in await self.worn_brokers() and await self._is_in_sync()

        await self._until(is_back, f"pod {POOL}-{broker_id} to be replaced", 0.3)

    async def workload_log(self) -> WorkloadLog:
        """Fetch the whole log, so that a broken log stream cannot cost an event."""
        ended = await self._kubectl.run("exec", LOAD_POD, "--", "cat", EVENTS, within_seconds=30)
        if ended.exit_code != 0:
            return WorkloadLog()
        await asyncio.to_thread(self._keep_events, ended.stdout)
        return await asyncio.to_thread(read_workload_log, ended.stdout.splitlines())

    async def stop_workload(self) -> None:
        await self._kubectl.must("exec", LOAD_POD, "--", "touch", STOP_FILE)
        await self._until(self._is_finished, "the load to end", 0.3)

    async def verify(self) -> VerifyReport:
        ended = await self._kubectl.run(
            *("exec", LOAD_POD, "--", "tidemark", "verify", "-o", "json"),
            *("--load", EVENTS, "--server", SERVER),
            within_seconds=120,
        )
        return read_report(ended)

    async def tear_down(self) -> None:
        """Delete the namespace in the background; the cluster stays for inspection."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            await self._kubectl.run("delete", "namespace", self.namespace, "--wait=false")

    async def signal(
        self, broker_id: int, number: int, words: str, *, resumed_after: str = ""
    ) -> Fault:
        pod = f"{POOL}-{broker_id}"
        script = ("sh", "-c", SIGNAL_BROKER, "sh", str(number), resumed_after)
        ended = await self._kubectl.run("exec", pod, "--", *script)
        # The container may end before the exec does: what was printed counts, not the exit code.
        words_printed = ended.stdout.split()
        if not words_printed:
            raise CommandFailed(
                expected=f"a broker process in pod {pod}",
                found=ended.stderr.decode(errors="replace").strip() or "none below PID 1",
                to_do=TO_DO.format(namespace=self.namespace),
            )
        t_ms, pid = int(words_printed[0]) / 1e6, words_printed[1].decode()
        return Fault(t_ms, f"{words} the broker in pod {pod} (process {pid})")

    async def kill_operator(self) -> Fault:
        """Kill the operator replica that holds the Lease."""
        pod = await self._leading_operator()
        name, namespace = str(pod["metadata"]["name"]), str(pod["metadata"]["namespace"])
        t_ms = time.time() * 1000
        await self._delete_by_force(self._kubectl.within(namespace), name)
        return Fault(t_ms, f"kubectl delete pod {name} --grace-period=0 --force")

    async def pause_operator(self, seconds: float) -> Fault:
        """Stop the operator replica that holds the Lease; its node resumes it after a time."""
        pod = await self._leading_operator()
        name = str(pod["metadata"]["name"])
        script = node_scripts.pause_script(str(pod["metadata"]["uid"]), seconds)
        done_ns = await self._kubectl.in_node(str(pod["spec"]["nodeName"]), script)
        return Fault(int(done_ns) / 1e6, f"SIGSTOP of pod {name} for {seconds:g} s")

    async def cut(
        self, broker_id: int, others: Sequence[int], *, from_: Sequence[Party], cut: Cut
    ) -> tuple[Fault, Callable[[], Awaitable[None]]]:
        """Disconnect a broker from others; its node connects it again after a time.

        Return what connects it earlier, too.
        """
        pod = await self._pod(broker_id)
        addresses = []
        if Party.PEERS in from_:
            addresses += [(await self._pod(each))["status"]["podIP"] for each in others]
        if Party.CONTROLLER in from_:
            operators = await self._kubectl.items("pods", "-A", "-l", OPERATORS)
            addresses += [each["status"]["podIP"] for each in operators if each["status"]["podIP"]]
        node, address = str(pod["spec"]["nodeName"]), str(pod["status"]["podIP"])
        rules = node_scripts.rules_between(address, addresses, cut.direction)
        done_ns = await self._kubectl.in_node(node, node_scripts.cut_script(rules, cut.seconds))

        async def heal() -> None:
            await self._kubectl.in_node(node, node_scripts.heal_script(rules))

        parties = " and ".join(from_)
        words = f"pod {POOL}-{broker_id} disconnected from {parties} for {cut.seconds:g} s"
        return Fault(int(done_ns) / 1e6, words), heal

    async def _pod(self, broker_id: int) -> Mapping[str, Any]:
        found = await self._kubectl.must("get", "pod", f"{POOL}-{broker_id}", "-o", "json")
        pod: dict[str, Any] = msgspec.json.decode(found)
        return pod

    async def _leading_operator(self) -> Mapping[str, Any]:
        """Return the operator pod that holds the Lease. Raises CommandFailed."""
        pods = await self._kubectl.items("pods", "-A", "-l", OPERATORS)
        leases = await self._kubectl.items("leases", "-A")
        holders = {str(lease["spec"].get("holderIdentity", "")) for lease in leases}
        for pod in pods:
            name = str(pod["metadata"]["name"])
            if any(name in holder for holder in holders):
                return pod
        raise CommandFailed(
            expected="an operator pod that holds the Lease",
            found=f"pods {[pod['metadata']['name'] for pod in pods]}, holders {sorted(holders)}",
            to_do="check that the chart is installed and an operator leads",
        )

    async def delete_pod(self, broker_id: int, *, is_forced: bool) -> Fault:
        pod = f"{POOL}-{broker_id}"
        t_ms = time.time() * 1000  # before kubectl starts: rather too long than too short
        if is_forced:
            await self._delete_by_force(self._kubectl, pod)
            return Fault(t_ms, f"kubectl delete pod {pod} --grace-period=0 --force")
        await self._kubectl.must("delete", "pod", pod, "--wait=false")
        return Fault(t_ms, f"kubectl delete pod {pod}")

    async def pause(self, broker_id: int, seconds: float) -> Fault:
        """Stop a broker for a time; a shell in its container resumes it, also without a runner."""
        found = await self.signal(
            broker_id, 19, "freeze (SIGSTOP) of", resumed_after=f"{seconds:g}"
        )
        return Fault(found.t_ms, f"{found.words} for {seconds:g} s")

    @staticmethod
    async def _delete_by_force(kubectl: Kubectl, pod: str) -> None:
        await kubectl.must("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")

    async def _watch(self) -> None:
        """Watch PartitionSlices for as long as the run lasts, one JSON line per change.

        The watch is renewed when it ends.
        """
        path = SLICES.format(namespace=self.namespace)
        while True:
            async for line in self._kubectl.lines("get", "--raw", path):
                with contextlib.suppress(msgspec.DecodeError):
                    self._on_watch_event(msgspec.json.decode(line))
            await asyncio.sleep(WATCH_AGAIN_SECONDS)

    def _on_watch_event(self, event: Mapping[str, Any]) -> None:
        found = event.get("object", {})
        if event.get("type") in ("ADDED", "MODIFIED"):
            self._slices[found["metadata"]["name"]] = found
        elif event.get("type") == "DELETED":
            self._slices.pop(found["metadata"]["name"], None)

    def _keep_events(self, data: bytes) -> None:
        self._events.parent.mkdir(parents=True, exist_ok=True)
        self._events.write_bytes(data)

    async def _until(
        self, is_so: Callable[[], Awaitable[bool]], what: str, every_seconds: float
    ) -> None:
        await until(
            is_so,
            what,
            within_seconds=60.0,
            every_seconds=every_seconds,
            to_do=TO_DO.format(namespace=self.namespace),
        )

    async def _is_in_sync(self) -> bool:
        view = await self.topic()
        return view is not None and view.is_fully_in_sync

    async def _is_acknowledged(self) -> bool:
        return (await self.workload_log()).acknowledged_count >= ENOUGH_RECORDS

    async def _is_finished(self) -> bool:
        return (await self.workload_log()).is_finished


def load_pod_manifest(interval_ms: float, *, topic: str, options: Sequence[str]) -> dict[str, Any]:
    """Load first, then it stays for `cat` and `verify`."""
    load = (
        f"tidemark load {topic} --server {SERVER} --interval-ms {interval_ms:g}"
        f" {' '.join(options)}"
        f" --until-file {STOP_FILE} --out {EVENTS}; sleep 3600"
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": LOAD_POD, "labels": {"app.kubernetes.io/name": LOAD_POD}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "load",
                    "image": IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sh", "-c", load],
                    # Without a request its share of a busy processor is next to none, and it
                    # would measure its own waiting.
                    "resources": {"requests": {"cpu": "500m", "memory": "128Mi"}},
                }
            ],
        },
    }
