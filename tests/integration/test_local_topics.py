"""`tidemark topics create|describe|alter|delete` on a real cluster of this machine."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.local_cluster import LocalCluster, get_json, run_command, running
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running(tmp_path_factory.mktemp("topics")) as found:
        found.wait_until_in_sync()
        yield found


def topics(cluster: LocalCluster, *arguments: str) -> Any:
    done = run_command(cluster, "topics", *arguments, "-o", "json")
    return done.returncode, json.loads(done.stdout)


def names(cluster: LocalCluster) -> set[str]:
    return {topic["topic"] for topic in topics(cluster)[1]}


def is_unserved(cluster: LocalCluster, topic: str) -> bool:
    return all(topic not in get_json(f"{url}/topics")["topics"] for url in cluster.broker_urls)


def test_a_topic_is_made_changed_described_and_deleted_with_its_data(
    cluster: LocalCluster,
) -> None:
    code, made = topics(
        cluster, "create", "Web_Clicks", "--partitions", "2", "--config", "retention.ms=60000"
    )
    assert code == 0 and made["spec"]["topicName"] == "Web_Clicks"
    cluster.wait_until_in_sync("Web_Clicks")
    code, _ = topics(
        cluster, "alter", "Web_Clicks", "--partitions", "3", "--config", "segment.ms=1000"
    )
    assert code == 0
    code, _ = topics(cluster, "alter", "Web_Clicks", "--delete-config", "retention.ms")
    assert code == 0
    wait_for(
        "the third partition",
        lambda: len(topics(cluster, "describe", "Web_Clicks")[1]["partitions"]) == 3,
    )
    described = topics(cluster, "describe", made["metadata"]["name"])[1]
    assert described["object"]["spec"]["config"] == {"segment.ms": "1000"}
    code, deleted = topics(cluster, "delete", "Web_Clicks", "--with-data")
    assert (code, deleted["deletionPolicy"]) == (0, "Delete")
    wait_for("the topic to go", lambda: "Web_Clicks" not in names(cluster))


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("create", "a b"), "letters, digits"),
        (("create", "orders"), "Topic orders"),
        (("create", "odd", "--config", "retention.m=1"), "retention.ms"),
        (("create", "odd", "--config", "retention.ms"), "retention.ms"),
        (("alter", "orders"), "none of --config"),
        (("alter", "orders", "--partitions", "1"), "partitions cannot be lowered"),
        (("alter", "nobody", "--partitions", "1"), "'nobody' not found"),
        (("delete", "nobody"), "'nobody' not found"),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    cluster: LocalCluster, arguments: tuple[str, ...], words: str
) -> None:
    code, reported = topics(cluster, *arguments)
    assert code != 0
    assert words in reported["error"]["found"] and reported["error"]["toDo"]


def test_a_refused_new_topic_is_not_expected_to_be_there(cluster: LocalCluster) -> None:
    code, reported = topics(cluster, "create", "odd", "--partitions", "0")
    assert code == 1
    assert reported["error"]["message"].startswith("Topic 'odd' was rejected: spec.partitions")


def test_a_topic_whose_data_is_kept_says_so_to_who_produces(cluster: LocalCluster) -> None:
    topics(cluster, "create", "kept")
    cluster.wait_until_in_sync("kept")
    code, deleted = topics(cluster, "delete", "kept")
    assert (code, deleted["deletionPolicy"]) == (0, "Retain")
    wait_for("the topic to go", lambda: is_unserved(cluster, "kept"))
    done = run_command(cluster, "produce", "kept", "x", "-o", "json")
    assert done.returncode != 0
    assert "kept" in done.stdout and "apply" in done.stdout
