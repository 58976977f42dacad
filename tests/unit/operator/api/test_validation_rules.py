"""The rules of the CRDs in Python: their bounds, and which changes of an object they forbid."""

from typing import Any

import pytest
from tidemark_operator.api.validation_rules import (
    audit_change_faults,
    audit_faults,
    pool_change_faults,
    pool_faults,
    topic_change_faults,
    topic_faults,
    topic_name,
)

from tests.support.audit_objects import audit_object


def topic(name: str = "orders", **spec: Any) -> dict[str, Any]:
    known = {
        "partitions": 2,
        "replicationFactor": 2,
        "brokerPool": "default",
        "commitRule": "MinInsync",
        "flush": "Os",
    }
    return {"metadata": {"name": name}, "spec": known | spec}


def pool(name: str = "default", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"storage": {"size": "1Gi"}} | spec}


def listener(name: str, port: int = 9094) -> dict[str, Any]:
    return {"name": name, "port": port}


def audit(name: str = "daily", **spec: Any) -> dict[str, Any]:
    item = audit_object(**{"engine": "Spark"} | spec)
    item["metadata"]["name"] = name
    return item


def placed(*replicas: list[int], first: int = 0) -> list[dict[str, Any]]:
    return [{"partition": first + n, "replicas": each} for n, each in enumerate(replicas)]


@pytest.mark.parametrize(
    ("placement", "sentence"),
    [
        ([], None),
        (placed([0, 1], [1, 0]), None),
        (placed([0, 1], first=2), "placement names a partition that does not exist"),
        (placed([0]), "placement must list replicationFactor brokers for each partition"),
        (placed([0, 1]) * 2, "placement names a partition twice"),
        (placed([1, 1]), "placement names a broker twice for one partition"),
    ],
)
def test_a_placement_names_each_partition_and_broker_once(
    placement: list[dict[str, Any]], sentence: str | None
) -> None:
    found = list(topic_faults(topic(placement=placement)))
    assert found == ([] if sentence is None else [sentence])


@pytest.mark.parametrize(
    ("item", "count"),
    [
        (topic("t" * 200), 0),
        (topic("t" * 201), 1),
        (topic(topicName="."), 1),
        (topic(topicName="..."), 0),
    ],
)
def test_names_of_topics_have_bounds(item: dict[str, Any], count: int) -> None:
    assert len(list(topic_faults(item))) == count


def test_a_topic_may_grow_and_keep_its_name_in_either_spelling() -> None:
    old = topic()
    assert topic_name(old) == "orders"
    assert list(topic_change_faults(topic(topicName="orders", partitions=3), old)) == []
    renamed = topic(topicName="other", partitions=1, flush="Always")
    assert [sentence.split()[0] for sentence in topic_change_faults(renamed, old)] == (
        ["topicName", "partitions", "flush"]
    )


@pytest.mark.parametrize(
    ("item", "count"),
    [
        (pool("p" * 50), 0),
        (pool("p" * 51), 1),
        (pool("1st"), 1),
        (pool("end-"), 1),
        (pool("p" * 50, listeners=[listener("ab")]), 0),
        (pool("p" * 50, listeners=[listener("abc")]), 1),
        (pool(listeners=[listener("a"), listener("b")]), 1),
        (pool(listeners=[listener("a"), listener("a", 9095)]), 1),
        (pool(listeners=[listener("http")]), 1),
        (pool(listeners=[listener("a", 8080)]), 1),
        (pool(quotas=[{"clientId": "a", "requestPercentage": 1}]), 0),
        (pool(quotas=[{"clientId": "a"}]), 1),
    ],
)
def test_names_listeners_and_quotas_of_pools_have_bounds(item: dict[str, Any], count: int) -> None:
    assert len(list(pool_faults(item))) == count


def test_of_a_pool_only_the_storage_never_changes() -> None:
    old = pool(replicas=3)
    assert list(pool_change_faults(pool(replicas=1), old)) == []
    assert len(list(pool_change_faults(pool(storage={"size": "2Gi"}), old))) == 1


def secured(mode: str, authentication: str) -> dict[str, Any]:
    return pool(security={"tls": {"mode": mode}, "authentication": authentication})


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        (secured("Disabled", "none"), secured("Optional", "optional"), []),
        (secured("Optional", "optional"), secured("Required", "kubernetes"), []),
        (secured("Required", "kubernetes"), secured("Optional", "optional"), []),
        (secured("Disabled", "none"), secured("Required", "none"), ["spec.security.tls.mode"]),
        (secured("Required", "none"), secured("Disabled", "none"), ["spec.security.tls.mode"]),
        (
            secured("Disabled", "none"),
            secured("Disabled", "kubernetes"),
            ["spec.security.authentication"],
        ),
        (
            secured("Required", "kubernetes"),
            secured("Disabled", "none"),
            ["spec.security.tls.mode", "spec.security.authentication"],
        ),
        # The operator compares with the status, and sets what is absent.
        (secured("Disabled", "none"), pool(), []),
        (pool(), secured("Required", "kubernetes"), []),
    ],
)
def test_security_of_a_pool_changes_step_by_step(
    old: dict[str, Any], new: dict[str, Any], fields: list[str]
) -> None:
    assert [sentence.split()[0] for sentence in pool_change_faults(new, old)] == fields


@pytest.mark.parametrize(
    ("security", "more", "count"),
    [
        ({}, {"port": 9091}, 0),
        ({"tls": {"mode": "Disabled"}, "authentication": "none"}, {"port": 9091}, 0),
        ({"tls": {"mode": "Optional"}}, {"port": 9091}, 1),
        ({"authentication": "optional"}, {"port": 9091}, 1),
        ({"authentication": "kubernetes"}, {"protocol": "HTTP", "authentication": "none"}, 1),
        ({"authentication": "kubernetes"}, {"protocol": "HTTP", "authentication": "optional"}, 1),
        ({"authentication": "kubernetes"}, {"protocol": "Kafka", "authentication": "none"}, 0),
        ({"authentication": "optional"}, {"protocol": "HTTP", "authentication": "none"}, 0),
    ],
)
def test_listeners_fit_the_security_of_their_pool(
    security: dict[str, Any], more: dict[str, Any], count: int
) -> None:
    item = pool(security=security, listeners=[listener("a") | more])
    assert len(list(pool_faults(item))) == count


def test_an_audit_has_one_source_and_a_shorter_name_with_spark() -> None:
    both = {"prometheus": {"url": "http://p"}, "files": {"claimName": "c", "path": "p"}}
    cases = {
        0: [audit("1" * 52), audit("a" * 43, spark={}), audit("a", spark={})],
        1: [
            audit("a" * 53),
            audit(source={}),
            audit(source=both),
            audit("a" * 44, spark={}),
            audit("1", spark={}),
            audit(spark={}, engine="Local"),
        ],
    }
    for count, items in cases.items():
        assert [len(list(audit_faults(item))) for item in items] == [count] * len(items)
    assert list(audit_change_faults(audit(engine="Local"), audit())) == []
