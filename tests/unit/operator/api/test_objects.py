"""The typed objects read what the CRDs say, and have no defaults of their own beside them."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import NODEFAULT, inspect
from tidemark_operator.api.broker_pool import BrokerPool, PoolStatus, PurgeStatus
from tidemark_operator.api.objects import ApiObject, Invalid, parse, parse_unchecked
from tidemark_operator.api.replication_audit import ReplicationAudit
from tidemark_operator.api.schemas import load_schema
from tidemark_operator.api.topic import Topic

from tests.support.api_objects import broker_pool, parsed

KINDS = (Topic, BrokerPool, ReplicationAudit)
# Which `effective` fills in: it is another for each Topic.
FILLED_IN = {"Topic.spec.topicName"}


def item(kind: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": "orders", "namespace": "shop", "uid": "u", "generation": 3},
        "spec": spec,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_structs_name_fields_of_the_crd_and_repeat_no_other_default(kind: type[ApiObject]) -> None:
    schema = load_schema(kind.resource.kind)
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    parts = {field.encode_name: field.type for field in info.fields}
    for name in ("spec", "status"):
        differing = _differences(
            parts[name], schema["properties"][name], f"{info.cls.__name__}.{name}"
        )
        assert list(differing) == []


def _differences(info: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    if isinstance(info, inspect.UnionType):
        for each in info.types:
            yield from _differences(each, schema, path)
    elif isinstance(info, inspect.VarTupleType):
        yield from _differences(info.item_type, schema["items"], f"{path}[]")
    elif isinstance(info, inspect.StructType):
        for field in info.fields:
            yield from _differences_of_field(field, schema, f"{path}.{field.encode_name}")


def _differences_of_field(field: inspect.Field, schema: dict[str, Any], path: str) -> Iterator[str]:
    known = schema["properties"].get(field.encode_name)
    if known is None:
        yield f"{path} is not in the CRD"
        return
    default = field.default if field.default_factory is NODEFAULT else field.default_factory()
    is_always_there = "default" in known or field.encode_name in schema.get("required", ())
    if field.required and not (is_always_there or path in FILLED_IN):
        yield f"{path} may be absent"
    if "default" in known and default is not NODEFAULT and default != known["default"]:
        yield f"{path} has another default than the CRD"
    yield from _differences(field.type, known, path)


def test_an_object_that_breaks_a_rule_keeps_what_its_status_needs() -> None:
    stored = item("BrokerPool", quotas=[{"clientId": "a"}])
    condition = {"type": "Ready", "status": "True", "reason": "A", "message": "b"}
    stored["status"] = {"conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    found = parse(BrokerPool, stored)
    assert isinstance(found, Invalid)
    assert found.sentences == (
        "a quota needs at least one of produceBytesPerSecond, fetchBytesPerSecond and"
        " requestPercentage",
    )
    assert (found.metadata.generation, found.stored) == (3, stored)
    assert [each.type for each in found.status.known_conditions] == ["Ready"]
    assert parse_unchecked(BrokerPool, stored).spec.replicas == 3


def test_a_value_of_another_type_is_named() -> None:
    stored = item("Topic") | {"status": {"topicId": 5}}
    found = parse(Topic, stored)
    assert isinstance(found, Invalid)
    assert found.sentences == ("Topic: Expected `str`, got `int` - at `$.status.topicId`",)


def test_absent_fields_of_a_status_are_told_from_empty_ones() -> None:
    topic = parsed(Topic, item("Topic"))
    assert topic.recorded_topic_id is None
    assert (topic.topic_id, topic.status.led_partitions) == ("u", msgspec.UNSET)
    topic.record_written(item("Topic") | {"status": {"topicId": "t", "ledPartitions": 0}})
    assert (topic.topic_id, topic.status.led_partitions) == ("t", 0)
    assert topic.has_id(topic.topic_id)


def test_a_status_is_written_without_what_is_unset() -> None:
    purged = PurgeStatus(topic_name="orders", result="Purged")
    written = msgspec.json.decode(msgspec.json.encode(PoolStatus(purge_retained=(purged,))))
    assert written == {"purgeRetained": [{"topicName": "orders", "result": "Purged"}]}


def test_settings_of_groups_are_those_that_are_set() -> None:
    assert broker_pool().spec.groups == {}
    pool = broker_pool(groups={"initialRebalanceDelayMs": 0, "offsetsRetentionMinutes": 5})
    assert list(pool.spec.groups.items()) == [
        ("offsetsRetentionMinutes", 5),
        ("initialRebalanceDelayMs", 0),
    ]
