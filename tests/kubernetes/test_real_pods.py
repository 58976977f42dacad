"""Tidemark on a real cluster, real pods: from one manifest to a verdict under load.

Set-up is `make test`'s: a kind cluster with our images. All in one namespace that admits only
restricted pods, with the pool `default`, which the first Topic brings.
"""

import json
import logging
import time
import urllib.request
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urljoin

import pytest
from tidemark_operator.api.schemas import apply_defaults, validate

from tests.kubernetes.kube_cluster import ON_KUBERNETES, OPEN, KubeCluster, manifest, now, topic

log = logging.getLogger(__name__)

pytestmark = [
    *ON_KUBERNETES,
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeCluster]:
    cluster = KubeCluster.of_rig(f"test-{uuid.uuid4().hex[:8]}")
    cluster.install_chart()
    cluster.make_namespace()
    yield cluster
    cluster.delete_namespace()


@pytest.fixture(scope="module")
def orders(cluster: KubeCluster) -> float:
    """The example, applied to an empty namespace; seconds until it was Ready."""
    cluster.apply(manifest("examples/orders.yaml"))
    return cluster.wait_ready("orders", timeout_s=90)


def test_one_manifest_on_an_empty_namespace_becomes_ready(
    cluster: KubeCluster, orders: float
) -> None:
    log.info(f"Ready on an empty namespace after {orders:.1f} s")
    assert orders < 60
    cluster.until_in_sync("orders")

    def says_so() -> bool:
        status = cluster.must_get("topic", "orders")["status"]
        return (status["inSync"], status["leaderless"]) == ("9/9", 0)

    cluster.until(says_so, "the Topic says so too", timeout_s=10)
    for kind in ("pvc", "pslice"):
        assert all("ownerReferences" not in each["metadata"] for each in cluster.items(kind))  # S4
    pods = cluster.items("pods")
    assert {pod["metadata"]["ownerReferences"][0]["kind"] for pod in pods} == {"BrokerPool"}
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 3


def test_a_topic_on_running_brokers_is_ready_at_once(cluster: KubeCluster, orders: float) -> None:
    cluster.apply(topic("fast", partitions=3))
    seconds = cluster.wait_ready("fast", timeout_s=20)
    log.info(f"Ready on a running pool after {seconds:.2f} s")
    assert seconds < 5


def test_an_idle_cluster_writes_nothing(cluster: KubeCluster, orders: float) -> None:
    cluster.until_in_sync("orders")
    cluster.until_preferred_lead("orders-0")
    cluster.until(lambda: cluster.writes(now() - timedelta(seconds=5)) == {}, "5 s without a write")
    since = now()
    time.sleep(60)
    assert cluster.writes(since) == {}


REFUSED: tuple[dict[str, Any], ...] = (
    {"config": {"min.insync.replica": "2"}},
    {"config": {"minInsyncReplicas": "2"}},
    {"config": {"segment.size": "2"}},
    {"config": {"min.insync.replicas": "4"}},
    {"config": {"min.insync.replicas": "two"}},
    {"config": {"segment.bytes": "10"}},
    {"config": {"replica.lag.time.max.ms": "1"}},
    {"config": {"max.message.bytes": "99999999"}},
    {"config": {"retention.ms": "soon"}},
    {"config": {"cleanup.policy": "shred"}},
    {"config": {"unclean.leader.election.enable": "perhaps"}},
    {"topicName": ".."},
)


@pytest.mark.parametrize("spec", REFUSED, ids=str)
def test_the_api_server_refuses_with_the_mirrors_sentence(
    cluster: KubeCluster, orders: float, spec: dict[str, Any]
) -> None:
    (sentence,) = validate(topic("refused", **spec))
    assert sentence in cluster.rejection(topic("refused", **spec))


def test_an_unknown_config_far_from_all_names_is_refused_with_the_list(
    cluster: KubeCluster, orders: float
) -> None:
    rejection = cluster.rejection(topic("refused", config={"colour": "blue"}))
    assert 'unknown config "colour"; known names are cleanup.policy, ' in rejection


