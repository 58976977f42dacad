"""Two processes that both take themselves for one broker: on one volume, or after a long sleep."""

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tidemark_chaos.environments.processes import PortRange

from tests.support.local_cluster import LocalCluster, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster

JSON = "application/vnd.kafka.json.v2+json"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running(tmp_path_factory.mktemp("lives")) as started:
        started.wait_until_in_sync()
        yield started


@pytest.fixture
def second_port() -> Iterator[int]:
    with PortRange(2) as ports:
        yield ports.first


def post(url: str, value: str, *, timeout_ms: int = 5000) -> tuple[int, Any]:
    """Without following anybody: what this broker itself says."""

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    request = urllib.request.Request(
        f"{url}?acks=all&timeout_ms={timeout_ms}",
        data=json.dumps({"records": [{"value": value}]}).encode(),
        headers={"Content-Type": JSON},
        method="POST",
    )
    try:
        with urllib.request.build_opener(NoRedirect).open(request, timeout=20) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def values(cluster: LocalCluster, broker_id: int) -> list[Any]:
    url = f"{cluster.broker_url(broker_id)}/topics/orders/partitions/0/records?offset=0"
    request = urllib.request.Request(url, headers={"Accept": JSON})
    with urllib.request.urlopen(request, timeout=10) as response:
        return [record["value"] for record in json.loads(response.read())]


def test_a_frozen_leader_that_wakes_after_its_successor_was_elected_acknowledges_nothing(
    cluster: LocalCluster,
) -> None:
    """What was sent to it in its sleep is answered, but nothing of it counts (S2, I11)."""
    cluster.wait_until_in_sync()
    before = cluster.partition(0)
    old = before["leader"]
    path = "/topics/orders/partitions/0"
    responses: list[tuple[int, Any]] = []
    pid = cluster.kill(old, signal.SIGSTOP)
    try:
        late = threading.Thread(
            target=lambda: responses.append(post(cluster.broker_url(old) + path, "late"))
        )
        late.start()
        wait_for("another leader", lambda: cluster.partition(0)["leader"] not in (old, -1))
        successor = cluster.partition(0)["leader"]
        status, _ = post(cluster.broker_url(successor) + path, "in time")
        assert status == 200
    finally:
        os.kill(pid, signal.SIGCONT)
    late.join(timeout=30)
    [(status, response)] = responses
    assert status != 200, response
    cluster.wait_until_in_sync()
    found = values(cluster, cluster.partition(0)["leader"])
    assert found.count("in time") == 1
    if response.get("outcome") == "not_written":
        assert "late" not in found
    assert found.count("late") <= 1


def start_second(
    cluster: LocalCluster, broker_id: int, port: int, log: Path
) -> subprocess.Popen[bytes]:
    """As Kubernetes does after a forced deletion: the same broker, while the first one lives."""
    with log.open("ab") as log_file:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "tidemark_broker.main"),
                *("--broker-id", str(broker_id), "--pool", "default/default"),
                *("--data-dir", str(cluster.data_dir / "brokers/default.default" / str(broker_id))),
                *("--host", "127.0.0.1", "--http-port", str(port), "--kafka-port", str(port + 1)),
                *("--controllers", cluster.controller_url.removeprefix("http://")),
                *("--controller-token-file", str(cluster.token_file(broker_id))),
            ],
            stdout=log_file,
            stderr=log_file,
        )


def readiness(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as response:
            reason = json.loads(response.read())["reason"]
    except urllib.error.HTTPError as error:
        reason = json.loads(error.read())["reason"]
    return str(reason)


def test_a_second_process_on_the_volume_waits_until_the_first_is_gone(
    cluster: LocalCluster, second_port: int, tmp_path: Path
) -> None:  # I17
    cluster.wait_until_in_sync()
    broker_id = cluster.partition(0)["leader"]
    url = cluster.broker_url(broker_id) + "/topics/orders/partitions/0"
    assert post(url, "kept")[0] == 200
    epoch = cluster.broker(broker_id)["brokerEpoch"]
    second = start_second(cluster, broker_id, second_port, tmp_path / "second.log")
    try:
        wait_for("it to wait", lambda: "LogDirectoryLocked" in readiness(second_port))
        assert cluster.broker(broker_id)["brokerEpoch"] == epoch
        assert post(url, "still served")[0] == 200

        cluster.kill(broker_id)

        # It, or the successor that local mode starts, has the directory now; never both.
        wait_for("a new life", lambda: cluster.broker(broker_id)["brokerEpoch"] > epoch)
        cluster.wait_until_in_sync()
        assert second.poll() is None
    finally:
        second.kill()
        second.wait()
    taken = cluster.broker(broker_id)["brokerEpoch"]
    if cluster.broker(broker_id)["httpPort"] == second_port:  # then the one that waited takes over
        wait_for("a third life", lambda: cluster.broker(broker_id)["brokerEpoch"] > taken)
    cluster.wait_until_in_sync()
    found = values(cluster, cluster.partition(0)["leader"])
    assert (found.count("kept"), found.count("still served")) == (1, 1)
