"""Real broker processes under `tidemark dev`: kills, stops, restarts, strangers on the volumes."""

import json
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_cluster import LocalCluster, get_json, run_command, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running(tmp_path_factory.mktemp("local")) as started:
        started.wait_until_in_sync()
        yield started


def start_workload(cluster: LocalCluster, out: Path, until: Path) -> subprocess.Popen[bytes]:
    load = subprocess.Popen(
        [
            *(sys.executable, "-m", "tidemark_cli.main", "load", "orders"),
            *("--server", ",".join(cluster.broker_urls[:1])),
            *("--out", str(out), "--until-file", str(until), "--seconds", "60"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(
        "the first acknowledgements",
        lambda: out.exists() and out.read_bytes().count(b"acknowledged") > 60,
    )
    return load


def verdict(cluster: LocalCluster, out: Path) -> dict[str, Any]:
    result = run_command(cluster, "verify", "--load", str(out), "-o", "json")
    report: dict[str, Any] = json.loads(result.stdout)
    return report


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["kill -9", "SIGTERM"])
def test_a_leader_that_falls_under_load_loses_and_doubles_nothing(
    cluster: LocalCluster, tmp_path: Path, how: signal.Signals
) -> None:
    cluster.wait_until_in_sync()
    out, until = tmp_path / "events.ndjson", tmp_path / "enough"
    load = start_workload(cluster, out, until)
    before = cluster.partition(0)

    cluster.kill(before["leader"], how)

    wait_for("another leader", lambda: cluster.partition(0)["leader"] not in (before["leader"], -1))
    cluster.wait_until_in_sync()
    until.touch()
    assert load.wait(timeout=30) == 0
    report = verdict(cluster, out)
    assert report["verdict"]["lost"] == 0
    assert report["verdict"]["duplicated"] == 0
    assert report["verdict"]["acknowledged"] > 100
    assert cluster.partition(0)["leaderEpoch"] > before["leaderEpoch"]


def test_a_follower_that_falls_leaves_the_in_sync_set_and_comes_back_in_a_new_life(
    cluster: LocalCluster,
) -> None:
    cluster.wait_until_in_sync()
    before = cluster.partition(0)
    follower = next(broker for broker in before["replicas"] if broker != before["leader"])
    epoch = cluster.broker(follower)["brokerEpoch"]

    cluster.kill(follower)

    wait_for("a new life", lambda: cluster.broker(follower)["brokerEpoch"] > epoch)
    cluster.wait_until_in_sync()
    assert cluster.partition(0)["leader"] == before["leader"]


def test_a_second_cluster_on_the_same_directory_is_refused(cluster: LocalCluster) -> None:
    second = subprocess.run(
        [
            *(sys.executable, "-m", "tidemark_cli.main", "dev"),
            *("--data-dir", str(cluster.data_dir), "--controller-port", "17999"),
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert second.returncode != 0
    assert "in use by another process" in second.stdout + second.stderr


def test_a_manifest_that_breaks_a_rule_is_refused_with_a_sentence(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    manifest = tmp_path / "bad.yaml"
    manifest.write_text(
        "apiVersion: tidemark.dev/v1alpha1\nkind: Topic\nmetadata: {name: bad}\n"
        "spec: {replicationFactor: 3, config: {min.insync.replica: '2'}}\n"
    )
    result = run_command(cluster, "apply", "-f", str(manifest))
    assert result.returncode != 0
    assert "min.insync.replicas" in result.stdout + result.stderr  # the nearest known name


def test_more_replicas_than_brokers_says_which_number_to_change(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    manifest = tmp_path / "wide.yaml"
    manifest.write_text(
        "apiVersion: tidemark.dev/v1alpha1\nkind: Topic\nmetadata: {name: wide}\n"
        "spec: {replicationFactor: 5}\n"
    )
    assert run_command(cluster, "apply", "-f", str(manifest)).returncode == 0

    def condition() -> str | None:
        topics = run_command(cluster, "topics", "-o", "json")
        return topics.stdout if "wide" not in topics.stdout or "5" in topics.stdout else None

    assert wait_for("the topic to be seen", condition) is not None


def test_produce_and_consume_from_the_command_line(cluster: LocalCluster) -> None:
    cluster.wait_until_in_sync()
    assert run_command(cluster, "produce", "orders", "-p", "1", "hello").returncode == 0
    consumed = run_command(
        cluster, "consume", "orders", "-p", "1", "--from", "earliest", "--max", "1"
    )
    assert consumed.returncode == 0
    assert consumed.stdout


def test_errors_over_http_are_problems_with_kafkas_names(cluster: LocalCluster) -> None:
    with pytest.raises(urllib.error.HTTPError) as raised:
        get_json(cluster.broker_url(0) + "/topics/nowhere/partitions/0/offsets")
    assert raised.value.code == 404
    problem = json.loads(raised.value.read())
    assert problem["error"] == "UNKNOWN_TOPIC_OR_PARTITION"


def produce_one(cluster: LocalCluster, partition: int, value: str) -> int:
    leader = cluster.partition(partition)["leader"]
    request = urllib.request.Request(
        f"{cluster.broker_url(leader)}/topics/orders/partitions/{partition}?acks=all",
        data=json.dumps({"records": [{"value": value}]}).encode(),
        headers={"Content-Type": "application/vnd.kafka.json.v2+json"},
        method="POST",
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        offset: int = json.loads(response.read())["offsets"][0]["offset"]
    return offset


def values(cluster: LocalCluster, partition: int) -> list[Any]:
    leader = cluster.partition(partition)["leader"]
    url = f"{cluster.broker_url(leader)}/topics/orders/partitions/{partition}/records?offset=0"
    request = urllib.request.Request(url, headers={"Accept": "application/vnd.kafka.json.v2+json"})
    with urllib.request.urlopen(request, timeout=10) as response:
        return [record["value"] for record in json.loads(response.read())]


def test_a_second_start_finds_its_data(tmp_path: Path) -> None:
    with running(tmp_path / "twice") as cluster:
        cluster.wait_until_in_sync()
        offset = produce_one(cluster, 0, "kept")
        epoch = cluster.partition(0)["leaderEpoch"]
        assert cluster.stop() == 0
        cluster.start()
        cluster.wait_until_in_sync()
        assert values(cluster, 0)[offset] == "kept"
        assert cluster.partition(0)["leaderEpoch"] > epoch


def test_all_brokers_killed_at_once_come_back_with_every_record(tmp_path: Path) -> None:
    with running(tmp_path / "all") as cluster:
        cluster.wait_until_in_sync()
        offset = produce_one(cluster, 2, "kept")
        epochs = {number: cluster.broker(number)["brokerEpoch"] for number in range(3)}
        for number in range(3):
            cluster.kill(number)
        for number in range(3):
            wait_for(
                f"a new life of broker {number}",
                lambda number=number: cluster.broker(number)["brokerEpoch"] > epochs[number],
            )
        cluster.wait_until_in_sync()
        assert values(cluster, 2)[offset] == "kept"


def test_an_emptied_volume_under_a_known_id_is_filled_again_and_leads_nothing_before(
    tmp_path: Path,
) -> None:
    with running(tmp_path / "empty") as cluster:
        cluster.wait_until_in_sync()
        offset = produce_one(cluster, 0, "kept")
        victim = cluster.partition(0)["leader"]
        volume = next(cluster.data_dir.glob(f"brokers/*/{victim}"))
        assert cluster.stop() == 0
        shutil.rmtree(volume)
        cluster.start()
        cluster.wait_until_in_sync()
        assert values(cluster, 0)[offset] == "kept"
        digests = [
            get_json(
                f"{cluster.broker_url(number)}/topics/orders/partitions/0/replica"
                f"?to_offset={offset + 1}"
            )["sha256"]
            for number in range(3)
        ]
        assert len(set(digests)) == 1


def test_a_volume_of_another_broker_is_refused_with_what_was_found(tmp_path: Path) -> None:
    with running(tmp_path / "foreign") as cluster:
        cluster.wait_until_in_sync()
        assert cluster.stop() == 0
        brokers = next(cluster.data_dir.glob("brokers/*"))
        (brokers / "0").rename(brokers / "away")
        shutil.copytree(brokers / "1", brokers / "0")
        cluster.start()
        wait_for("the refusal", lambda: "foreign" in cluster.log_text().lower(), seconds=20)
        wait_for("two of three in sync", lambda: cluster.partition(0)["leader"] in (1, 2))