CHANGES: tuple[dict[str, Any], ...] = (
    {"partitions": 2},
    {"brokerPool": "other"},
    {"commitRule": "Isr"},
    {"flush": "Always"},
    {"topicName": "other"},
)


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_what_cannot_change_is_refused_with_the_mirrors_sentence(
    cluster: KubeCluster, orders: float, change: dict[str, Any]
) -> None:
    example = manifest("examples/orders.yaml")
    changed = {**example, "spec": {**example["spec"], **change}}
    (sentence,) = validate(changed, apply_defaults(example))
    assert sentence in cluster.rejection(changed)


def test_schema_errors_are_refused_by_both(cluster: KubeCluster, orders: float) -> None:
    for spec in ({"partitions": 0}, {"topicName": "a b"}, {"flush": "Never"}, {"replicas": 3}):
        assert validate(topic("refused", **spec)) != []
        assert cluster.rejection(topic("refused", **spec)) != ""


def test_fewer_brokers_than_replication_factor_is_a_condition(
    cluster: KubeCluster, orders: float
) -> None:
    cluster.apply(topic("wide", replicationFactor=5))
    cluster.until(lambda: bool(cluster.condition("topic", "wide")["reason"]), "a condition")
    condition = cluster.condition("topic", "wide")
    assert (condition["status"], condition["reason"]) == ("False", "NotEnoughBrokers")
    assert "set its spec.replicas to at least 5" in condition["message"]
    cluster.kubectl("delete", "topic", "wide")


def test_a_missing_pool_is_a_condition(cluster: KubeCluster, orders: float) -> None:
    cluster.apply(topic("poolless", brokerPool="elsewhere"))
    cluster.until(lambda: bool(cluster.condition("topic", "poolless")["reason"]), "a condition")
    assert cluster.condition("topic", "poolless")["reason"] == "BrokerPoolNotFound"
    cluster.kubectl("delete", "topic", "poolless")


def test_a_record_is_kept_while_its_pod_is_replaced(cluster: KubeCluster, orders: float) -> None:
    cluster.until_preferred_lead("orders-0")
    leader = cluster.leader_of("orders-0")
    body = {"records": [{"value": "kept"}]}
    response = cluster.broker_http(leader, "/topics/orders/partitions/0?acks=all", body)
    offset = response["offsets"][0]["offset"]
    pod, claim = f"default-{leader}", f"data-default-{leader}"
    before = cluster.must_get("pod", pod)["metadata"]["uid"]
    claim_before = cluster.must_get("pvc", claim)["metadata"]["uid"]
    cluster.kubectl("delete", "pod", pod, "--grace-period=0", "--force")

    def is_replaced() -> bool:
        found = cluster.get("pod", pod)
        return found is not None and found["metadata"]["uid"] != before

    log.info(f"a pod of its name again after {cluster.until(is_replaced, 'a new pod'):.2f} s")
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=30s")
    log.info(f"in sync again after {cluster.until_in_sync('orders'):.1f} s")
    assert cluster.must_get("pvc", claim)["metadata"]["uid"] == claim_before
    cluster.until_preferred_lead("orders-0")
    leader = cluster.leader_of("orders-0")
    path = f"/topics/orders/partitions/0/records?offset={offset}"
    assert cluster.broker_http(leader, path)[0]["value"] == "kept"


def test_kill_9_of_a_leader_under_load_loses_nothing(cluster: KubeCluster, orders: float) -> None:
    with cluster.load("orders", "kill") as load:
        leader = cluster.leader_of("orders-0")
        epoch = cluster.broker_epoch(leader)
        cluster.kill_broker(leader)
        log.info(f"in sync again after {cluster.until_back(leader, epoch, 'orders'):.1f} s")
        load.clean_verdict()


def test_a_kill_is_told_by_events_and_explained_by_why(cluster: KubeCluster, orders: float) -> None:
    leader = cluster.leader_of("orders-0")
    epoch = cluster.broker_epoch(leader)
    cluster.kill_broker(leader)
    cluster.until_back(leader, epoch, "orders")
    why = json.loads(cluster.tidemark("why", "orders", "0", "-o", "json"))
    sentences = [event["sentence"] for event in why["events"]]
    assert any(f"broker {leader} passed over: fenced" in each for each in sentences), sentences
    assert why["leader"] == cluster.leader_of("orders-0")
    assert {each["kind"] for each in why["events"]} >= {"LeaderElected", "IsrExpanded"}

    def are_stored() -> bool:
        found = {
            (event["involvedObject"]["kind"], event["involvedObject"]["name"], event["reason"])
            for event in cluster.items("events")
        }
        wanted = {
            ("Topic", "orders", "LeaderElected"),
            ("Broker", f"default-{leader}", "BrokerFenced"),
        }
        return wanted <= found

    cluster.until(are_stored, "the Events of topic and broker", timeout_s=10)


