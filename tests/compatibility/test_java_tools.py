"""Apache Kafka's tools of administrators, but kafka-topics and kafka-configs: test_admin.py."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.compatibility.client_programs import ClientPrograms
from tests.compatibility.programs.java_program import java
from tests.support.kafka_cluster import Sending, bootstrap, librdkafka_settings
from tests.support.local_cluster import LocalCluster
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster
GROUPS = "consumer.group.ConsumerGroupCommand"


class Tools:
    def __init__(self, programs: ClientPrograms, cluster: LocalCluster) -> None:
        os.environ["TIDEMARK_KAFKA_JARS"] = programs.kafka_jars
        self._where = ["--bootstrap-server", ",".join(bootstrap(cluster))]

    def __call__(self, tool: str, *options: str) -> str:
        done = self.run(tool, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, tool: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = java(tool, *self._where, *options)
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def tools(programs: ClientPrograms, cluster: LocalCluster) -> Tools:
    sending = Sending(cluster)
    for partition in range(3):
        sending.send([b"%d" % number for number in range(10)], topic="tools", partition=partition)
    sending.flush()
    assert sending.failed == []
    return Tools(programs, cluster)


def test_broker_api_versions(tools: Tools, cluster: LocalCluster) -> None:
    found = tools("BrokerApiVersionsCommand")
    assert found.count(" -> (") == 3
    assert "Produce(0): 0 to 13 [usable: 13]" in found
    assert "JoinGroup(11): 0 to 9 [usable: 9]" in found


def test_quorum_and_producers(tools: Tools) -> None:
    status = tools("MetadataQuorumCommand", "describe", "--status")
    assert "LeaderId:               3000" in status and "MaxFollowerLag:         0" in status
    producers = tools(
        "TransactionsCommand", "describe-producers", "--topic", "tools", "--partition", "0"
    )
    tools("ConfigCommand", "--describe", "--entity-type", "groups", "--entity-name", "some")
    assert producers.split()[:3] == ["ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch"]


def test_get_offsets(tools: Tools) -> None:
    ends = tools("GetOffsetShell", "--topic", "tools", "--time", "latest")
    assert ends.split() == ["tools:0:10", "tools:1:10", "tools:2:10"]
    with_greatest_time = tools("GetOffsetShell", "--topic", "tools", "--time", "max-timestamp")
    assert with_greatest_time.count("tools:") == 3


def test_consumer_groups(tools: Tools, cluster: LocalCluster) -> None:
    consumer = Consumer(librdkafka_settings(cluster, **{"group.id": "of-tools"}))
    places = [TopicPartition("tools", number, 7) for number in range(3)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()
    assert offsets_and_lags(tools) == [(7, 3)] * 3
    back = ["--reset-offsets", "--to-earliest", "--topic", "tools", "--execute"]
    tools(GROUPS, "--group", "of-tools", *back)
    assert offsets_and_lags(tools) == [(0, 10)] * 3
    tools(GROUPS, "--delete", "--group", "of-tools")
    assert "of-tools" not in tools(GROUPS, "--list").split()


def offsets_and_lags(tools: Tools) -> list[tuple[int, int]]:
    lines = tools(GROUPS, "--describe", "--group", "of-tools").splitlines()
    rows = [line.split() for line in lines if line.startswith("of-tools")]
    return [(int(row[3]), int(row[5])) for row in rows]


def test_log_dirs(tools: Tools) -> None:
    *_, line = tools("LogDirsCommand", "--describe", "--topic-list", "tools").splitlines()
    brokers = json.loads(line)["brokers"]
    assert sorted(broker["broker"] for broker in brokers) == [0, 1, 2]
    found = {one["partition"] for broker in brokers for one in broker["logDirs"][0]["partitions"]}
    assert found == {"tools-0", "tools-1", "tools-2"}


def test_reassignment_and_preferred_leaders(
    tools: Tools, cluster: LocalCluster, tmp_path: Path
) -> None:
    """No broker is spare, so the order changes: another one is preferred then."""
    replicas = cluster.partition(0, "tools")["replicas"]
    wanted = [*replicas[1:], replicas[0]]
    plan = tmp_path / "plan.json"
    moves = [{"topic": "tools", "partition": 0, "replicas": wanted}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    file = ["--reassignment-json-file", str(plan)]
    tools("reassign.ReassignPartitionsCommand", *file, "--execute")
    done = "is completed"
    wait_for(
        "the reassignment",
        lambda: done in tools("reassign.ReassignPartitionsCommand", *file, "--verify"),
        seconds=40,
    )
    assert cluster.partition(0, "tools")["replicas"] == wanted
    where = ["--topic", "tools", "--partition", "0"]
    tools("LeaderElectionCommand", "--election-type", "PREFERRED", *where)
    assert cluster.partition(0, "tools")["leader"] == wanted[0]


def test_delete_records(tools: Tools, tmp_path: Path) -> None:
    plan = tmp_path / "offsets.json"
    places = [{"topic": "tools", "partition": 1, "offset": 4}]
    plan.write_text(json.dumps({"version": 1, "partitions": places}))
    assert "low_watermark: 4" in tools("DeleteRecordsCommand", "--offset-json-file", str(plan))
    beginnings = tools("GetOffsetShell", "--topic", "tools", "--time", "earliest")
    assert "tools:1:4" in beginnings.split()


def test_quotas_of_clients_are_the_pools(tools: Tools) -> None:
    whose = ["--entity-type", "clients", "--entity-name", "import"]
    assert "byte_rate" not in tools("ConfigCommand", "--describe", *whose)
    altered = tools.run("ConfigCommand", "--alter", "--add-config", "producer_byte_rate=9", *whose)
    assert altered.returncode != 0
    assert "spec.quotas of the BrokerPool" in altered.stdout + altered.stderr
