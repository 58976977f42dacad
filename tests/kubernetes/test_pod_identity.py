"""Who may speak to the controller of a real cluster: its brokers, each for itself, and no others.

The first two attacks were measured before there were identities: one POST took a broker's place,
another had topics deleted.
"""

import json
import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.kubernetes.kube_cluster import (
    LOAD_IMAGE,
    ON_KUBERNETES,
    OPERATOR_NAMESPACE,
    KubeCluster,
    manifest,
)

log = logging.getLogger(__name__)

pytestmark = [*ON_KUBERNETES, pytest.mark.timeout(300)]

POOL = "default"
OPERATORS = f"tidemark-operator.{OPERATOR_NAMESPACE}.svc"
CONTROLLER_PORT, HEALTH_PORT, PEOPLE_PORT = 8070, 8080, 8081
AUDIENCE = "tidemark-controller"
TOKEN_FILE = "/var/run/secrets/tidemark/token"
# Sends a request to each operator and prints what they answer: [[address, status, body], ...].
SEND = """
import json, socket, sys, urllib.error, urllib.request
host, port, method, path, body, token = sys.argv[1:]
if token.startswith("/"):
    token = open(token).read().strip()
headers = {"Content-Type": "application/json"}
if token:
    headers["Authorization"] = "Bearer " + token
answers = []
for address in sorted({info[4][0] for info in socket.getaddrinfo(host, int(port))}):
    url = f"http://{address}:{port}{path}"
    request = urllib.request.Request(url, body.encode() or None, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            answers.append([address, response.status, response.read().decode()])
    except urllib.error.HTTPError as error:
        answers.append([address, error.code, error.read().decode()])
    except OSError as error:
        answers.append([address, 0, str(error)])
print(json.dumps(answers))
"""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: str


class Sender:
    """A pod that sends requests to the operators."""

    def __init__(self, cluster: KubeCluster, pod: str) -> None:
        self._cluster = cluster
        self._pod = pod

    def start(self, *, account: str = "default") -> None:
        """A pod with a token of its own for the controller, of that ServiceAccount."""
        security = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "runAsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        token = {"path": "token", "audience": AUDIENCE, "expirationSeconds": 3600}
        spec = {
            "serviceAccountName": account,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"fsGroup": 10001},
            "containers": [
                {
                    "name": "sender",
                    "image": LOAD_IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sleep", "3600"],
                    "securityContext": security,
                    "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/tidemark"}],
                }
            ],
            "volumes": [
                {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}}
            ],
        }
        metadata = {"name": self._pod, "namespace": self._cluster.namespace}
        self._cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        self._cluster.kubectl(
            "wait", "--for=condition=Ready", f"pod/{self._pod}", "--timeout=60s", timeout_s=70
        )

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str = "",
        port: int = CONTROLLER_PORT,
    ) -> list[Answer]:
        """What each operator answers; `token` may be a file in the pod."""
        text = "" if body is None else json.dumps(body)
        out = self._cluster.kubectl(
            *("exec", self._pod, "--", "python3", "-c", SEND),
            *(OPERATORS, str(port), method, path, text, token),
        )
        answers = [Answer(status, body) for _, status, body in json.loads(out)]
        assert answers, f"no address of {OPERATORS}"
        return answers

    def statuses(self, *request: Any, **more: Any) -> set[int]:
        return {answer.status for answer in self.send(*request, **more)}


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeCluster]:
    cluster = KubeCluster.of_rig(f"test-{uuid.uuid4().hex[:8]}")
    cluster.install_chart()
    cluster.make_namespace()
    cluster.apply(manifest("examples/orders.yaml"))
    cluster.wait_ready("orders", timeout_s=90)
    cluster.until_in_sync("orders")
    yield cluster
    cluster.delete_namespace()


@pytest.fixture(scope="module")
def stranger(cluster: KubeCluster) -> Iterator[Sender]:
    """A pod of another namespace."""
    elsewhere = KubeCluster(cluster.environment, f"{cluster.namespace}-else")
    elsewhere.make_namespace()
    sender = Sender(elsewhere, "stranger")
    sender.start()
    yield sender
    elsewhere.delete_namespace()