def test_the_live_page_comes_through_kubectl(cluster: KubeCluster, orders: float) -> None:
    with cluster.started_tidemark("ui", "--no-browser") as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), url
        with urllib.request.urlopen(url, timeout=10) as page:
            assert "text/html" in page.headers["Content-Type"]
        with urllib.request.urlopen(urljoin(url, "/v1/pools"), timeout=10) as answer:
            assert f"{cluster.namespace}/default" in json.load(answer)["pools"]


def test_forced_deletion_of_a_leader_under_load_loses_nothing(
    cluster: KubeCluster, orders: float
) -> None:
    with cluster.load("orders", "force") as load:
        leader = cluster.leader_of("orders-0")
        epoch = cluster.broker_epoch(leader)
        pod = f"default-{leader}"
        cluster.kubectl("delete", "pod", pod, "--grace-period=0", "--force", "--wait=false")
        log.info(f"in sync again after {cluster.until_back(leader, epoch, 'orders'):.1f} s")
        load.clean_verdict()


def test_the_leading_operator_killed_under_load_stops_no_write(
    cluster: KubeCluster, orders: float
) -> None:
    epochs = [cluster.broker_epoch(broker_id) for broker_id in range(3)]
    with cluster.load("orders", "operator") as load:
        previous = cluster.leading_operator()
        cluster.delete_operator(previous)
        seconds = cluster.until(
            lambda: cluster.leading_operator() not in ("", previous), "another operator leads"
        )
        log.info(f"another operator leads after {seconds:.1f} s")
        load.goes_on()
        report = load.clean_verdict()
    # No broker registered again and every request was answered. Two processors that pods start on
    # stall a write for half a second; a leader that had stopped would stall it for seconds.
    assert [cluster.broker_epoch(broker_id) for broker_id in range(3)] == epochs
    assert report.verdict.unknown == 0
    assert report.write_gap_ms < 1000


def test_rolling_deletion_of_all_brokers_under_load_loses_nothing(
    cluster: KubeCluster, orders: float
) -> None:
    with cluster.load("orders", "roll") as load:
        for broker_id in range(3):
            epoch = cluster.broker_epoch(broker_id)
            started = time.monotonic()
            cluster.kubectl("delete", "pod", f"default-{broker_id}")
            stopped = time.monotonic() - started
            waited = cluster.until_back(broker_id, epoch, "orders")
            log.info(f"stopped within {stopped:.1f} s, in sync again after {waited:.1f} s")
        load.clean_verdict()


def test_a_changed_pod_template_rolls_the_pool_under_load_and_loses_nothing(
    cluster: KubeCluster, orders: float
) -> None:
    cluster.until_in_sync("orders")

    def pods() -> set[str]:
        brokers = cluster.items("pods", "--selector=app.kubernetes.io/component=broker")
        return {each["metadata"]["uid"] for each in brokers}

    before = pods()

    def is_rolled() -> bool:
        present = pods()
        updated = cluster.condition("bpool", "default", "Updated").get("status") == "True"
        return updated and len(present) == 3 and not present & before

    with cluster.load("orders", "template") as load:
        change = {"spec": {"podTemplate": {"annotations": {"example.com/round": "2"}}}}
        cluster.kubectl(
            "patch", "bpool", "default", "--type=merge", f"--patch={json.dumps(change)}"
        )
        log.info(
            f"rolled after {cluster.until(is_rolled, 'the pool is rolled', timeout_s=90):.1f} s"
        )
        cluster.until_in_sync("orders")
        load.clean_verdict()


def test_replicas_stand_on_distinct_racks(cluster: KubeCluster, orders: float) -> None:
    """Racks are labels of nodes; the brokers of pool `racked` learn theirs from the operator."""
    cluster.apply(
        {
            "apiVersion": "tidemark.dev/v1alpha1",
            "kind": "BrokerPool",
            "metadata": {"name": "racked", "namespace": cluster.namespace},
            "spec": {"replicas": 3, "rackKey": "kubernetes.io/hostname", "security": OPEN},
        }
    )
    cluster.apply(topic("spread", brokerPool="racked", replicationFactor=2, partitions=3))
    cluster.wait_ready("spread", timeout_s=60)
    racks = {
        number: cluster.must_get("bkr", f"racked-{number}")["status"]["rack"] for number in range(3)
    }
    assert all(rack.startswith("tidemark-worker") for rack in racks.values())
    if len(set(racks.values())) > 1:
        for each in cluster.must_get("pslice", "spread-0")["partitions"]:
            assert len({racks[broker_id] for broker_id in each["replicas"]}) == 2


