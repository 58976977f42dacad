"""The CRD files and their Python mirror say the same, in the same words."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tidemark_operator.api.broker_pool import BrokerPool, ListenerSpec
from tidemark_operator.api.config_checks import nearest_name, unknown_config_sentence
from tidemark_operator.api.schemas import apply_defaults, effective, load_schema, validate
from tidemark_protocol.controller_messages import ClientQuota
from tidemark_protocol.topic_configs import (
    KNOWN_CONFIGS,
    KNOWN_NAMES,
    MIN_INSYNC_REPLICAS,
    BooleanConfig,
    ChoiceConfig,
    FixedConfig,
    IntegerConfig,
    ListConfig,
    RatioConfig,
    TopicConfig,
    integer_of,
    text_of,
)

from tests.support.api_objects import parsed

CRDS = Path(__file__).parents[4] / "crds"
OF_KUBERNETES = ("v1", "apps/v1", "rbac.authorization.k8s.io/v1")  # which examples have beside ours
KINDS = ("Topic", "BrokerPool", "Broker", "PartitionSlice", "ReplicationAudit")


def topic(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": "orders", "namespace": "shop"},
        "spec": spec,
    }


def pool(**spec: Any) -> dict[str, Any]:
    return topic(**spec) | {"kind": "BrokerPool", "metadata": {"name": "default"}}


def config_rules() -> list[dict[str, str]]:
    spec = load_schema("Topic")["properties"]["spec"]
    rules: list[dict[str, str]] = spec["properties"]["config"]["x-kubernetes-validations"]
    return rules


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_schema_with_bounds(kind: str) -> None:
    unbounded = list(_unbounded(load_schema(kind), kind))
    assert unbounded == []


def _unbounded(schema: dict[str, Any], path: str) -> Any:
    kind = schema.get("type")
    if kind == "array" and "maxItems" not in schema:
        yield f"{path}: list without maxItems"
    if kind == "object" and "additionalProperties" in schema and "maxProperties" not in schema:
        yield f"{path}: map without maxProperties"
    is_free = "." in path and "format" not in schema and "enum" not in schema
    if kind == "string" and is_free and "maxLength" not in schema:
        name = path.rpartition(".")[2]
        if name not in ("apiVersion", "kind"):
            yield f"{path}: string without maxLength"
    for name, child in schema.get("properties", {}).items():
        yield from _unbounded(child, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from _unbounded(schema[name], f"{path}.{name}")


def test_each_known_config_has_the_rule_and_the_sentence_of_its_mirror() -> None:
    by_sentence = {rule["message"]: " ".join(rule["rule"].split()) for rule in config_rules()[1:]}
    assert by_sentence == {
        config.fault("surely wrong"): f"!('{config.name}' in self) || {accepts(config)}"
        for config in KNOWN_CONFIGS
    }


def accepts(config: TopicConfig) -> str:
    value = f"self['{config.name}'].trim()"
    match config:
        case IntegerConfig():
            return (
                f"({value}.matches('{config.pattern}') && int({value}) >= {config.lowest} "
                f"&& int({value}) <= {config.maximum})"
            )
        case RatioConfig():
            number = f"double({value}.lowerAscii().replace('d', '').replace('f', ''))"
            range_of = f"{number} >= 0.0 && {number} <= 1.0"
            return f"({value}.matches(r'{config.pattern}') && {range_of})"
        case ChoiceConfig():
            return f"{value} in [{', '.join(map(repr, config.choices))}]"
        case BooleanConfig():
            return f"{value}.lowerAscii() in ['true', 'false']"
        case ListConfig():
            return f"{value}.matches(r'{config.pattern}')"
        case FixedConfig() if config.is_number:
            return f"{value}.matches('{config.pattern}')"
        case FixedConfig() if config.is_boolean:
            return f"{value}.lowerAscii() == '{config.only_value}'"
        case FixedConfig():
            return f"{value} == '{config.only_value}'"


@pytest.mark.parametrize("config", KNOWN_CONFIGS, ids=lambda config: config.name)
def test_each_default_is_a_value_that_is_accepted(config: TopicConfig) -> None:
    assert config.fault(config.default_text) is None


def test_no_more_configs_can_be_given_than_the_map_may_hold() -> None:
    spec = load_schema("Topic")["properties"]["spec"]
    assert len(KNOWN_CONFIGS) <= spec["properties"]["config"]["maxProperties"]


def test_a_value_that_another_version_accepted_is_not_used() -> None:
    retention = next(config for config in KNOWN_CONFIGS if config.name == "retention.ms")
    assert isinstance(retention, IntegerConfig)
    assert integer_of(retention, {"retention.ms": "-1"}) == -1
    assert integer_of(retention, {"retention.ms": "for ever"}) == retention.default
    assert text_of(retention, {}) == "604800000"


def test_the_rule_about_unknown_names_lists_exactly_the_known_ones() -> None:
    rule = config_rules()[0]
    assert re.findall("'([^']+)'", rule["rule"]) == list(KNOWN_NAMES)
    assert rule["message"] == f"unknown config; known names are {', '.join(KNOWN_NAMES)}"


def test_the_table_of_misspellings_names_what_is_nearest() -> None:
    table = dict(re.findall("'([^']+)': '([^']+)'", config_rules()[0]["messageExpression"]))
    assert len(table) > 40
    assert set(table.values()) == set(KNOWN_NAMES)
    assert table == {name: nearest_name(name) for name in table}


def test_sentences_of_the_mirror_stand_in_the_crds() -> None:
    text = " ".join((CRDS / "topics.yaml").read_text().split())
    old = topic(partitions=3, topicName="a")
    new = topic(
        partitions=2,
        brokerPool="other",
        commitRule="Isr",
        flush="Always",
        topicName="b",
    )
    sentences = validate(new, old)
    assert len(sentences) == 5
    for sentence in sentences:
        assert sentence in text


def test_partitions_of_the_offsets_topic_never_change() -> None:
    text = " ".join((CRDS / "topics.yaml").read_text().split())
    old = topic(partitions=50, topicName="__consumer_offsets")
    [sentence] = validate(topic(partitions=60, topicName="__consumer_offsets"), old)
    assert sentence in text
    assert validate(topic(partitions=60, topicName="a"), topic(partitions=50, topicName="a")) == []


def test_sentences_about_pools_stand_in_the_crds() -> None:
    text = " ".join((CRDS / "brokerpools.yaml").read_text().split())
    sentences = validate(pool(replicas=1, storage={"size": "2Gi"}), pool(replicas=3))
    sentences += validate(pool(quotas=[{"clientId": "a"}]))
    bad = [kafka_client("kafka", port=9092), kafka_client("b", port=9092)]
    sentences += validate(pool(listeners=bad) | {"metadata": {"name": "p" * 50}})
    closed = [
        kafka_client("a", port=9091),
        kafka_client("b", port=9094, protocol="HTTP", authentication="none"),
    ]
    sentences += validate(pool(listeners=closed, security={"authentication": "kubernetes"}))
    assert validate(pool(listeners=closed)) == []
    assert len(sentences) == 2 + 5 + 2
    for sentence in sentences:
        assert sentence in text


def kafka_client(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "NodePort", **more}


def test_listeners_are_read_from_the_pool() -> None:
    manifest = pool(
        listeners=[
            kafka_client("outside", advertisedHost="kafka.example"),
            {"name": "cloud", "type": "LoadBalancer", "port": 9095, "annotations": {"a": "b"}},
            kafka_client("web", port=8081, protocol="HTTP"),
        ]
    )
    assert validate(manifest) == []
    manifest["metadata"]["namespace"] = "shop"
    assert parsed(BrokerPool, manifest).spec.listeners == (
        ListenerSpec("outside", "NodePort", 9094, "kafka.example"),
        ListenerSpec("cloud", "LoadBalancer", 9095, annotations={"a": "b"}),
        ListenerSpec("web", "NodePort", 8081, protocol="HTTP"),
    )


@pytest.mark.parametrize(
    "listeners",
    [
        [{"name": "a"}],
        [{"type": "NodePort"}],
        [kafka_client("a", type="ClusterIP")],
        [kafka_client("A")],
        [kafka_client("a--b")],
        [kafka_client("a", port=80)],
        [kafka_client("a", port=8080)],
        [kafka_client("a", protocol="TLS")],
        [kafka_client("http")],
        [kafka_client("a"), kafka_client("b")],
        [kafka_client("a"), kafka_client("a", port=9095)],
    ],
)
def test_listeners_that_cannot_be_are_refused(listeners: list[dict[str, Any]]) -> None:
    assert len(validate(pool(listeners=listeners))) == 1


@pytest.mark.parametrize("desired_topic", [True, False])
def test_topics_are_made_for_clients_only_where_the_pool_says_so(desired_topic: bool) -> None:
    requested = pool(autoCreateTopics=True) if desired_topic else pool()
    requested["metadata"]["namespace"] = "shop"
    assert parsed(BrokerPool, requested).spec.creates_topics is desired_topic


def test_quotas_are_read_from_the_pool() -> None:
    manifest = pool(
        quotas=[
            {"clientId": "", "fetchBytesPerSecond": 1000},
            {"clientId": "bulk", "produceBytesPerSecond": 5, "requestPercentage": 50},
        ]
    )
    assert validate(manifest) == []
    manifest["metadata"]["namespace"] = "shop"
    assert parsed(BrokerPool, manifest).spec.quotas == (
        ClientQuota("", fetch_bytes_per_second=1000),
        ClientQuota("bulk", produce_bytes_per_second=5, request_percentage=50),
    )


@pytest.mark.parametrize(
    "quotas",
    [
        [{"produceBytesPerSecond": 1}],
        [{"clientId": "a", "produceBytesPerSecond": 0}],
        [{"clientId": "a", "requestPercentage": 101}],
        [{"clientId": "a", "requestPercentage": 1}, {"clientId": "a", "fetchBytesPerSecond": 1}],
    ],
)
def test_quotas_that_say_nothing_are_refused(quotas: list[dict[str, Any]]) -> None:
    assert len(validate(pool(quotas=quotas))) == 1


def test_an_unknown_config_is_refused_with_the_nearest_known_name() -> None:
    assert validate(topic(config={"min.insync.replica": "2"})) == [
        'unknown config "min.insync.replica"; the nearest known name is "min.insync.replicas"; '
        f"known names are {', '.join(KNOWN_NAMES)}"
    ]
    assert '"segment.bytes"' in unknown_config_sentence("Segment_Byte")


def test_an_unknown_config_that_is_like_none_is_said_to_be_near_none() -> None:
    sentence = unknown_config_sentence("commitRule")
    assert sentence == f'unknown config "commitRule"; known names are {", ".join(KNOWN_NAMES)}'


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"min.insync.replicas": "two"}, "min.insync.replicas must be an integer from 1 to 10"),
        (
            {"segment.bytes": "1"},
            "segment.bytes must be an integer from 16384 to 2147483647",
        ),
        (
            {"max.message.bytes": "8388609"},
            "max.message.bytes must be an integer from 0 to 8388608",
        ),
        (
            {"retention.ms": "-2"},
            "retention.ms must be an integer from -1 to 9223372036854775807 (-1: no limit)",
        ),
        (
            {"cleanup.policy": "compact; delete"},
            "cleanup.policy must be a list of: delete | compact",
        ),
        (
            {"min.cleanable.dirty.ratio": "1.5"},
            "min.cleanable.dirty.ratio must be a decimal number from 0 to 1, such as 0.5",
        ),
        (
            {"min.insync.replicas": "4"},
            "min.insync.replicas is greater than replicationFactor, so no record could be "
            "acknowledged with acks=all",
        ),
        (
            {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
            "min.compaction.lag.ms is greater than max.compaction.lag.ms",
        ),
    ],
)
def test_values_that_do_not_work_are_refused(config: dict[str, str], sentence: str) -> None:
    assert validate(topic(config=config)) == [sentence]


@pytest.mark.parametrize("name", [MIN_INSYNC_REPLICAS, "min.compaction.lag.ms"])
def test_sentences_about_two_configs_stand_in_the_crd(name: str) -> None:
    text = " ".join((CRDS / "topics.yaml").read_text().split())
    config = {
        "min.insync.replicas": "4",
        "min.compaction.lag.ms": "2",
        "max.compaction.lag.ms": "1",
    }
    sentences = validate(topic(config=config))
    assert len(sentences) == 2
    assert any(sentence.startswith(name) and sentence in text for sentence in sentences)


def test_the_offsets_topic_is_compacted_whoever_writes_it() -> None:
    (sentence,) = validate(topic(topicName="__consumer_offsets"))
    assert "can only be compact" in sentence
    assert sentence in " ".join((CRDS / "topics.yaml").read_text().split())
    config = {"cleanup.policy": "compact"}
    assert validate(topic(topicName="__consumer_offsets", config=config)) == []


def test_schema_errors_name_the_field() -> None:
    assert validate(topic(partitions=0)) == ["spec.partitions: 0 is less than the minimum of 1"]
    assert validate(topic(topicName="a b"))[0].startswith("spec.topicName: ")
    assert validate(topic(topicName="..")) == ['topicName cannot be "." or ".."']


def test_fields_that_the_api_server_would_prune_are_refused() -> None:
    assert validate(topic(replicas=3)) == ['unknown field "spec.replicas"']


def test_a_manifest_without_a_spec_is_refused() -> None:
    manifest = topic()
    del manifest["spec"]
    assert validate(manifest) == ["Topic: 'spec' is a required property"]


def test_defaults_are_those_of_the_crd() -> None:
    assert apply_defaults(topic())["spec"] == {
        "partitions": 1,
        "replicationFactor": 3,
        "brokerPool": "default",
        "commitRule": "MinInsync",
        "flush": "Os",
        "deletionPolicy": "Retain",
        "config": {},
    }


def test_min_insync_replicas_is_two_but_never_more_than_the_replication_factor() -> None:
    assert effective(topic())["spec"]["config"]["min.insync.replicas"] == "2"
    one = effective(topic(replicationFactor=1))["spec"]
    assert one["config"]["min.insync.replicas"] == "1"
    assert one["topicName"] == "orders"


@pytest.mark.parametrize("path", sorted(CRDS.parent.glob("examples/*.yaml")), ids=lambda p: p.name)
def test_every_example_is_valid(path: Path) -> None:
    manifests = list(yaml.safe_load_all(path.read_text()))
    ours = [each for each in manifests if each["apiVersion"] not in OF_KUBERNETES]
    assert {each["apiVersion"] for each in ours} <= {"tidemark.dev/v1alpha1"}
    assert [sentence for each in ours for sentence in validate(each)] == []


def test_applying_defaults_leaves_the_manifest_as_it_was() -> None:
    manifest = topic()
    apply_defaults(manifest)
    assert manifest["spec"] == {}
