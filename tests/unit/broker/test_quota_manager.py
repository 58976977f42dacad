"""Quotas by client id: how long a client is told to wait, and that it then is not heard."""

import asyncio
import time
from pathlib import Path

from tidemark_broker.kafka_wire.messages.client_quotas import (
    ALTER_CLIENT_QUOTAS_API,
    DESCRIBE_CLIENT_QUOTAS_API,
)
from tidemark_broker.kafka_wire.messages.primitives import INT32
from tidemark_broker.quota_manager import ClientQuotaManager, QuotaType
from tidemark_protocol.controller_messages import ClientQuota
from tidemark_protocol.error_codes import ErrorCode

from tests.support.in_process_pool import a_batch
from tests.support.kafka_test_client import (
    API_VERSIONS_REQUEST,
    Client,
    KafkaTestClient,
    fetch,
    produce,
    request,
    with_kafka_client,
)
from tests.support.simulated_time import SimulatedTime

MIB = 1024 * 1024


def quotas_of(*entries: ClientQuota) -> tuple[ClientQuotaManager, SimulatedTime]:
    simulated = SimulatedTime()
    return ClientQuotaManager(lambda: entries, simulated.clock), simulated


def test_a_window_may_be_used_at_once_and_the_rest_is_waited_for() -> None:
    quotas, simulated = quotas_of(ClientQuota("a", produce_bytes_per_second=1000))
    assert quotas.throttle_ms("a", QuotaType.PRODUCE_BYTES, 10_000) == 0
    assert quotas.throttle_ms("a", QuotaType.PRODUCE_BYTES, 500) == 500
    simulated.run(500)
    assert quotas.throttle_ms("a", QuotaType.PRODUCE_BYTES, 100) == 100


def test_over_a_long_time_the_rate_is_the_quota() -> None:
    quotas, simulated = quotas_of(ClientQuota("a", fetch_bytes_per_second=1000))
    used = 0
    end_ms = simulated.clock() + 100_000
    while simulated.clock() < end_ms:
        used += 700
        simulated.run(quotas.throttle_ms("a", QuotaType.FETCH_BYTES, 700) or 1)
    assert 100_000 <= used <= 112_000


def test_one_wait_is_never_longer_than_ten_seconds_and_the_rest_stays_owed() -> None:
    quotas, simulated = quotas_of(ClientQuota("a", produce_bytes_per_second=1000))
    assert quotas.throttle_ms("a", QuotaType.PRODUCE_BYTES, 40_000) == 10_000
    simulated.run(10_000)
    assert quotas.throttle_ms("a", QuotaType.PRODUCE_BYTES, 0) == 10_000


def test_a_client_without_its_own_has_the_defaults_each_on_its_own_count() -> None:
    quotas, _ = quotas_of(
        ClientQuota("", produce_bytes_per_second=10),
        ClientQuota("large", produce_bytes_per_second=1_000_000),
    )
    assert quotas.throttle_ms("x", QuotaType.PRODUCE_BYTES, 101) == 100
    assert quotas.throttle_ms("y", QuotaType.PRODUCE_BYTES, 100) == 0
    assert quotas.throttle_ms(None, QuotaType.PRODUCE_BYTES, 101) == 100
    assert quotas.throttle_ms("large", QuotaType.PRODUCE_BYTES, 1_000_000) == 0
    assert quotas.throttle_ms("large", QuotaType.FETCH_BYTES, 10**9) == 0


def test_a_new_quota_counts_anew_and_others_go_on() -> None:
    entries = [(ClientQuota("a", produce_bytes_per_second=10), ClientQuota("b", 10))]
    simulated = SimulatedTime()
    quotas = ClientQuotaManager(lambda: entries[0], simulated.clock)
    assert quotas.throttle_ms("a", QuotaType.PRODUCE_BYTES, 150) == 5000
    assert quotas.throttle_ms("b", QuotaType.PRODUCE_BYTES, 150) == 5000
    entries[0] = (ClientQuota("a", produce_bytes_per_second=20), ClientQuota("b", 10))
    assert quotas.throttle_ms("a", QuotaType.PRODUCE_BYTES, 0) == 0
    assert quotas.throttle_ms("b", QuotaType.PRODUCE_BYTES, 0) == 5000


def throttle_of_produce(answer: bytes) -> int:
    return int.from_bytes(answer[-4:], "big")