@pytest.fixture(scope="module")
def neighbour(cluster: KubeCluster) -> Sender:
    """A pod beside the brokers, with their ServiceAccount."""
    sender = Sender(cluster, "neighbour")
    sender.start()
    return sender


def registration(cluster: KubeCluster, broker_id: int) -> dict[str, Any]:
    return {
        "pool": f"{cluster.namespace}/{POOL}",
        "broker_id": broker_id,
        "cluster_id": "",
        "incarnation": "forged",
        "endpoints": {
            "host": "10.0.0.1",
            "kafka_port": 9092,
            "http_port": 8080,
            "advertised_http_url": "http://10.0.0.1:8080",
        },
        "rack": "",
        "storage": {"directory_id": "forged"},
        "clean_stop_epoch": -1,
        "highest_controller_epoch": -1,
        "highest_broker_epoch": -1,
        "highest_producer_id": -1,
    }


def deletion(cluster: KubeCluster) -> dict[str, Any]:
    epoch = cluster.broker_epoch(0)
    return {
        "broker": {
            "pool": f"{cluster.namespace}/{POOL}",
            "broker_id": 0,
            "broker_epoch": epoch,
        },
        "request_id": "forged",
        "topics": [{"topic": "orders"}],
    }


def lives(cluster: KubeCluster) -> list[tuple[int, str, int]]:
    """Epoch, pod and restarts of each broker: what a successful attack changes."""
    found = []
    for number in range(3):
        pod = cluster.must_get("pod", f"{POOL}-{number}")
        (status,) = pod["status"]["containerStatuses"]
        epoch = cluster.broker_epoch(number)
        found.append((epoch, pod["metadata"]["uid"], status["restartCount"]))
    return found


def test_a_stranger_cannot_take_a_brokers_place(cluster: KubeCluster, stranger: Sender) -> None:
    cluster.until_preferred_lead("orders-0")
    leader, before = cluster.leader_of("orders-0"), lives(cluster)
    forged = registration(cluster, leader)
    assert stranger.statuses("POST", "/v1/register", forged) == {401}
    assert stranger.statuses("POST", "/v1/register", forged, token=TOKEN_FILE) == {403}
    assert (cluster.leader_of("orders-0"), lives(cluster)) == (leader, before)
    cluster.until_in_sync("orders")


def test_a_stranger_cannot_have_topics_deleted(cluster: KubeCluster, stranger: Sender) -> None:
    uid = cluster.must_get("topic", "orders")["metadata"]["uid"]
    forged = deletion(cluster)
    assert stranger.statuses("POST", "/v1/delete-topics", forged) == {401}
    assert stranger.statuses("POST", "/v1/delete-topics", forged, token=TOKEN_FILE) == {403}
    assert cluster.must_get("topic", "orders")["metadata"]["uid"] == uid


def test_the_brokers_service_account_makes_no_broker(
    cluster: KubeCluster, neighbour: Sender
) -> None:
    """A token of another pod, and one of no pod, of the account that the brokers have."""
    forged = registration(cluster, 1)
    (said, *_) = neighbour.send("POST", "/v1/register", forged, token=TOKEN_FILE)
    assert (said.status, "is no broker that this operator made" in said.body) == (403, True)
    token = cluster.kubectl("create", "token", "default", f"--audience={AUDIENCE}").strip()
    (said, *_) = neighbour.send("POST", "/v1/register", forged, token=token)
    assert (said.status, "is not bound to a pod" in said.body) == (403, True)
    token = cluster.kubectl("create", "token", "default").strip()
    (said, *_) = neighbour.send("POST", "/v1/register", forged, token=token)
    assert (said.status, "for another audience" in said.body) == (401, True)


def test_a_broker_cannot_speak_as_another(cluster: KubeCluster) -> None:
    before = lives(cluster)
    broker = Sender(cluster, f"{POOL}-0")
    for forged in (
        registration(cluster, 1),
        registration(cluster, 0) | {"pool": f"{cluster.namespace}/other"},
        registration(cluster, 0) | {"pool": f"other/{POOL}"},
    ):
        (said, *_) = broker.send("POST", "/v1/register", forged, token=TOKEN_FILE)
        assert (said.status, "a broker speaks for itself only" in said.body) == (403, True)
    # By the address of the pod neither: it has sent its token.
    assert 200 not in broker.statuses("POST", "/v1/register", registration(cluster, 0))
    assert lives(cluster) == before


