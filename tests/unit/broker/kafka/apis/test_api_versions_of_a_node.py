"""A client that reached another broker, or another cluster, than it means is told so (KIP-1242)."""

from pathlib import Path

import pytest
from tidemark_broker.kafka_wire.messages.primitives import INT32, compact_string
from tidemark_protocol.error_codes import ErrorCode

from tests.support.kafka_test_client import (
    API_VERSIONS,
    ONLY,
    Client,
    KafkaTestClient,
    request,
    with_kafka_client,
)

MINE = "cluster-of-mine"


@pytest.mark.parametrize(
    ("known", "cluster_id", "node_id", "error"),
    [
        (MINE, None, -1, ErrorCode.NONE),
        (MINE, MINE, ONLY, ErrorCode.NONE),
        (MINE, MINE, ONLY + 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (MINE, "another", ONLY, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", "another", ONLY, ErrorCode.NONE),  # not registered yet
        (MINE, MINE, -1, ErrorCode.INVALID_REQUEST),
        (MINE, None, ONLY, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_client_that_means_another_node_is_to_begin_again(
    tmp_path: Path, known: str, cluster_id: str | None, node_id: int, error: ErrorCode
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.context.cluster_id = lambda: known
        client = await Client.connect(kafka_client)
        body = b"\x00" + compact_string("lib") + compact_string("1")
        body += compact_string(cluster_id) + INT32.pack(node_id) + b"\x00"
        response = await client.ask(request(API_VERSIONS, 5, body))
        assert int.from_bytes(response[:2], "big") == error
        assert (response[2] > 1) is (error is ErrorCode.NONE)  # APIs are told

    with_kafka_client(tmp_path, scenario)
