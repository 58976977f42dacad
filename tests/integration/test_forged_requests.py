"""Local mode closed: a forged broker, and changes by whom cannot read the secret, are rejected."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_cluster import LocalCluster, get_json, run_command, running

pytestmark = pytest.mark.cluster

VICTIM = 1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running(tmp_path_factory.mktemp("closed")) as started:
        started.wait_until_in_sync()
        yield started


def send(
    cluster: LocalCluster, method: str, path: str, body: object, token: str = ""
) -> tuple[int, str]:
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(
        cluster.controller_url + path, json.dumps(body).encode(), headers, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def registration(cluster: LocalCluster) -> dict[str, object]:
    """As a process would send it that takes the victim's place."""
    return {
        "pool": "default/default",
        "broker_id": VICTIM,
        "cluster_id": "",
        "incarnation": "forged",
        "endpoints": {
            "host": "127.0.0.1",
            "kafka_port": 1,
            "http_port": 2,
            "advertised_http_url": "http://127.0.0.1:2",
        },
        "rack": "",
        "storage": {"directory_id": "forged"},
        "clean_stop_epoch": -1,
        "highest_controller_epoch": -1,
        "highest_broker_epoch": -1,
        "highest_producer_id": -1,
    }


def events(cluster: LocalCluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = get_json(cluster.controller_url + "/v1/events")["events"]
    return found


def identity(cluster: LocalCluster) -> dict[str, object]:
    """The victim as the controller shows it, but its disk, which changes as others write."""
    shown = cluster.broker(VICTIM)
    return {name: value for name, value in shown.items() if not name.startswith("disk")}


def test_a_forged_registration_costs_the_true_broker_nothing(cluster: LocalCluster) -> None:
    before, newest = identity(cluster), events(cluster)[-1]["number"]
    other = cluster.token_file(0).read_text()
    for token, status, said in (
        ("", 401, "a token is needed"),
        (other, 403, "a broker speaks for itself only"),
        (other.replace(":0.", f":{VICTIM}."), 401, "the token was not made of"),
    ):
        found, problem = send(cluster, "POST", "/v1/register", registration(cluster), token)
        assert (found, said in problem) == (status, True), problem
    # The true broker still speaks: records are in sync with it.
    done = run_command(cluster, "produce", "orders", "kept", "-p", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert identity(cluster) == before
    assert all(len(cluster.partition(number)["isr"]) == 3 for number in range(3))
    # Leaders may move back to preferred replicas at any time, but for no other reason.
    new = [event["kind"] for event in events(cluster) if event["number"] > newest]
    assert set(new) <= {"LeaderElected"}
    log = (cluster.data_dir / "logs" / "operator.log").read_text()
    lines = [json.loads(line) for line in log.splitlines() if '"request rejected"' in line]
    assert {line["reason"] for line in lines} == {"NoToken", "OtherBroker", "InvalidToken"}
    assert other not in log


def test_topics_are_changed_by_brokers_and_by_the_user_only(cluster: LocalCluster) -> None:
    delete = {
        "broker": {"pool": "default/default", "broker_id": 0, "broker_epoch": 1},
        "request_id": "forged",
        "topics": [{"topic": "orders"}],
    }
    assert send(cluster, "POST", "/v1/delete-topics", delete)[0] == 401
    assert send(cluster, "DELETE", "/v1/topics/orders", None)[0] == 401
    assert send(cluster, "PATCH", "/v1/topics/orders", {"spec": {"partitions": 9}})[0] == 401
    token = cluster.token_file(0).read_text()
    assert send(cluster, "DELETE", "/v1/topics/orders", None, token)[0] == 403
    assert cluster.partition(0)["leader"] >= 0
    done = run_command(cluster, "topics", "create", "mine")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_secret_of_another_user_is_told(cluster: LocalCluster) -> None:
    secret: Path = cluster.data_dir / "controller.secret"
    secret.chmod(0o644)
    try:
        done = run_command(cluster, "topics", "create", "others")
    finally:
        secret.chmod(0o600)
    assert done.returncode != 0
    assert "accepts changes of another user only" in done.stdout + done.stderr