def test_a_token_ends_with_its_pod(cluster: KubeCluster, neighbour: Sender) -> None:
    pod = f"{POOL}-2"
    token = cluster.kubectl("exec", pod, "--", "cat", TOKEN_FILE).strip()
    epoch = cluster.broker_epoch(2)
    stolen = {"pool": f"{cluster.namespace}/{POOL}", "broker_id": 2, "broker_epoch": epoch}
    path = "/v1/allocate-producer-ids"
    assert neighbour.statuses("POST", path, stolen, token=token) == {200}
    cluster.kubectl("delete", "pod", pod, "--grace-period=0", "--force")
    seconds = cluster.until(
        lambda: 200 not in neighbour.statuses("POST", path, stolen, token=token),
        "the token is of no use any more",
    )
    log.info(f"a deleted pod's token is rejected after {seconds:.1f} s")
    cluster.until_back(2, epoch, "orders")
    assert 200 not in neighbour.statuses("POST", path, stolen, token=token)


def test_people_read_by_their_permissions(cluster: KubeCluster, neighbour: Sender) -> None:
    path = f"/v1/events?pool={cluster.namespace}/{POOL}"
    for port in (CONTROLLER_PORT, HEALTH_PORT):
        assert neighbour.statuses("GET", "/v1/status", port=port) == {401}
    reads = {"token": TOKEN_FILE, "port": CONTROLLER_PORT}
    assert neighbour.statuses("GET", path, **reads) == {403}
    cluster.kubectl(
        *("create", "role", "reader", "--verb=get", "--resource=brokerpools.tidemark.dev")
    )
    account = f"--serviceaccount={cluster.namespace}:default"
    cluster.kubectl("create", "rolebinding", "reader", "--role=reader", account)
    cluster.until(
        lambda: 200 in neighbour.statuses("GET", path, **reads),
        "the role is effective",
        timeout_s=45,
    )
    assert neighbour.statuses("GET", "/v1/status", **reads) == {403}  # of all pools
    cluster.kubectl("delete", "rolebinding", "reader")
    seconds = cluster.until(
        lambda: neighbour.statuses("GET", path, **reads) == {403}, "it is revoked", timeout_s=45
    )
    log.info(f"a revoked permission is effective after {seconds:.1f} s")


def test_probes_and_metrics_are_open_and_the_port_for_people_is_not_on_the_network(
    neighbour: Sender,
) -> None:
    for path in ("/healthz", "/readyz", "/metrics"):
        assert neighbour.statuses("GET", path, port=HEALTH_PORT) == {200}
    assert neighbour.statuses("GET", "/v1/pools", port=PEOPLE_PORT) == {0}


def test_each_operator_serves_people_who_come_by_kubectl(cluster: KubeCluster) -> None:
    """One on standby forwards to the leader, with its own token."""
    operators = KubeCluster(cluster.environment, OPERATOR_NAMESPACE)
    script = (
        "import urllib.request as u;"
        f"print(u.urlopen('http://127.0.0.1:{PEOPLE_PORT}/v1/pools', timeout=10).read().decode())"
    )
    pods = operators.items("pods", "-l", "app.kubernetes.io/component=operator")
    running = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    assert len(running) == 2
    for pod in running:
        out = operators.kubectl("exec", pod["metadata"]["name"], "--", "python3", "-c", script)
        assert f"{cluster.namespace}/{POOL}" in json.loads(out)["pools"]


def test_rejections_are_logged_without_tokens(cluster: KubeCluster, stranger: Sender) -> None:
    stranger.send("POST", "/v1/register", registration(cluster, 0), token=TOKEN_FILE)
    operators = KubeCluster(cluster.environment, OPERATOR_NAMESPACE)
    selector = "--selector=app.kubernetes.io/component=operator"
    text = operators.kubectl("logs", selector, "--tail=-1", "--prefix=false")
    lines = [json.loads(line) for line in text.splitlines() if '"request rejected"' in line]
    reasons = {line["reason"] for line in lines}
    assert reasons >= {"NoToken", "NotABroker", "InvalidToken", "OtherBroker", "NoPermission"}
    assert "eyJ" not in text  # how a JSON Web Token begins
