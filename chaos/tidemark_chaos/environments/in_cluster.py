"""Run a chaos experiment from a pod, on a pool of its namespace that exists already.

The workload and its verification are child processes in this pod; the experiment's topic is made
by it and deleted with its records. The state of topics and brokers comes from two watches.
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import aiohttp
import msgspec
from tidemark_client.cluster_status import ClusterStatus, status_of_objects
from tidemark_client.errors import CommandFailed
from tidemark_client.trust import CA_FILE_VARIABLE
from tidemark_client.waiting import until

from tidemark_chaos.environments import child_processes
from tidemark_chaos.environments.chaos_environment import Notify
from tidemark_chaos.environments.chaos_pods import load_options
from tidemark_chaos.environments.kubernetes import SIGNAL_BROKER
from tidemark_chaos.environments.pods_api import Manifest, PodsApi
from tidemark_chaos.environments.processes import read_report
from tidemark_chaos.faults.fault import Fault
from tidemark_chaos.spec import ChaosExperiment, topic_manifest
from tidemark_chaos.verification import VerifyReport
from tidemark_chaos.workload_log import Event, decode_event

EXPERIMENT_LABEL = "tidemark.dev/chaos-experiment"  # on the topic of an experiment: whose it is
KINDS = ("brokers", "partitionslices")
OPERATORS = "app.kubernetes.io/name=tidemark,app.kubernetes.io/component=operator"
SIGCONT, SIGSTOP = 18, 19
READY_SECONDS = 60.0
RENEW_SECONDS = 90.0
POLL_SECONDS = 0.05
WATCH_AGAIN_SECONDS = 0.2
ENOUGH_EVENTS = 20
LOAD_STOP_SECONDS = 150.0  # longer than a record may be under way
VERIFY_SECONDS = 60.0
VERIFIED_BYTES_PER_SECOND = 1_000_000


class InCluster:
    """The pool of an experiment, as `ChaosEnvironment` and as the `Pods` of its faults."""

    keeps_data = False

    def __init__(
        self, experiment: ChaosExperiment, api: PodsApi, *, directory: Path, operator_namespace: str
    ) -> None:
        """Create it; the workload's events and logs are written into `directory`."""
        self._workload = experiment.spec.workload
        self._experiment = experiment.metadata.name
        self._pool = experiment.spec.pool
        self._api = api
        self._directory = directory
        self._operator_namespace = operator_namespace
        self._events = directory / "workload.ndjson"
        self._server = bootstrap_url(self._pool, os.environ)
        self.topic_name = self._workload.topic
        self.opening = f"Pool {self._pool} of namespace {api.namespace}."
        self._objects: dict[str, dict[str, Manifest]] = {kind: {} for kind in KINDS}
        self._watching: list[asyncio.Task[None]] = []
        self._load: asyncio.subprocess.Process | None = None
        self._position = 0  # in the file of events
        self._paused: set[int] = set()
        self.is_healed = False  # by `tear_down`

    # ---- set-up

    async def prepare(self) -> None:
        """Check that pool and topic are as the experiment needs them. Raises CommandFailed."""
        problems = await self.problems()
        if problems:
            raise CommandFailed("; ".join(problems))

    async def problems(self) -> list[str]:
        """Return a sentence for each thing that the experiment names and that is not so."""
        found = []
        pool = await self._api.get("brokerpools", self._pool)
        brokers = 0 if pool is None else int((pool.get("spec") or {}).get("replicas", 0))
        if pool is None:
            found.append(f"spec.pool: BrokerPool {self._pool} does not exist in this namespace")
        elif brokers < self._workload.replication_factor:
            found.append(
                f"spec.workload.replicationFactor: pool {self._pool} has {brokers} brokers, not"
                f" {self._workload.replication_factor}"
            )
        topic = await self._api.get("topics", self.topic_name)
        if topic is not None and not is_topic_of(topic, self._experiment):
            found.append(
                f"spec.workload.topic: the Topic {self.topic_name} exists and is not of this"
                " experiment; name another one"
            )
        return found

    async def set_up(self, tell: Notify) -> None:
        for kind in KINDS:
            self._watching.append(asyncio.create_task(self._watch(kind), name=f"watch {kind}"))
        if await delete_topic(self._api, self.topic_name, self._experiment):
            await self.until(self._is_topic_gone, f"topic {self.topic_name} to be deleted")
        tell(f"creating topic {self.topic_name}")
        await self._api.create("topics", await self._topic_object())
        tell("waiting until every partition has a leader and all replicas in sync")
        await self.until(self._is_in_sync, f"{self.topic_name} to be led and in sync")

    async def _topic_object(self) -> Manifest:
        """Return the workload's Topic; the experiment owns it, so it is deleted with it too."""
        experiment = await self._api.get("chaosexperiments", self._experiment)
        if experiment is None:
            raise CommandFailed(f"ChaosExperiment {self._experiment} was deleted.")
        manifest: Manifest = msgspec.json.decode(topic_manifest(self._workload))
        manifest["metadata"] |= {
            "labels": {EXPERIMENT_LABEL: self._experiment},
            "ownerReferences": [owner_of(experiment)],
        }
        manifest["spec"] |= {"brokerPool": self._pool, "deletionPolicy": "Delete"}
        return manifest

    # ---- the workload

    async def start_workload(self) -> None:
        racks = sorted({row.rack for row in (await self._known()).brokers if row.rack})
        near = [racks[i % len(racks)] for i in range(1, self._workload.consumers) if racks]
        self._load = await child_processes.start(
            [
                *(sys.executable, "-m", "tidemark_cli.main", "load", self.topic_name),
                *("--server", self._server, "--out", str(self._events)),
                *("--interval-ms", f"{1000 / self._workload.records_per_second:g}"),
                *load_options(self._workload),
                *(word for rack in dict.fromkeys(near) for word in ("--rack", rack)),
            ],
            log=self._directory / "load.log",
        )
        await self.until(self._is_acknowledged, "the workload to be acknowledged")

    async def new_events(self) -> list[Event]:
        """Return what the workload wrote since the last call."""

        def read_on() -> list[Event]:
            if not self._events.exists():
                return []
            with self._events.open("rb") as file:
                file.seek(self._position)
                data = file.read()
            whole = data.rfind(b"\n") + 1
            self._position += whole
            found = []
            for line in data[:whole].splitlines():
                with contextlib.suppress(msgspec.DecodeError, msgspec.ValidationError):
                    found.append(decode_event(line))  # `verify` counts the others
            return found

        return await asyncio.to_thread(read_on)

    def check_workload(self) -> None:
        """Check that the workload still runs. Raises CommandFailed."""
        if self._load is not None and self._load.returncode is not None:
            log = self._directory / "load.log"
            tail = log.read_bytes()[-1500:].decode(errors="replace").strip()
            raise CommandFailed(
                expected="a running workload", found=f"it ended: {tail or 'without output'}"
            )

    async def stop_workload(self) -> None:
        assert self._load is not None
        if self._load.returncode is None:
            self._load.terminate()
        try:
            async with asyncio.timeout(LOAD_STOP_SECONDS):
                await self._load.wait()
        except TimeoutError as late:
            raise CommandFailed(
                expected=f"the workload to end within {LOAD_STOP_SECONDS:g} s", found="it did not"
            ) from late

    async def verify(self) -> VerifyReport:
        """Read all records and compare all replicas: a long run takes longer."""
        seconds = VERIFY_SECONDS + self._events.stat().st_size / VERIFIED_BYTES_PER_SECOND
        ended = await child_processes.run(
            [
                *(sys.executable, "-m", "tidemark_cli.main", "verify", "-o", "json"),
                *("--load", str(self._events), "--server", self._server),
                *("--within-seconds", f"{seconds:.0f}"),
            ],
            within_seconds=2 * seconds,
        )
        return read_report(ended)

    # ---- what the API server knows

    async def status(self) -> ClusterStatus | None:
        return await self._known()

    async def _known(self) -> ClusterStatus:
        """Return the brokers and topics of this pool alone: others are not struck."""
        status = status_of_objects(*(self._objects[kind].values() for kind in KINDS))
        return ClusterStatus(
            brokers=tuple(row for row in status.brokers if row.pool == self._pool),
            topics=tuple(view for view in status.topics if view.pool == self._pool),
        )

    async def until(self, is_so: Callable[[], Awaitable[bool]], what: str) -> None:
        await until(
            is_so,
            what,
            within_seconds=READY_SECONDS,
            every_seconds=POLL_SECONDS,
            to_do=f"kubectl -n {self._api.namespace} get topics,bkr,pslice,pods",
        )

    async def _watch(self, kind: str) -> None:
        """Follow all objects of a kind; a watch that ends or fails begins again with a list."""
        while True:
            try:
                known: dict[str, Manifest] = {}
                async for change, item in self._api.watch(kind):
                    if change == "ERROR":  # mostly: its place in the history is gone
                        break
                    if item.get("topicName", self.topic_name) != self.topic_name:
                        continue  # the status is read 40 times a second: no more than it shows
                    if change in ("ADDED", "MODIFIED"):
                        known[item["metadata"]["name"]] = item
                    elif change == "DELETED":
                        known.pop(item["metadata"]["name"], None)
                    self._objects[kind] = known
            except (CommandFailed, OSError, TimeoutError, aiohttp.ClientError, ValueError):
                pass  # the last known state stays until the API server answers
            await asyncio.sleep(WATCH_AGAIN_SECONDS)

    async def _is_topic_gone(self) -> bool:
        """Return whether the topic of an earlier experiment of this name is gone."""
        is_known = (await self._known()).topic(self.topic_name) is not None
        return not is_known and await self._api.get("topics", self.topic_name) is None

    async def _is_in_sync(self) -> bool:
        view = (await self._known()).topic(self.topic_name)
        return view is not None and view.is_fully_in_sync

    async def _is_acknowledged(self) -> bool:
        self.check_workload()

        def count() -> int:
            return self._events.read_bytes().count(b"\n") if self._events.exists() else 0

        return await asyncio.to_thread(count) >= ENOUGH_EVENTS

    # ---- pods

    async def rest(self, brokers: tuple[int, ...]) -> bool:
        """Replace the pods of brokers whose container the kubelet would restart late.

        It restarts a container at once the first time, then after 10, 20, 40 s.
        """
        worn = sorted(await self._worn() & set(brokers))
        for broker_id in worn:
            await self._api.delete_pod(self._pod(broker_id))

            async def is_back(broker_id: int = broker_id) -> bool:
                return broker_id not in await self._worn() and await self._is_in_sync()

            await until(
                is_back,
                f"pod {self._pod(broker_id)} to be replaced",
                within_seconds=RENEW_SECONDS,
                every_seconds=0.3,
                to_do=f"kubectl -n {self._api.namespace} describe pod {self._pod(broker_id)}",
            )
        return bool(worn)

    def note_struck(self, brokers: tuple[int, ...]) -> None:
        """Do nothing: the kubelet counts restarts."""

    async def signal(self, broker_id: int, number: int, words: str) -> Fault:
        return await self._signal(broker_id, number, words)

    async def pause(self, broker_id: int, seconds: float) -> Fault:
        """Stop a broker for a time; a shell in its container resumes it, also without a runner."""
        self._paused.add(broker_id)
        found = await self._signal(
            broker_id, SIGSTOP, "pause (SIGSTOP) of", resumed_after=f"{seconds:g}"
        )
        return Fault(found.t_ms, f"{found.words} for {seconds:g} s")

    async def delete_pod(self, broker_id: int, *, is_forced: bool) -> Fault:
        pod, t_ms = self._pod(broker_id), time.time() * 1000
        await self._api.delete_pod(pod, is_forced=is_forced)
        return Fault(t_ms, f"{'forced ' * is_forced}deletion of pod {pod}")

    async def kill_operator(self) -> Fault:
        """Delete the operator's pod that holds the Lease, by force."""
        name = await self._api.leading_operator(self._operator_namespace)
        pods = await self._api.pods(OPERATORS, self._operator_namespace)
        if name not in {str(pod["metadata"]["name"]) for pod in pods}:
            raise CommandFailed(
                expected="an operator pod that holds the Lease",
                found=f"holder {name or 'none'}, pods {len(pods)}",
            )
        t_ms = time.time() * 1000
        await self._api.delete_pod(name, namespace=self._operator_namespace, is_forced=True)
        return Fault(t_ms, f"forced deletion of pod {name}, the leading operator")

    async def tear_down(self) -> None:
        """Resume what is paused, stop the workload and delete its topic.

        After a failure the topic stays for examination, until the experiment is deleted. What could
        not be undone is left to `heal` in another pod (`is_healed`).
        """
        failures: list[str] = []
        for broker_id in sorted(self._paused):
            try:
                await self._signal(broker_id, SIGCONT, "resumed")
            except CommandFailed as failed:  # mostly: its pod was deleted since
                failures.append(str(failed))
        await child_processes.stop(self._load)
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        try:
            if not self.keeps_data:
                await delete_topic(self._api, self.topic_name, self._experiment)
        except CommandFailed as failed:
            failures.append(str(failed))
        self.is_healed = not failures

    async def _worn(self) -> frozenset[int]:
        pods = await self._api.pods(broker_labels(self._pool))
        return frozenset(
            broker_id_of(pod)
            for pod in pods
            if any(each["restartCount"] for each in pod["status"].get("containerStatuses", ()))
        )

    async def _signal(
        self, broker_id: int, number: int, words: str, *, resumed_after: str = ""
    ) -> Fault:
        pod = self._pod(broker_id)
        t_ms, pid = await signal_broker(self._api, pod, number, resumed_after)
        return Fault(t_ms, f"{words} the broker in pod {pod} (process {pid})")

    def _pod(self, broker_id: int) -> str:
        return f"{self._pool}-{broker_id}"