def test_a_pool_shrinks_when_its_brokers_hold_nothing_any_more(
    cluster: KubeCluster, orders: float
) -> None:
    """Of pool `racked`: replicas leave broker 2, then its pod goes; its claim stays."""
    with cluster.load("spread", "shrink", pool="racked") as load:
        cluster.kubectl("scale", "bpool", "racked", "--replicas=2")
        cluster.until(
            lambda: cluster.get("pod", "racked-2") is None, "broker 2 is gone", timeout_s=60
        )
        cluster.until_in_sync("spread")
        load.clean_verdict()
    for each in cluster.must_get("pslice", "spread-0")["partitions"]:
        assert sorted(each["replicas"]) == [0, 1]
    cluster.until(
        lambda: cluster.must_get("bkr", "racked-2")["status"]["state"] == "Gone", "it is Gone"
    )
    assert cluster.get("pvc", "data-racked-2") is not None


def test_raising_the_replication_factor_copies_under_load(
    cluster: KubeCluster, orders: float
) -> None:
    cluster.apply(topic("copies", replicationFactor=2, partitions=2))
    cluster.wait_ready("copies")
    with cluster.load("copies", "copies") as load:
        cluster.apply(topic("copies", replicationFactor=3, partitions=2))

        def is_copied() -> bool:
            partitions = cluster.must_get("pslice", "copies-0")["partitions"]
            return all(len(each["isr"]) == 3 and not each.get("adding") for each in partitions)

        cluster.until(is_copied, "each partition has three replicas in sync")
        load.clean_verdict()
    cluster.kubectl("delete", "topic", "copies")


def test_a_retained_topic_comes_back_with_its_records(cluster: KubeCluster, orders: float) -> None:
    cluster.apply(topic("ledger"))
    cluster.wait_ready("ledger", timeout_s=20)
    body = {"records": [{"value": "kept"}]}
    cluster.broker_http(cluster.leader_of("ledger-0"), "/topics/ledger/partitions/0?acks=all", body)
    topic_id = cluster.must_get("topic", "ledger")["status"]["topicId"]
    cluster.kubectl("delete", "topic", "ledger")
    cluster.until(lambda: cluster.must_get("pslice", "ledger-0")["retained"], "it is retained")
    cluster.apply(topic("ledger"))
    cluster.wait_ready("ledger", timeout_s=20)
    assert cluster.must_get("topic", "ledger")["status"]["topicId"] == topic_id
    path = "/topics/ledger/partitions/0/records?offset=0"
    cluster.until_preferred_lead("ledger-0")
    assert cluster.broker_http(cluster.leader_of("ledger-0"), path)[0]["value"] == "kept"


def test_deletion_policy_delete_removes_slices_and_makes_room(
    cluster: KubeCluster, orders: float
) -> None:
    cluster.apply(topic("scratch", deletionPolicy="Delete"))
    cluster.wait_ready("scratch", timeout_s=20)
    topic_id = cluster.must_get("topic", "scratch")["status"]["topicId"]
    cluster.kubectl("delete", "topic", "scratch")
    cluster.until(lambda: cluster.get("pslice", "scratch-0") is None, "its slice is gone")
    cluster.apply(topic("scratch", deletionPolicy="Delete"))
    cluster.wait_ready("scratch", timeout_s=20)
    assert cluster.must_get("topic", "scratch")["status"]["topicId"] != topic_id


def test_a_deleted_pool_keeps_its_claims(cluster: KubeCluster, orders: float) -> None:
    """Last: it takes the brokers away."""
    cluster.kubectl("delete", "brokerpool", "default", "racked")
    cluster.until(lambda: not cluster.items("pods", "-l", "tidemark.dev/pool"), "the pods are gone")
    assert len(cluster.items("pvc")) == 6
    assert cluster.items("pslice") != []