def test_a_producer_above_its_quota_is_told_and_not_heard_until_then(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(quotas=(ClientQuota("bulk", produce_bytes_per_second=100_000),))
        client, other = await Client.connect(kafka_client), await Client.connect(kafka_client)
        batch = a_batch("x" * 1_040_000)
        response = await client.ask(produce(batch, client_id="bulk"))
        reported_ms = throttle_of_produce(response)
        assert 300 <= reported_ms <= 500
        began = time.monotonic()
        client.send(API_VERSIONS_REQUEST)
        assert throttle_of_produce(await other.ask(produce(a_batch("x"), client_id="calm"))) == 0
        await client.answer()
        assert time.monotonic() - began >= reported_ms / 1000 - 0.05

    with_kafka_client(tmp_path, scenario)


def test_a_consumer_above_its_quota_is_told_in_the_answer_that_was_too_much(
    tmp_path: Path,
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        for _ in range(4):
            await client.ask(produce(a_batch("x" * 500_000)))
        kafka_client.push(quotas=(ClientQuota("", fetch_bytes_per_second=90_000),))
        first = await client.ask(fetch(max_bytes=10 * MIB))
        assert 500_000 < len(first) <= 1_000_000  # a window's worth
        assert int.from_bytes(first[:4], "big") == 0
        second = await client.ask(fetch(max_bytes=600_000))
        assert int.from_bytes(second[:4], "big") > 100

    with_kafka_client(tmp_path, scenario)


def test_time_on_the_loop_is_limited_too(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(quotas=(ClientQuota("busy", request_percentage=0.01),))
        client = await Client.connect(kafka_client)
        throttled = 0
        for _ in range(300):
            async with asyncio.timeout(10):
                response = await client.ask(request(3, 3, b"\xff\xff\xff\xff\x00", "busy"))
            throttled = int.from_bytes(response[:4], "big")
            if throttled:
                break
        assert throttled > 0

    with_kafka_client(tmp_path, scenario)


def described(
    kafka_client: KafkaTestClient, answer: bytes
) -> dict[tuple[str | None, ...], dict[str, float]]:
    _, found = DESCRIBE_CLIENT_QUOTAS_API.decode_response(INT32.pack(7) + answer, 1)
    assert (found["error"], found["error_message"]) == (0, None)
    return {
        tuple(part["entity_name"] for part in entry["entity"]): {
            value["key"]: value["value"] for value in entry["values"]
        }
        for entry in found["entries"]
    }


def filtered(*components: tuple[str, int, str | None], strict: bool = False) -> bytes:
    values = {
        "components": tuple(
            {"entity_type": kind, "match_type": match_type, "match": name}
            for kind, match_type, name in components
        ),
        "strict": strict,
    }
    return DESCRIBE_CLIENT_QUOTAS_API.encode_request(7, 1, "test", values)


def test_quotas_are_described_as_the_pool_has_them(tmp_path: Path) -> None:
    own = {"producer_byte_rate": 1000.0, "request_percentage": 2.5}
    default = {"consumer_byte_rate": 50.0}

    async def scenario(kafka_client: KafkaTestClient) -> None:
        kafka_client.push(
            quotas=(
                ClientQuota("a", produce_bytes_per_second=1000, request_percentage=2.5),
                ClientQuota("", fetch_bytes_per_second=50),
            )
        )
        client = await Client.connect(kafka_client)
        for frame, expected in (
            (filtered(), {("a",): own, (None,): default}),
            (filtered(("client-id", 2, None)), {("a",): own, (None,): default}),
            (filtered(("client-id", 0, "a")), {("a",): own}),
            (filtered(("client-id", 1, None), strict=True), {(None,): default}),
            (filtered(("client-id", 0, "other")), {}),
            (filtered(("user", 2, None)), {}),
            (filtered(("client-id", 2, None), ("user", 2, None)), {}),
        ):
            assert described(kafka_client, await client.ask(frame)) == expected
        refused = await client.ask(filtered(("planet", 2, None)))
        _, found = DESCRIBE_CLIENT_QUOTAS_API.decode_response(INT32.pack(7) + refused, 1)
        assert (found["error"], found["entries"]) == (ErrorCode.INVALID_REQUEST, None)

    with_kafka_client(tmp_path, scenario)


def test_quotas_are_not_altered_here_and_the_refusal_says_where(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        entity = ({"entity_type": "client-id", "entity_name": "a"},)
        operation = {"key": "producer_byte_rate", "value": 1.0, "remove": False}
        values = {"entries": ({"entity": entity, "ops": (operation,)},), "validate_only": False}
        response = await client.ask(ALTER_CLIENT_QUOTAS_API.encode_request(7, 1, "test", values))
        _, found = ALTER_CLIENT_QUOTAS_API.decode_response(INT32.pack(7) + response, 1)
        (entry,) = found["entries"]
        assert (entry["error"], entry["entity"]) == (ErrorCode.POLICY_VIOLATION, entity)
        assert "BrokerPool" in entry["error_message"]

    with_kafka_client(tmp_path, scenario)
