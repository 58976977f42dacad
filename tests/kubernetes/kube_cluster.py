"""A real cluster for tests: kubectl, helm, and a load that runs as a pod beside the brokers."""

import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from tidemark_chaos.verification import VerifyReport

from tests.support.clean_verdict import clean_verdict
from tests.support.waiting import wait_for

log = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[2]
# Of a pool whose test is not about security; a pool that does not say so is closed.
OPEN = {"tls": {"mode": "Disabled"}, "authentication": "none"}
OPEN_VALUES = (
    "defaultPool.security.tls.mode=Disabled",
    "defaultPool.security.authentication=none",
)
OPERATOR_NAMESPACE = "tidemark-system"
LOAD_IMAGE = "tidemark/broker:dev"
SIGNAL_BROKER = """
import os, pathlib, sys
for entry in pathlib.Path("/proc").iterdir():
    if entry.name.isdecimal() and entry.name not in ("1", str(os.getpid())):
        if b"bin/tidemark-broker" in (entry / "cmdline").read_bytes():
            os.kill(int(entry.name), int(sys.argv[1]))
"""


class CommandFailed(Exception):
    pass


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str


class KubeCluster:
    """Everything in one namespace, which admits restricted pods only."""

    def __init__(self, environment: dict[str, str], namespace: str) -> None:
        self._environment = environment
        self.namespace = namespace

    @classmethod
    def of_rig(cls, namespace: str) -> "KubeCluster":
        lines = subprocess.run(
            [ROOT / "hack/kind/cluster", "env"],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        ).stdout
        script = f"{lines}\nenv -0"
        environment = subprocess.run(
            ["bash", "-c", script], check=True, capture_output=True, text=True, timeout=20
        ).stdout
        pairs = (line.partition("=") for line in environment.split("\0") if "=" in line)
        return cls({name: value for name, _, value in pairs}, namespace)

    @property
    def environment(self) -> dict[str, str]:
        """For processes that go on: PATH with kubectl and helm, KUBECONFIG."""
        return dict(self._environment)

    def run(self, *command: str, stdin: str | None = None, timeout_s: float = 60) -> Ended:
        done = subprocess.run(
            command,
            input=stdin,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            cwd=ROOT,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 60) -> str:
        ended = self.run(
            "kubectl", "-n", self.namespace, *arguments, stdin=stdin, timeout_s=timeout_s
        )
        if ended.code != 0:
            raise CommandFailed(f"kubectl {shlex.join(arguments)}: {ended.err.strip()}")
        return ended.out

    def tidemark(self, *arguments: str) -> str:
        """The command line with this kubeconfig and namespace, outside of the cluster."""
        ended = self.run(*self._tidemark(*arguments))
        assert ended.code == 0, ended
        return ended.out

    def run_tidemark(self, *arguments: str, timeout_s: float) -> Ended:
        """The command line without a namespace, for what makes its own."""
        command = str(Path(sys.executable).parent / "tidemark")
        return self.run(command, *arguments, timeout_s=timeout_s)

    @contextmanager
    def started_tidemark(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """The same of a command that runs until it is interrupted."""
        process = subprocess.Popen(
            self._tidemark(*arguments), env=self._environment, stdout=subprocess.PIPE, text=True
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=20)

    def _tidemark(self, *arguments: str) -> list[str]:
        command = str(Path(sys.executable).parent / "tidemark")
        return [command, *arguments, "-n", self.namespace]

    def install_chart(self, *values: str, is_open: bool = True) -> None:
        """Install or upgrade the chart, apply the CRDs and restart the operator with the new image.

        With `is_open` the default pool is, else it is as the chart has it.
        """
        security = OPEN_VALUES if is_open else ()
        given = ("defaultPool.storage.size=1Gi", *security, *values)
        words = [word for each in given for word in ("--set", each)]
        ended = self.run("hack/deploy", *words, timeout_s=300)
        if ended.code != 0:
            raise CommandFailed(f"hack/deploy: {ended.err.strip()}")

    def make_namespace(self) -> None:
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        metadata = {"name": self.namespace, "labels": labels}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    def make_client(self, name: str) -> None:
        """A ServiceAccount that may write and read all topics."""
        self.kubectl("create", "serviceaccount", name)
        for role in ("tidemark-producer", "tidemark-consumer"):
            self.kubectl(
                *("create", "rolebinding", f"{name}-{role}", f"--clusterrole={role}"),
                f"--serviceaccount={self.namespace}:{name}",
            )

    def delete_namespace(self) -> None:
        self.kubectl("delete", "namespace", self.namespace, "--wait=false")

    # Objects.

    def apply(self, manifest: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def rejection(self, manifest: dict[str, Any]) -> str:
        """What the API server says against it; "" when it would be taken. Changes nothing."""
        ended = self.run(
            *("kubectl", "-n", self.namespace, "apply", "--dry-run=server", "-f", "-"),
            stdin=json.dumps(manifest),
        )
        return ended.err.strip() if ended.code != 0 else ""

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        ended = self.run("kubectl", "-n", self.namespace, "get", kind, name, "-o", "json")
        if ended.code != 0:
            if "NotFound" in ended.err:
                return None
            raise CommandFailed(ended.err.strip())
        found: dict[str, Any] = json.loads(ended.out)
        return found

    def must_get(self, kind: str, name: str) -> dict[str, Any]:
        found = self.get(kind, name)
        assert found is not None, f"{kind}/{name} is not there"
        return found

    def items(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(
            self.kubectl("get", kind, *arguments, "-o", "json")
        )["items"]
        return items

    def condition(self, kind: str, name: str, type_: str = "Ready") -> dict[str, str]:
        status = self.must_get(kind, name).get("status", {})
        found = (each for each in status.get("conditions", ()) if each["type"] == type_)
        return next(found, {"status": "", "reason": "", "message": ""})

    def wait_ready(self, name: str, *, timeout_s: float = 60) -> float:
        """Seconds until the Topic is Ready."""
        started = time.monotonic()
        self.kubectl(
            *("wait", "--for=condition=Ready", f"topic/{name}", f"--timeout={timeout_s:.0f}s"),
            timeout_s=timeout_s + 10,
        )
        return time.monotonic() - started

    def until(self, is_so: Callable[[], bool], what: str, *, timeout_s: float = 30) -> float:
        """Seconds that it took; asks ten times a second."""
        started = time.monotonic()
        try:
            wait_for(what, is_so, seconds=timeout_s, pause_seconds=0.1)
        except AssertionError as error:
            error.add_note(self._state())
            raise
        return time.monotonic() - started

    def until_in_sync(self, name: str, *, timeout_s: float = 40) -> float:
        """Asks the slices, which are the truth; the Topic's condition follows a moment later."""

        def is_in_sync() -> bool:
            slices = [each for each in self.items("pslice") if each["topicObject"] == name]
            partitions = [each for found in slices for each in found["partitions"]]
            return bool(partitions) and all(
                len(each["isr"]) == len(each["replicas"]) for each in partitions
            )

        return self.until(is_in_sync, f"{name} fully in sync", timeout_s=timeout_s)

    def _state(self) -> str:
        return self.kubectl("get", "topics,brokers,pslice,pods")

    # Brokers and operators.

    def leader_of(self, slice_name: str, index: int = 0) -> int:
        leader: int = self.must_get("pslice", slice_name)["partitions"][index]["leader"]
        return leader

    def until_preferred_lead(self, slice_name: str) -> None:
        """Wait until no leader is about to move back to the first replica of its partition."""

        def is_balanced() -> bool:
            partitions = self.must_get("pslice", slice_name)["partitions"]
            return all(state["leader"] == state["replicas"][0] for state in partitions)

        self.until(is_balanced, f"preferred replicas of {slice_name} lead", timeout_s=60)

    def broker_epoch(self, broker_id: int) -> int:
        epoch: int = self.must_get("bkr", f"default-{broker_id}")["status"]["brokerEpoch"]
        return epoch

    def until_back(self, broker_id: int, previous_epoch: int, topic: str) -> float:
        """Seconds until another life of that broker is in sync; asking for the set alone could see
        the one from before the blow."""
        back = self.until(
            lambda: self.broker_epoch(broker_id) > previous_epoch, f"broker {broker_id} is back"
        )
        return back + self.until_in_sync(topic)

    def kill_broker(self, broker_id: int) -> None:
        """The container may end before the exec does."""
        self.signal_broker(broker_id, signal.SIGKILL)

    def signal_broker(self, broker_id: int, number: int) -> None:
        """To the process below PID 1."""
        self.run(
            *("kubectl", "-n", self.namespace, "exec", f"default-{broker_id}", "--"),
            *("python3", "-c", SIGNAL_BROKER, str(int(number))),
        )

    def leading_operator(self) -> str:
        operator = KubeCluster(self._environment, OPERATOR_NAMESPACE)
        holder: str = operator.must_get("lease", "tidemark-controller")["spec"]["holderIdentity"]
        return holder.partition("/")[0]

    def delete_operator(self, pod: str) -> None:
        operator = KubeCluster(self._environment, OPERATOR_NAMESPACE)
        operator.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")

    def broker_http(self, broker_id: int, path: str, body: Any = None) -> Any:
        """From inside of a broker's pod: pod and Service addresses are not reachable from here."""
        script = (
            "import json,sys,urllib.request as u\n"
            "body=json.loads(sys.argv[2])\n"
            "data=None if body is None else json.dumps(body).encode()\n"
            "kind='application/vnd.kafka.json.v2+json'\n"
            "kind={'Content-Type':kind,'Accept':kind}\n"
            "print(u.urlopen(u.Request(sys.argv[1],data,kind),timeout=10).read().decode())\n"
        )
        url = f"http://default-{broker_id}:8080{path}"
        out = self.kubectl(
            *("exec", f"default-{broker_id}", "--", "python3", "-c", script, url, json.dumps(body))
        )
        return json.loads(out)

    # Load.

    @contextmanager
    def load(
        self, topic: str, run: str, *, pool: str = "default", client: str = ""
    ) -> Iterator["Load"]:
        """A producer with acks=all and a consumer, in a pod of their own.

        With the name of a ServiceAccount as `client` they use TLS and its token.
        """
        scheme = "https" if client else "http"
        load = Load(self, f"load-{run}", topic, f"{scheme}://{pool}-bootstrap:8080", client, pool)
        load.start()
        try:
            yield load
        finally:
            self.kubectl("delete", "pod", load.pod, "--grace-period=0", "--force", "--wait=false")

    def writes(self, since: datetime) -> Counter[str]:
        """What our service accounts wrote since then, but Lease renewals. Namespaces of other runs
        do not count: they may be on their way out."""
        ended = self.run(str(ROOT / "hack/kind/cluster"), "audit-log", timeout_s=120)
        counted: Counter[str] = Counter()
        for line in ended.out.splitlines():
            event = json.loads(line)
            received = datetime.fromisoformat(event["requestReceivedTimestamp"])
            subject, resource = event["objectRef"], event["objectRef"]["resource"]
            is_ours = f":{OPERATOR_NAMESPACE}:" in event["user"]["username"]
            is_here = subject.get("namespace") in (self.namespace, OPERATOR_NAMESPACE)
            if is_ours and is_here and received >= since and resource != "leases":
                counted[f"{event['verb']} {resource}/{subject.get('name')}"] += 1
        return counted


class Load:
    def __init__(
        self, cluster: KubeCluster, pod: str, topic: str, server: str, client: str, pool: str
    ) -> None:
        self._cluster = cluster
        self._client = client
        self._pool = pool
        self.pod = pod
        self._topic = topic
        self._server = server

    def start(self) -> None:
        # A Service has its first ready address a second or two after its Topic is Ready.
        command = (
            "until [ -s /tmp/events ]; do"
            f" tidemark load {self._topic} --server {self._server}"
            " --until-file /tmp/stop --out /tmp/events; sleep 0.3; done;"
            " touch /tmp/ended; sleep 600"
        )
        container: dict[str, Any] = {
            "name": "load",
            "image": LOAD_IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", command],
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "runAsNonRoot": True,
                "runAsUser": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        }
        spec: dict[str, Any] = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        }
        if self._client:
            container |= client_settings()
            spec["serviceAccountName"] = self._client
            spec["volumes"] = client_volumes(self._cluster.namespace, self._pool)
        metadata = {"name": self.pod, "namespace": self._cluster.namespace}
        self._cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        self._cluster.until(lambda: self.acknowledged() > 50, "the load runs", timeout_s=60)

    def acknowledged(self) -> int:
        command = "grep -c acknowledged /tmp/events 2>/dev/null || true"
        ended = self._cluster.run(
            *("kubectl", "-n", self._cluster.namespace, "exec", self.pod, "--"),
            *("sh", "-c", command),
        )
        return int(ended.out.strip() or 0) if ended.code == 0 else 0

    def goes_on(self) -> None:
        """Waits until a hundred more records are acknowledged."""
        enough = self.acknowledged() + 100
        self._cluster.until(lambda: self.acknowledged() >= enough, "the load goes on")

    def clean_verdict(self) -> VerifyReport:
        """Ends the load and has it judged, as `clean_verdict` says: every promise kept, nothing
        odd in the history of all calls, all replicas alike."""
        ends = "touch /tmp/stop; until [ -e /tmp/ended ]; do sleep 0.1; done; tail -n 1 /tmp/events"
        last = self._cluster.kubectl("exec", self.pod, "--", "timeout", "30", "sh", "-c", ends)
        # Else the load itself broke off, and nobody knows what was promised after that.
        assert '"finished"' in last, f"the load did not end by itself, its last event: {last}"
        ended = self._cluster.run(
            *("kubectl", "-n", self._cluster.namespace, "exec", self.pod, "--", "tidemark"),
            *("verify", "-o", "json", "--load", "/tmp/events"),
            *("--server", self._server),
            timeout_s=120,
        )
        report = clean_verdict(ended.code, ended.out, ended.err)
        acknowledged = report.verdict.acknowledged
        log.info(f"acknowledged {acknowledged}, write gap {report.write_gap_ms:.0f} ms")
        return report


def client_settings() -> dict[str, Any]:
    """The part of a container with the command line that uses TLS and a token."""
    return {
        "env": [
            {"name": "TIDEMARK_CA_FILE", "value": "/etc/tidemark/trust/ca.crt"},
            {"name": "TIDEMARK_TOKEN_FILE", "value": "/var/run/secrets/tidemark/token"},
        ],
        "volumeMounts": [
            {"name": "trust", "mountPath": "/etc/tidemark/trust", "readOnly": True},
            {"name": "token", "mountPath": "/var/run/secrets/tidemark", "readOnly": True},
        ],
    }


def client_volumes(namespace: str, pool: str) -> list[dict[str, Any]]:
    token = {
        "path": "token",
        "audience": f"tidemark/{namespace}/{pool}",
        "expirationSeconds": 3600,
    }
    return [
        {"name": "trust", "configMap": {"name": f"{pool}-trust"}},
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}},
    ]


def manifest(path: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))
    return loaded


def topic(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": name},
        "spec": spec,
    }


def now() -> datetime:
    return datetime.now(UTC)


ON_KUBERNETES = (
    pytest.mark.kubernetes,
    pytest.mark.skipif(
        os.environ.get("TIDEMARK_KUBERNETES") != "1",
        reason="no cluster asked for: ON=kind make test, or TIDEMARK_KUBERNETES=1",
    ),
)
