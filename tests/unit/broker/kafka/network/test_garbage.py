"""What was answered is let go at once, without Python's search for circles."""

import gc
from pathlib import Path

import pytest
from tidemark_broker.kafka.network.request import KafkaRequest

from tests.support.in_process_pool import a_batch
from tests.support.kafka_test_client import (
    Client,
    KafkaTestClient,
    fetch,
    produce,
    with_kafka_client,
)


@pytest.mark.parametrize("kind", ["fetch", "produce"])
def test_an_answered_request_is_in_no_circle(tmp_path: Path, kind: str) -> None:
    frame = fetch(max_bytes=100_000) if kind == "fetch" else produce(a_batch("b"))

    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        await client.ask(produce(a_batch("a")))
        await client.ask(frame)
        gc.collect()
        gc.disable()
        try:
            for _ in range(10):
                await client.ask(frame)
            kept = [found for found in gc.get_objects() if isinstance(found, KafkaRequest)]
            assert len(kept) <= 1
        finally:
            gc.enable()

    with_kafka_client(tmp_path, scenario)
