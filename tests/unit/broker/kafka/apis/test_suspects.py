"""A client that asks where leaders are while one of them is a suspect, through the real door."""

import asyncio
from pathlib import Path

import pytest
from tidemark_broker.metadata import leader_changes

from tests.support.kafka_test_client import (
    API_VERSIONS_REQUEST,
    ONLY,
    Client,
    KafkaTestClient,
    with_kafka_client,
)
from tests.support.waiting import HANG_SECONDS
from tests.unit.broker.kafka.apis.test_before_metadata import ALL_TOPICS, metadata_of


@pytest.mark.parametrize("verdict", ["an answer of the suspect", "a push"])
def test_metadata_of_a_suspects_partitions_are_told_after_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: str
) -> None:
    monkeypatch.setattr(leader_changes, "NOTICE_SECONDS", 0.0)
    monkeypatch.setattr(leader_changes, "VERDICT_SECONDS", 2 * HANG_SECONDS)  # never by itself

    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.context.leader_changes.suspect(ONLY)
        client, other = [await Client.connect(kafka_client) for _ in range(2)]
        client.send(ALL_TOPICS)
        reported = asyncio.create_task(metadata_of(client))
        for _ in range(5):
            assert await other.ask(API_VERSIONS_REQUEST)  # what need not wait does not
        assert not reported.done()
        kafka_client.push(partition_count=2, broker_epoch=12 if verdict == "a push" else 11)
        if verdict == "a push":
            kafka_client.context.leader_changes.on_metadata()
        else:
            kafka_client.context.leader_changes.on_response(ONLY)
        (topic,) = (await reported)["topics"]
        assert len(topic["partitions"]) == 2, "as it was when the verdict came"

    with_kafka_client(tmp_path, scenario)