def bootstrap_url(pool: str, environment: Mapping[str, str]) -> str:
    """Return the address of a pool's brokers; only one with TLS has authorities to trust."""
    ca_file = environment.get(CA_FILE_VARIABLE, "")
    scheme = "https" if ca_file and Path(ca_file).is_file() else "http"
    return f"{scheme}://{pool}-bootstrap:8080"


def broker_labels(pool: str) -> str:
    return f"app.kubernetes.io/component=broker,app.kubernetes.io/instance={pool}"


def broker_id_of(pod: Manifest) -> int:
    return int(pod["metadata"]["labels"]["tidemark.dev/broker-id"])


async def signal_broker(
    api: PodsApi, pod: str, number: int, resumed_after: str = ""
) -> tuple[float, str]:
    """Signal the broker of a pod; return when (Unix ms), and its process id there.

    Raises CommandFailed.
    """
    printed = await api.execute(pod, ("sh", "-c", SIGNAL_BROKER, "sh", str(number), resumed_after))
    words = printed.split()
    if len(words) < 2:
        raise CommandFailed(
            expected=f"a broker process in pod {pod}", found=printed.strip() or "none below PID 1"
        )
    return int(words[0]) / 1e6, words[1]


async def delete_topic(api: PodsApi, name: str, experiment: str) -> bool:
    """Delete the topic of an experiment with its records; return whether there was one."""
    topic = await api.get("topics", name)
    if topic is None or not is_topic_of(topic, experiment):
        return False
    await api.delete("topics", name)
    return True


