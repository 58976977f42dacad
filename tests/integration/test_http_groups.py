"""Consumer groups over HTTP against real broker processes: the bridge's paths, from end to end."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.group_members import members_of
from tests.support.local_cluster import LocalCluster, run_command, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster

OFFSETS_TOPIC = "__consumer_offsets"
JSON = "application/vnd.kafka.json.v2+json"
NO_DELAY = {"TIDEMARK_GROUP_INITIAL_REBALANCE_DELAY_MS": "100"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running(tmp_path_factory.mktemp("http-groups"), environment=NO_DELAY) as found:
        found.wait_until_in_sync()
        yield found


def call(method: str, url: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """(status, JSON of the answer, None without one)."""
    data = None if body is None else json.dumps(body).encode()
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    headers.setdefault("content-type", "application/vnd.kafka.v2+json")
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=40) as response:
            return response.status, json.loads(response.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


def try_to_produce(
    cluster: LocalCluster, name: str, count: int, *, broker: int
) -> list[str] | None:
    """None: some of them were not taken."""
    values = [f"{name}-{number}" for number in range(count)]
    records = [{"value": value, "partition": at % 3} for at, value in enumerate(values)]
    url = f"{cluster.broker_url(broker)}/topics/orders?acks=all"
    status, response = call("POST", url, {"records": records}, content_type=JSON)
    is_taken = status == 200 and all(entry.get("offset", -1) >= 0 for entry in response["offsets"])
    return values if is_taken else None


def produce(cluster: LocalCluster, name: str, count: int) -> list[str]:
    values = try_to_produce(cluster, name, count, broker=0)
    assert values is not None, f"{count} records {name} were not taken"
    return values


class HttpConsumer:
    def __init__(self, cluster: LocalCluster, broker: int, group: str, **settings: Any) -> None:
        body = {"format": "json", "auto.offset.reset": "earliest", **settings}
        status, made = call("POST", f"{cluster.broker_url(broker)}/consumers/{group}", body)
        assert status == 200, made
        self.uri: str = made["base_uri"]
        self.values: list[str] = []

    def post(self, path: str, body: Any = None) -> tuple[int, Any]:
        return call("POST", f"{self.uri}/{path}", body)

    def subscribe(self, *topics: str) -> None:
        assert self.post("subscription", {"topics": list(topics)}) == (204, None)

    def partitions(self) -> list[int]:
        status, found = call("GET", f"{self.uri}/subscription")
        assert status == 200
        return next((numbers for held in found["partitions"] for numbers in held.values()), [])

    def poll(self, timeout_ms: int = 1000, *, may_be_early: bool = False) -> list[Any]:
        """`may_be_early`: before its group has a coordinator, as any client may be; it goes on."""
        status, records = call("GET", f"{self.uri}/records?timeout={timeout_ms}", accept=JSON)
        if may_be_early and status == 503:
            return []
        assert status == 200, records
        self.values += [record["value"] for record in records]
        found: list[Any] = records
        return found

    def poll_until(self, wanted: list[str]) -> None:
        def has_all() -> bool:
            self.poll(may_be_early=True)
            return set(self.values) >= set(wanted)

        wait_for(f"{len(wanted)} records", has_all, seconds=30)

    def delete(self) -> None:
        assert call("DELETE", self.uri) == (204, None)


def test_a_consumer_reads_commits_ends_and_the_next_goes_on(cluster: LocalCluster) -> None:
    sent = produce(cluster, "first", 30)
    consumer = HttpConsumer(cluster, 1, "readers", **{"enable.auto.commit": False})
    consumer.subscribe("orders")
    consumer.poll_until(sent)
    assert sorted(consumer.values) == sorted(sent)
    assert consumer.post("offsets") == (204, None)
    consumer.delete()
    assert call("GET", f"{consumer.uri}/records")[0] == 404
    later = produce(cluster, "later", 6)
    second = HttpConsumer(cluster, 2, "readers")
    second.subscribe("orders")
    second.poll_until(later)
    assert sorted(second.values) == sorted(later)
    second.delete()


def test_consumers_at_different_brokers_share_a_group(cluster: LocalCluster) -> None:
    settings = {"auto.offset.reset": "latest"}
    members = [HttpConsumer(cluster, number, "sharing", **settings) for number in range(3)]
    for member in members:
        member.subscribe("orders")
    wait_for(
        "a partition for each",
        lambda: sorted(number for m in members for number in m.partitions()) == [0, 1, 2],
        seconds=30,
    )
    for member in members:  # positions at the end, before anything is sent
        assert member.poll(500) == []
    sent = produce(cluster, "shared", 30)

    def have_all() -> bool:
        for member in members:
            member.poll(300)
        return {value for member in members for value in member.values} >= set(sent)

    wait_for("all records", have_all, seconds=30)
    assert [len(member.values) for member in members] == [10, 10, 10]
    members[0].delete()
    wait_for(
        "its partition to go to another one",
        lambda: sorted(number for m in members[1:] for number in m.partitions()) == [0, 1, 2],
        seconds=30,
    )
    for member in members[1:]:
        member.delete()


def test_what_was_not_committed_is_read_again(cluster: LocalCluster) -> None:
    sent = produce(cluster, "again", 9)
    for _ in range(2):
        consumer = HttpConsumer(cluster, 0, "careful", **{"enable.auto.commit": False})
        consumer.subscribe("orders")
        consumer.poll_until(sent)
        consumer.delete()


def test_positions_and_offsets_by_hand(cluster: LocalCluster) -> None:
    sent = produce(cluster, "hand", 9)
    consumer = HttpConsumer(cluster, 0, "by-hand", **{"enable.auto.commit": False})
    place = {"topic": "orders", "partition": 1}
    assert consumer.post("assignments", {"partitions": [place]}) == (204, None)
    wanted = [value for at, value in enumerate(sent) if at % 3 == 1]
    consumer.poll_until(wanted)
    before = list(consumer.values)
    assert consumer.post("positions/beginning", {"partitions": [place]}) == (204, None)
    consumer.values.clear()
    consumer.poll_until(before)
    assert consumer.post("positions", {"offsets": [{**place, "offset": 1}]}) == (204, None)
    assert consumer.poll()[0]["offset"] == 1
    assert consumer.post("offsets", {"offsets": [{**place, "offset": 2}]}) == (204, None)
    assert consumer.post("positions/end", {"partitions": [place]}) == (204, None)
    assert consumer.poll(0) == []
    other = {"offsets": [{"topic": "orders", "partition": 2, "offset": 1}]}
    assert consumer.post("offsets", other)[0] == 409
    committed = call("GET", f"{consumer.uri}/offsets")
    assert committed == (200, {"offsets": [{**place, "offset": 2, "metadata": ""}]})
    assert call("GET", f"{consumer.uri}/assignments") == (200, {"partitions": [place]})
    consumer.delete()
    again = HttpConsumer(cluster, 1, "by-hand")
    assert again.post("assignments", {"partitions": [place]}) == (204, None)
    assert again.poll()[0]["offset"] == 2
    again.delete()


def test_the_command_shows_groups_their_members_and_their_lag(cluster: LocalCluster) -> None:
    consumer = HttpConsumer(cluster, 0, "shown", name="me", **{"enable.auto.commit": False})
    consumer.subscribe("orders")
    consumer.poll_until(produce(cluster, "lag", 3))
    assert consumer.post("offsets") == (204, None)
    produce(cluster, "more", 6)
    listed = run_command(cluster, "groups")
    assert listed.returncode == 0, listed.stderr
    assert ["shown", "Stable", "1", "orders", "6"] in [
        line.split()[:5] for line in listed.stdout.splitlines()
    ]
    one = json.loads(run_command(cluster, "groups", "shown", "-o", "json").stdout)
    assert [(o["partition"], o["lag"], o["member"]) for o in one["offsets"]] == [
        (number, 2, "me") for number in range(3)
    ]
    assert "me" in run_command(cluster, "groups", "shown").stdout
    assert run_command(cluster, "groups", "nobody").returncode == 1
    assert OFFSETS_TOPIC not in run_command(cluster, "status").stdout
    consumer.delete()


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("", {"auto.offset.reset": "sometimes"}, 400),
        ("", {"enable.auto.commmit": True}, 400),
        ("", {"name": "a/b"}, 400),
        ("/instances/nobody/subscription", {"topics": ["orders"]}, 404),
    ],
)
def test_what_cannot_be_done_is_refused(
    cluster: LocalCluster, path: str, body: Any, status: int
) -> None:
    found, problem = call("POST", f"{cluster.broker_url(0)}/consumers/refused{path}", body)
    assert (found, problem["status"]) == (status, status)


def test_a_consumer_that_cannot_join_says_why(cluster: LocalCluster) -> None:
    settings = {"partition.assignment.strategy": "roundrobin"}
    with members_of(cluster, "strangers", 1, **settings):
        consumer = HttpConsumer(cluster, 0, "strangers")
        consumer.subscribe("orders")
        status, problem = call("GET", f"{consumer.uri}/records?timeout=5000")
        assert (status, problem["error"]) == (409, "INCONSISTENT_GROUP_PROTOCOL")
        consumer.delete()


def test_two_consumers_of_one_name_and_a_poll_without_topics_are_conflicts(
    cluster: LocalCluster,
) -> None:
    consumer = HttpConsumer(cluster, 0, "twins", name="one")
    url = f"{cluster.broker_url(0)}/consumers/twins"
    assert call("POST", url, {"name": "one"})[0] == 409
    assert call("GET", f"{consumer.uri}/records")[0] == 409
    consumer.delete()


def test_the_group_goes_on_when_the_broker_of_one_consumer_is_killed(tmp_path: Any) -> None:
    with running(tmp_path, environment=NO_DELAY) as cluster:
        cluster.wait_until_in_sync()
        members = [HttpConsumer(cluster, number, "survivors") for number in range(2)]
        for member in members:
            member.subscribe("orders")
        wait_for(
            "a share for each",
            lambda: sorted(number for m in members for number in m.partitions()) == [0, 1, 2],
            seconds=30,
        )
        cluster.wait_until_in_sync("__consumer_offsets")
        cluster.kill(0)
        wait_for(
            "all partitions at the other one",
            lambda: members[1].partitions() == [0, 1, 2],
            seconds=60,
        )
        sent = wait_for(
            "leaders that take records",
            lambda: try_to_produce(cluster, "after", 9, broker=1),
            seconds=30,
        )
        members[1].poll_until(sent)
        members[1].delete()
