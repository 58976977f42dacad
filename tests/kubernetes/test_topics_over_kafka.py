"""Topics made over Kafka on a real cluster: kubectl sees them, and they are as good as its own."""

import json
import uuid
from collections.abc import Iterator
from importlib import import_module
from inspect import getsource
from pkgutil import iter_modules
from typing import Any

import pytest
from tidemark_broker.kafka_wire import messages

from tests.kubernetes.kube_cluster import ON_KUBERNETES, KubeCluster, topic

pytestmark = [
    *ON_KUBERNETES,
]

# Runs in a broker's pod: the images have no Kafka client, but the codecs of all its APIs.
ASK = """
import json, socket, sys
from importlib import import_module
module, table, version, values = sys.argv[1:5]
api = getattr(import_module(module), table)
values = json.loads(values)
with socket.create_connection(("127.0.0.1", 9092), timeout=60) as connection:
    connection.sendall(api.encode_request(1, int(version), "kind", values))
    stream = connection.makefile("rb")
    frame = stream.read(int.from_bytes(stream.read(4), "big"))
print(json.dumps(api.decode_response(frame, int(version))[1]))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeCluster]:
    cluster = KubeCluster.of_rig(f"test-{uuid.uuid4().hex[:8]}")
    cluster.install_chart()
    cluster.make_namespace()
    cluster.apply(topic("orders", partitions=3))
    cluster.wait_ready("orders", timeout_s=120)
    cluster.until_in_sync("orders")  # Ready is led: the broker that is asked here may still start
    yield cluster
    cluster.delete_namespace()


def module_of(table: str) -> str:
    """Return the module of the Kafka messages that defines an API's table."""
    names = [f"{messages.__name__}.{found.name}" for found in iter_modules(messages.__path__)]
    (module,) = [name for name in names if defines(name, table)]
    return module


def defines(module: str, table: str) -> bool:
    source = getsource(import_module(module))
    return any(line.startswith((f"{table} =", f"{table}:")) for line in source.splitlines())


def ask(cluster: KubeCluster, api: str, version: int, **values: Any) -> dict[str, Any]:
    table = f"{api.upper()}_API"
    reported = cluster.kubectl(
        *("exec", "default-0", "--", "python3", "-c", ASK),
        *(module_of(table), table, str(version), json.dumps(values)),
        timeout_s=90,
    )
    response: dict[str, Any] = json.loads(reported)
    return response


def create(cluster: KubeCluster, name: str, **more: Any) -> dict[str, Any]:
    new = {
        "topic": name,
        "partition_count": 2,
        "replication_factor": 3,
        "assignments": [],
        "configs": [],
        **more,
    }
    values = {"topics": [new], "timeout_ms": 60_000, "validate_only": False}
    (response,) = ask(cluster, "create_topics", 7, **values)["topics"]
    found: dict[str, Any] = response
    return found


def test_kubectl_sees_a_topic_made_over_kafka_and_its_deletion(cluster: KubeCluster) -> None:
    made = create(cluster, "Made_Over_Kafka", configs=[{"name": "retention.ms", "value": "60000"}])
    assert (made["error"], made["partition_count"]) == (0, 2), made
    listed = json.loads(cluster.kubectl("get", "topics", "-o", "json"))["items"]
    (item,) = [each for each in listed if each["spec"].get("topicName") == "Made_Over_Kafka"]
    assert item["metadata"]["uid"] == made["topic_id"]
    assert item["spec"]["config"] == {"retention.ms": "60000"}
    cluster.wait_ready(item["metadata"]["name"], timeout_s=30)
    to_delete = {"topic": "Made_Over_Kafka", "topic_id": "00000000-0000-0000-0000-000000000000"}
    (gone,) = ask(cluster, "delete_topics", 6, topics=[to_delete], timeout_ms=60_000)["topics"]
    assert gone["error"] == 0, gone
    assert cluster.get("topic", item["metadata"]["name"]) is None


def test_a_config_changed_over_kafka_is_in_the_object(cluster: KubeCluster) -> None:
    change = {"name": "segment.ms", "operation": 0, "value": "120000"}
    resource = {"resource_type": 2, "resource": "orders", "configs": [change]}
    (response,) = ask(
        cluster, "incremental_alter_configs", 1, resources=[resource], validate_only=False
    )["resources"]
    assert response["error"] == 0, response
    assert cluster.must_get("topic", "orders")["spec"]["config"] == {"segment.ms": "120000"}


def test_what_an_admission_policy_refuses_is_a_policy_violation(cluster: KubeCluster) -> None:
    """A quota of the namespace is one that every API server has."""
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "topics", "namespace": cluster.namespace},
            "spec": {"hard": {"count/topics.tidemark.dev": "1"}},
        }
    )
    cluster.until(
        lambda: bool(cluster.must_get("resourcequota", "topics").get("status", {}).get("used")),
        "the quota counts",
    )
    refused = create(cluster, "one-too-many")
    cluster.kubectl("delete", "resourcequota", "topics")
    assert refused["error"] == 44 and "quota" in refused["error_message"], refused


def test_what_helm_keeps_is_changed_there(cluster: KubeCluster) -> None:
    cluster.kubectl("label", "topic", "orders", "app.kubernetes.io/managed-by=Helm")
    grown = {"topic": "orders", "partition_count": 4, "assignments": None}
    (response,) = ask(
        cluster, "create_partitions", 3, topics=[grown], timeout_ms=30_000, validate_only=False
    )["topics"]
    cluster.kubectl("label", "topic", "orders", "app.kubernetes.io/managed-by-")
    assert response["error"] == 44 and "Helm" in response["error_message"], response