def is_topic_of(topic: Manifest, experiment: str) -> bool:
    labels = topic["metadata"].get("labels") or {}
    return bool(labels.get(EXPERIMENT_LABEL) == experiment)


def owner_of(experiment: Manifest) -> Manifest:
    """Return the owner reference to an experiment: what has it is deleted with it."""
    metadata = experiment["metadata"]
    return {
        "apiVersion": experiment["apiVersion"],
        "kind": experiment["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


async def heal(api: PodsApi, experiment: ChaosExperiment, tell: Notify) -> None:
    """Undo what a run may have left: resume the pool's brokers and delete the workload's topic.

    A broker that is not paused ignores being resumed. Raises CommandFailed.
    """
    for pod in await api.pods(broker_labels(experiment.spec.pool)):
        name, status = str(pod["metadata"]["name"]), pod.get("status") or {}
        running = [
            each for each in status.get("containerStatuses", ()) if "running" in each["state"]
        ]
        if not running:
            tell(f"pod {name} does not run, so nothing in it is paused")
            continue
        printed = await api.execute(name, ("sh", "-c", SIGNAL_BROKER, "sh", str(SIGCONT), ""))
        tell(f"pod {name}: {'broker resumed' if printed.split() else 'no broker runs'}")
    topic = experiment.spec.workload.topic
    if await delete_topic(api, topic, experiment.metadata.name):
        tell(f"topic {topic} deleted with its records")
