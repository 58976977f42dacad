"""What a pool retains of deleted topics: which replicas, and how a condition names them."""

from dataclasses import replace

from tidemark_operator.controller.core.views import TopicView
from tidemark_operator.reconcile.retained_data import (
    retained_condition,
    retained_count,
    retained_replicas,
    retained_text,
    shortened,
)

from tests.support.controller_values import partition
from tests.unit.operator.reconcile.placement_values import WHOLE, ids, spec_of, view_of


def retained(name: str) -> TopicView:
    """Partition 0 on brokers 0, 1 and 2, partition 1 on broker 1."""
    second = replace(partition("1@2", replicas=(1,)), partition=1)
    view = view_of(spec_of(partitions=2), WHOLE, second)
    return replace(view, topic=replace(view.topic, topic=name), is_retained=True)


def test_only_replicas_of_retained_data_count() -> None:
    served = replace(retained("payments"), is_retained=False)
    found = retained_replicas([retained("orders"), served])
    zero, one, two = ids(0, 1, 2)
    assert found == {zero: {"orders": [0]}, one: {"orders": [0, 1]}, two: {"orders": [0]}}
    assert (retained_count(found[one]), retained_count({})) == (2, 0)


def test_topics_and_partitions_are_named_in_order_and_names_have_an_end() -> None:
    kept = {"payments": [0], "orders": [4, 0, 1]}
    assert retained_text(kept) == "orders (partitions 0, 1, 4), payments (partitions 0)"
    many = retained_text({f"t{number}": [0] for number in range(7)})
    assert many.endswith("t4 (partitions 0) and 2 more topics")
    assert retained_text({}) == ""


def test_a_condition_names_the_topics_that_the_namespace_would_take_with_it() -> None:
    assert list(retained_condition([replace(retained("orders"), is_retained=False)])) == []
    (one,) = retained_condition([retained("orders")])
    assert (one.type, one.is_true) == ("DataRetained", True)
    assert one.message.startswith("data of 1 deleted topic is retained (orders): ")
    (two,) = retained_condition([retained("payments"), retained("orders")])
    assert two.message.startswith("data of 2 deleted topics is retained (orders, payments): ")


def test_a_list_is_shortened_only_beyond_its_limit() -> None:
    assert shortened(["a", "b"], 2) == "a, b"
    assert shortened(["a", "b", "c"], 2) == "a, b and 1 more"
    assert shortened([], 2) == ""
