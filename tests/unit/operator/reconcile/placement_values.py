"""Short ways to write Topics, what is seen of them, and where their replicas may be."""

from dataclasses import replace
from typing import Any

from tidemark_operator.api.objects import ObjectMetadata
from tidemark_operator.api.topic import Topic, TopicSpec
from tidemark_operator.controller.core.views import TopicView
from tidemark_operator.reconcile.topic.plan import ObservedTopic
from tidemark_operator.reconcile.topic.plan_placement import BrokerPlacement
from tidemark_protocol.ids import BrokerId, TopicId

from tests.support.api_objects import parsed
from tests.support.controller_values import partition, topic

TOPIC_ID = TopicId("7f1c0000-0000-0000-0000-000000000001")


WHOLE = partition("0@1 1@2 2@3", leader="0@1")


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def manifest(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": "orders", "namespace": "shop", "uid": TOPIC_ID},
        "spec": spec,
    }


def spec_of(**spec: Any) -> TopicSpec:
    return parsed(Topic, manifest(**spec)).spec


def view_of(spec: TopicSpec, *states: Any, factor: int = 3) -> TopicView:
    stored = replace(
        topic(), config=spec.config, replication_factor=factor, partition_count=spec.partitions
    )
    return TopicView(stored, states, "orders", "Retain", is_retained=False)


def places(count: int, *leaving: int, away: tuple[int, ...] = ()) -> BrokerPlacement:
    usable = tuple(b for b in ids(*range(count)) if b not in leaving)
    active = frozenset(b for b in ids(*range(count)) if b not in away)
    return BrokerPlacement(usable, frozenset(ids(*leaving)), active)


def observed(spec: TopicSpec, view: TopicView, replicas: int, *leaving: int) -> ObservedTopic:
    metadata = ObjectMetadata(name="orders", namespace="shop", uid=TOPIC_ID)
    return ObservedTopic(
        Topic(metadata=metadata, spec=spec),
        TOPIC_ID,
        view,
        pool_replicas=replicas,
        active_brokers=frozenset(ids(*range(replicas))),
        leaving=frozenset(ids(*leaving)),
    )
