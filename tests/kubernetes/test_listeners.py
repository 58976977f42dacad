"""A client on the host, outside of the cluster, through the NodePorts of a listener."""

import json
import uuid
from collections.abc import Iterator
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.kubernetes.kube_cluster import ON_KUBERNETES, OPEN, KubeCluster, topic

pytestmark = [
    *ON_KUBERNETES,
    pytest.mark.timeout(300),
]

POOL = {
    "apiVersion": "tidemark.dev/v1alpha1",
    "kind": "BrokerPool",
    "metadata": {"name": "default"},
    "spec": {
        "replicas": 3,
        "storage": {"size": "1Gi"},
        "security": OPEN,
        "listeners": [
            {"name": "outside", "type": "NodePort"},
            {"name": "web", "type": "NodePort", "protocol": "HTTP", "port": 8081},
        ],
    },
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeCluster]:
    cluster = KubeCluster.of_rig(f"test-{uuid.uuid4().hex[:8]}")
    cluster.install_chart()
    cluster.make_namespace()
    cluster.apply(POOL)
    cluster.apply(topic("orders", partitions=3, replicationFactor=3))
    cluster.wait_ready("orders", timeout_s=120)
    yield cluster
    cluster.delete_namespace()


def bootstrap_of(cluster: KubeCluster, listener: str = "outside") -> str:
    """Once there is a way in."""

    def servers() -> str:
        listeners = cluster.must_get("bpool", "default").get("status", {}).get("listeners", [])
        return next((each["bootstrap"] for each in listeners if each["name"] == listener), "")

    cluster.until(lambda: bool(servers()), "the pool tells its bootstrap servers")
    return servers()


def test_a_client_on_the_host_writes_and_reads_through_node_ports(cluster: KubeCluster) -> None:
    bootstrap = bootstrap_of(cluster)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    cluster.until(
        lambda: len(admin.list_topics(timeout=10).brokers) == 3, "all brokers have an address"
    )
    hosts = {pod["status"]["hostIP"] for pod in cluster.items("pods")}
    reported = admin.list_topics(timeout=10).brokers.values()
    assert {broker.host for broker in reported} <= hosts
    assert len({broker.port for broker in reported}) == 3

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for partition in range(3):
        producer.produce("orders", value=b"%d" % partition, partition=partition)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "outside"})
    consumer.assign([TopicPartition("orders", number, 0) for number in range(3)])
    found = []
    while len(found) < 3:
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        found.append(message.value())
    consumer.close()
    assert sorted(found) == [b"0", b"1", b"2"]


def test_http_sends_a_client_on_the_host_to_leaders_at_node_ports(cluster: KubeCluster) -> None:
    first = bootstrap_of(cluster, "web").split(",")[0]

    def brokers() -> list[str]:
        with urlopen(f"http://{first}/brokers", timeout=10) as response:
            return [each["http_url"] for each in json.load(response)["brokers"]]

    cluster.until(lambda: len(brokers()) == 3, "all brokers have an address")
    cluster.until_in_sync("orders", timeout_s=90)
    hosts = {pod["status"]["hostIP"] for pod in cluster.items("pods")}
    assert {urlsplit(url).hostname for url in brokers()} <= hosts
    # At each of three partitions, of which at most one is led by the broker that is asked.
    for partition in range(3):
        with urlopen(
            f"http://{first}/topics/orders/partitions/{partition}/records?offset=0", timeout=30
        ) as response:
            assert response.status == 200
            assert f"http://{urlsplit(response.url).netloc}" in {f"http://{first}", *brokers()}


def test_the_way_in_survives_a_broker(cluster: KubeCluster) -> None:
    bootstrap = bootstrap_of(cluster)
    cluster.kubectl("delete", "pod", "default-0", "--grace-period=0", "--force")
    for _ in range(5):
        found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30)
        assert "orders" in found.topics
    cluster.until_in_sync("orders", timeout_s=90)


def test_a_listener_that_is_taken_away_takes_its_services_along(cluster: KubeCluster) -> None:
    patch = '{"spec": {"listeners": []}}'
    cluster.kubectl("patch", "bpool", "default", "--type=merge", "-p", patch)
    cluster.until(
        lambda: not cluster.items("services", "-l", "tidemark.dev/listener=outside"),
        "no Service of the listener is left",
    )
    cluster.until(
        lambda: cluster.must_get("bpool", "default")["status"].get("updatedBrokers") == 3,
        "brokers are replaced",
        timeout_s=120,
    )
