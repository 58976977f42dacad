"""Names of topics are Kafka's, and each has names for its object that Kubernetes takes."""

import re

import pytest
from tidemark_protocol.topic_names import (
    MAX_OBJECT_NAME,
    MAX_SLUG,
    MAX_TOPIC_NAME,
    object_names,
    topic_name_fault,
)

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@pytest.mark.parametrize(
    "topic", ["a", "A.b_c-9", "...", "__consumer_offsets", "-", "x" * MAX_TOPIC_NAME]
)
def test_names_that_kafka_takes_have_no_fault(topic: str) -> None:
    assert topic_name_fault(topic) == ""


@pytest.mark.parametrize(
    "topic", ["", ".", "..", "a b", "a/b", "\u00e9", "a\n", "x" * (MAX_TOPIC_NAME + 1)]
)
def test_other_names_have_a_fault_that_shows_them(topic: str) -> None:
    fault = topic_name_fault(topic)
    assert fault.startswith(f"topic {topic[:MAX_TOPIC_NAME]!r}: expected 1 to 249 letters")


@pytest.mark.parametrize("topic", ["orders", "a", "9", "a.b-c", "x" * MAX_OBJECT_NAME])
def test_object_has_the_topics_name_where_it_can(topic: str) -> None:
    plain, derived = object_names("shop/default", topic)
    assert plain == topic
    assert derived.startswith(topic[:MAX_SLUG].replace(".", "-") + "-")


@pytest.mark.parametrize(
    ("topic", "slug"),
    [
        ("Orders_EU", "orders-eu"),
        ("__consumer_offsets", "consumer-offsets"),
        ("a..b", "a-b"),
        ("-a-", "a"),
        ("a.", "a"),
        ("___", "topic"),
        ("X" * MAX_TOPIC_NAME, "x" * MAX_SLUG),
        ("x" * (MAX_OBJECT_NAME + 1), "x" * MAX_SLUG),
    ],
)
def test_other_topics_have_a_derived_name_alone(topic: str, slug: str) -> None:
    (name,) = object_names("shop/default", topic)
    assert re.fullmatch(re.escape(slug) + "-[0-9a-f]{8}", name)
    assert SUBDOMAIN.fullmatch(name) and len(name) <= MAX_OBJECT_NAME


def test_derived_names_differ_by_spelling_and_by_pool_and_never_change() -> None:
    names = [object_names(pool, topic)[-1] for pool in ("a/b", "a/c") for topic in ("T_1", "t-1")]
    assert len(set(names)) == 4
    assert object_names("a/b", "T_1") == ("t-1-d53e8f2b",)
