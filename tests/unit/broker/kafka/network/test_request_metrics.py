"""Requests of the Kafka port are counted by API: number, errors, latency, bytes."""

import asyncio
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tidemark_broker.kafka.network.limits import ListenerLimits
from tidemark_broker.kafka.network.request_metrics import (
    FETCH_OF_FOLLOWER,
    KafkaRequestMetrics,
)
from tidemark_broker.kafka_wire.messages import frames
from tidemark_broker.kafka_wire.messages.frames import API_NAMES, FETCH, PRODUCE
from tidemark_protocol.error_codes import ErrorCode

from tests.support.kafka_test_client import (
    API_VERSIONS_REQUEST,
    Client,
    KafkaTestClient,
    fetch,
    produce,
    with_kafka_client,
)
from tests.support.promtool import faults_of_metrics

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


def values_of(metrics: KafkaRequestMetrics) -> Values:
    text = "".join(metrics.render())
    assert faults_of_metrics(text) == ""
    return {
        (
            sample.name.removeprefix("tidemark_kafka_"),
            frozenset(sample.labels.items()),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def api(name: str, **labels: str) -> frozenset[tuple[str, str]]:
    return frozenset({"api": name, **labels}.items())


def test_a_request_is_counted_with_its_latency_and_bytes() -> None:
    metrics = KafkaRequestMetrics()
    metrics.observe(PRODUCE, 0.003, 100, [b"12", b"345"])
    metrics.observe(PRODUCE, 40.0, 50, [b"1"])
    found = values_of(metrics)
    assert found["requests_total", api("Produce")] == 2
    assert found["request_bytes_total", api("Produce")] == 150
    assert found["response_bytes_total", api("Produce")] == 6
    assert found["request_duration_seconds_bucket", api("Produce", le="0.002")] == 0
    assert found["request_duration_seconds_bucket", api("Produce", le="0.005")] == 1
    assert found["request_duration_seconds_bucket", api("Produce", le="30.0")] == 1
    assert found["request_duration_seconds_bucket", api("Produce", le="+Inf")] == 2
    assert found["request_duration_seconds_sum", api("Produce")] == 40.003


def test_fetches_of_followers_and_consumers_are_told_apart() -> None:
    metrics = KafkaRequestMetrics()
    metrics.observe(FETCH, 0.1, 1, [])
    metrics.observe(FETCH_OF_FOLLOWER, 0.1, 1, [])
    found = values_of(metrics)
    assert found["requests_total", api("FetchConsumer")] == 1
    assert found["requests_total", api("FetchFollower")] == 1


def test_errors_are_counted_by_their_names() -> None:
    metrics = KafkaRequestMetrics()
    metrics.observe_errors(PRODUCE, [ErrorCode.NOT_LEADER_OR_FOLLOWER, 6, 12345])
    found = values_of(metrics)
    labels = api("Produce", error="NOT_LEADER_OR_FOLLOWER")
    assert found["request_errors_total", labels] == 2
    assert found["request_errors_total", api("Produce", error="UNKNOWN_SERVER_ERROR")] == 1


def test_every_api_that_is_served_has_a_name(tmp_path: Path) -> None:
    async def served() -> set[int]:
        client = KafkaTestClient(tmp_path, ListenerLimits())
        return set(client.context.handlers)

    assert asyncio.run(served()) <= set(API_NAMES)
    assert len(set(API_NAMES.values())) == len(API_NAMES)
    for key, name in API_NAMES.items():
        constant = "".join(f"_{letter}" if letter.isupper() else letter for letter in name)
        assert getattr(frames, constant.strip("_").upper()) == key


def test_the_port_counts_what_clients_ask(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        await client.ask(API_VERSIONS_REQUEST)
        await client.ask(fetch(offset=1000))
        answer = await client.ask(produce(b"no batch"))
        found = values_of(kafka_client.context.request_metrics)
        names = ("ApiVersions", "FetchConsumer", "Produce")
        assert [found["requests_total", api(name)] for name in names] == [1, 1, 1]
        out_of_range = api("FetchConsumer", error="OFFSET_OUT_OF_RANGE")
        assert found["request_errors_total", out_of_range] == 1
        assert found["request_errors_total", api("Produce", error="CORRUPT_MESSAGE")] == 1
        sent = len(produce(b"no batch")) - 4
        assert found["request_bytes_total", api("Produce")] == sent
        assert found["response_bytes_total", api("Produce")] == len(answer) + 8
        assert 0 < found["request_duration_seconds_sum", api("Produce")] < 60
        client.close()

    with_kafka_client(tmp_path, scenario)
