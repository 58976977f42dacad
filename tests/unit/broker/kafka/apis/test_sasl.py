"""Clients that authenticate, and those that do not, at a real socket."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from tidemark_broker.kafka.network.client_session import ListenerRules
from tidemark_broker.kafka.network.limits import ListenerLimits
from tidemark_broker.kafka.network.replica_rights import ReplicaRights
from tidemark_broker.kafka_wire.messages.fetch import (
    FetchRequest,
    decode_fetch_response,
    encode_fetch_request,
)
from tidemark_broker.kafka_wire.messages.frames import SASL_AUTHENTICATE, SASL_HANDSHAKE
from tidemark_broker.kafka_wire.messages.primitives import INT16, INT32, nullable_string
from tidemark_broker.kafka_wire.messages.sasl import SASL_AUTHENTICATE_API, SASL_HANDSHAKE_API
from tidemark_broker.kafka_wire.messages.schema import TableReader, Values
from tidemark_protocol.access_messages import (
    Principal,
    ReviewPasswordRequest,
    ReviewTokenRequest,
    ReviewTokenResponse,
)
from tidemark_protocol.error_codes import ErrorCode

from tests.support.access import Reviews
from tests.support.in_process_pool import a_batch
from tests.support.kafka_test_client import (
    API_VERSIONS_REQUEST,
    Client,
    KafkaTestClient,
    framed,
    produce,
    request,
    with_kafka_client,
)

CLOSED = ListenerRules(requires_authentication=True, replicas=ReplicaRights.NONE)
OF_REPLICAS = ListenerRules(serves_clients=False)
ALICE = Principal("tidemark:user:alice")
FETCH_OF_A_BROKER = encode_fetch_request(
    FetchRequest(0, 1, 1, (), replica_id=1, replica_epoch=11), correlation_id=7, client_id="b"
)


async def controller(path: str, message: object, kind: type[Any], *, timeout_ms: int) -> Any:
    """Knows the token `good` of alice, `short` that expires soon, and her password."""
    if isinstance(message, ReviewTokenRequest):
        if message.token == "gone":
            return None
        lifetimes_s = {"good": 3600, "short": 1, "of-bob": 3600}
        if message.token not in lifetimes_s:
            return ReviewTokenResponse(ErrorCode.NONE, message="unknown")
        principal = Principal("tidemark:user:bob") if message.token == "of-bob" else ALICE
        expires_at_ms = int((time.time() + lifetimes_s[message.token]) * 1000)
        return ReviewTokenResponse(ErrorCode.NONE, principal=principal, expires_at_ms=expires_at_ms)
    assert isinstance(message, ReviewPasswordRequest)
    is_right = (message.user, message.password) == ("alice", "secret")
    return ReviewTokenResponse(ErrorCode.NONE, principal=ALICE if is_right else None)


def closed(path: Path, scenario: Any, **limits: Any) -> None:
    with_kafka_client(path, scenario, ListenerLimits(**limits), rules=CLOSED, ask=controller)


async def shake(client: Client, mechanism: str = "OAUTHBEARER", *, version: int = 1) -> Values:
    answer = await client.ask(request(SASL_HANDSHAKE, version, nullable_string(mechanism)))
    reader = TableReader(answer, version, is_flexible=False)
    return SASL_HANDSHAKE_API.response.read(reader)


async def authenticate(client: Client, auth_bytes: bytes) -> Values:
    body = INT32.pack(len(auth_bytes)) + auth_bytes
    answer = await client.ask(request(SASL_AUTHENTICATE, 1, body))
    return SASL_AUTHENTICATE_API.response.read(TableReader(answer, 1, is_flexible=False))


def bearer(token: str) -> bytes:
    return b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"


async def log_in(client: Client, token: str = "good") -> Values:
    assert (await shake(client))["error"] == ErrorCode.NONE
    return await authenticate(client, bearer(token))


PRODUCE = produce(a_batch("x"))


def test_a_client_with_a_token_is_served(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        assert await client.ask(API_VERSIONS_REQUEST)
        response = await log_in(client)
        assert response["error"] == ErrorCode.NONE
        assert 3_590_000 < response["session_lifetime_ms"] <= 3_600_000
        assert await client.ask(PRODUCE)
        (connection,) = kafka_client.listener.connections
        assert connection._session.principal == ALICE

    closed(tmp_path, scenario)


def test_optional_authentication_authorises_clients_that_authenticate_alone(
    tmp_path: Path,
) -> None:
    reviews = Reviews()

    async def scenario(kafka_client: KafkaTestClient) -> None:
        nameless, alice = [await Client.connect(kafka_client) for _ in range(2)]
        assert (await log_in(alice))["error"] == ErrorCode.NONE
        denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED.to_bytes(2, "big")
        assert denied not in await nameless.ask(PRODUCE)
        assert reviews.asked == []
        assert denied in await alice.ask(PRODUCE)
        assert (await log_in(nameless))["error"] == ErrorCode.NONE  # later, on its connection
        assert denied in await nameless.ask(PRODUCE)
        wrong = await Client.connect(kafka_client)
        await log_in(wrong, "bad")
        await authenticate(wrong, b"\x01")
        assert await wrong.is_closed()

    with_kafka_client(
        tmp_path,
        scenario,
        rules=ListenerRules(may_authenticate=True),
        ask=controller,
        authorizer=reviews.authorizer,
    )


@pytest.mark.parametrize("api_key", [0, 1, 2, 3, 10, 19, 22, 60, 999, -1])
def test_nothing_else_is_answered_before_authentication(tmp_path: Path, api_key: int) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        client.send(request(api_key, 0))
        assert await client.reader.read() == b""

    closed(tmp_path, scenario)


def test_a_wrong_token_fails_in_two_steps_and_ends_the_connection(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        response = await log_in(client, "bad")
        assert response["error"] == ErrorCode.NONE
        assert b"invalid_token" in bytes(response["auth_bytes"])
        client.send(PRODUCE[:0])
        response = await authenticate(client, b"\x01")
        assert response["error"] == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "not valid" in response["message"]
        assert await client.is_closed()

    closed(tmp_path, scenario)


@pytest.mark.parametrize(
    ("credentials", "is_right"),
    [(b"\0alice\0secret", True), (b"\0alice\0wrong", False), (b"\0nobody\0secret", False)],
)
def test_a_password_is_right_or_wrong(
    tmp_path: Path, credentials: bytes, *, is_right: bool
) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        await shake(client, "PLAIN")
        began_s = time.monotonic()
        response = await authenticate(client, credentials)
        if is_right:
            assert response["error"] == ErrorCode.NONE
            assert await client.ask(PRODUCE)
        else:
            assert time.monotonic() - began_s >= 0.1
            assert response["error"] == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert response["message"] == "wrong user or password"
            assert await client.is_closed()

    closed(tmp_path, scenario)


def test_a_handshake_of_version_0_is_followed_by_bare_bytes(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        await shake(client, "PLAIN", version=0)
        client.send(framed(b"\0alice\0secret"))
        assert await client.reader.readexactly(4) == INT32.pack(0)
        assert await client.ask(PRODUCE)
        other = await Client.connect(kafka_client)
        await shake(other, "PLAIN", version=0)
        other.send(framed(b"\0alice\0wrong"))
        assert await other.reader.read() == b""

    closed(tmp_path, scenario)


def test_an_unknown_mechanism_is_answered_with_those_there_are(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        response = await shake(client, "GSSAPI")
        assert response["error"] == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert response["mechanisms"] == (
            "OAUTHBEARER",
            "PLAIN",
            "SCRAM-SHA-256",
            "SCRAM-SHA-512",
        )

    closed(tmp_path, scenario)


def test_bytes_without_a_handshake_are_an_illegal_state(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        response = await authenticate(client, bearer("good"))
        assert response["error"] == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.is_closed()

    closed(tmp_path, scenario)


def test_an_open_listener_asks_nobody(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        assert (await shake(client))["error"] == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.ask(PRODUCE)

    with_kafka_client(tmp_path, scenario)


def test_a_frame_before_authentication_is_small(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        client.send(INT32.pack(32 * 1024 + 1) + b"\0\x11")
        assert await client.reader.read() == b""
        other = await Client.connect(kafka_client)
        await log_in(other)
        large = produce(a_batch("x" * 100_000))
        assert await other.ask(large)

    closed(tmp_path, scenario)


def test_who_does_not_authenticate_in_time_is_closed(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        assert await client.ask(API_VERSIONS_REQUEST)
        assert await client.reader.read() == b""
        other = await Client.connect(kafka_client)
        await log_in(other)
        await asyncio.sleep(0.4)
        assert await other.ask(PRODUCE)

    closed(tmp_path, scenario, authentication_seconds=0.2)


def test_the_oldest_connection_without_authentication_makes_room(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        served = await Client.connect(kafka_client)
        await log_in(served)
        silent = [await Client.connect(kafka_client) for _ in range(3)]
        for client in silent:
            await client.ask(API_VERSIONS_REQUEST)
        late = await Client.connect(kafka_client)
        await log_in(late)
        assert await silent[0].reader.read() == b""
        assert await served.ask(PRODUCE)
        assert await late.ask(PRODUCE)
        assert await silent[2].ask(API_VERSIONS_REQUEST)

    closed(tmp_path, scenario, unauthenticated_connections=3)


def test_unauthenticated_connections_take_no_place_of_clients(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        silent = [await Client.connect(kafka_client) for _ in range(5)]
        for client in silent:
            await client.ask(API_VERSIONS_REQUEST)
        first, second, third = [await Client.connect(kafka_client) for _ in range(3)]
        for client in (first, second):
            await log_in(client)
        await shake(third)
        third.send(request(SASL_AUTHENTICATE, 1, INT32.pack(19 + 4) + bearer("good")))
        assert await third.reader.read() == b"", "two are connected"
        assert await first.ask(PRODUCE)

    closed(tmp_path, scenario, connections=2)


def test_a_client_authenticates_again_before_its_token_expires(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client, silent = [await Client.connect(kafka_client) for _ in range(2)]
        for each in (client, silent):
            response = await log_in(each, "short")
            assert 0 < response["session_lifetime_ms"] <= 1000
        assert (await log_in(client, "good"))["error"] == ErrorCode.NONE
        assert await silent.reader.read() == b"", "its token has expired"
        assert await client.ask(PRODUCE)

    closed(tmp_path, scenario)


def test_a_connection_stays_its_users(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        await log_in(client)
        response = await log_in(client, "of-bob")
        assert response["error"] == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert await client.is_closed()
        other = await Client.connect(kafka_client)
        await log_in(other)
        shaken = await shake(other, "PLAIN")
        assert shaken["error"] == ErrorCode.UNSUPPORTED_SASL_MECHANISM

    closed(tmp_path, scenario)


def test_without_a_controller_a_connection_ends_without_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark_broker.security.authenticator.WAIT_SECONDS", 0.5)

    async def scenario(kafka_client: KafkaTestClient) -> None:
        known = await Client.connect(kafka_client)
        await log_in(known)
        client = await Client.connect(kafka_client)
        await shake(client)
        auth_bytes = bearer("gone")
        client.send(request(SASL_AUTHENTICATE, 1, INT32.pack(len(auth_bytes)) + auth_bytes))
        assert await client.reader.read() == b""
        assert await known.ask(PRODUCE)

    closed(tmp_path, scenario)


def test_no_client_fetches_as_a_replica(tmp_path: Path) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        await log_in(client)
        response = decode_fetch_response(bytes(4) + await client.ask(FETCH_OF_A_BROKER))
        assert response.error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    closed(tmp_path, scenario)


@pytest.mark.parametrize("api_key", [0, 2, 3, 8, 17, 19, 36, 60])
def test_a_listener_for_replicas_serves_nobody_else(tmp_path: Path, api_key: int) -> None:
    async def scenario(kafka_client: KafkaTestClient) -> None:
        replica = await Client.connect(kafka_client)
        response = decode_fetch_response(bytes(4) + await replica.ask(FETCH_OF_A_BROKER))
        assert response.error == ErrorCode.NONE
        client = await Client.connect(kafka_client)
        client.send(request(api_key, 0))
        assert await client.reader.read() == b""

    with_kafka_client(tmp_path, scenario, rules=OF_REPLICAS)


@pytest.mark.parametrize("version", [4, 12, 17])
def test_a_listener_for_replicas_gives_no_records_to_consumers(
    tmp_path: Path, version: int
) -> None:
    consumer = encode_fetch_request(
        FetchRequest(0, 1, 1, (), replica_id=-1), correlation_id=7, client_id="c"
    )

    async def scenario(kafka_client: KafkaTestClient) -> None:
        client = await Client.connect(kafka_client)
        client.send(consumer[:6] + INT16.pack(version) + consumer[8:])
        assert await client.reader.read() == b""

    with_kafka_client(tmp_path, scenario, rules=OF_REPLICAS)


def test_hostile_bytes_before_authentication_end_the_connection(tmp_path: Path) -> None:
    blows = [
        request(SASL_HANDSHAKE, 1, INT16.pack(-1)),
        request(SASL_HANDSHAKE, 1, INT16.pack(500) + b"abc"),
        request(SASL_HANDSHAKE, 2),
        request(SASL_AUTHENTICATE, 1, INT32.pack(-1)),
        request(SASL_AUTHENTICATE, 1, INT32.pack(2**31 - 1)),
        request(SASL_AUTHENTICATE, 2, b"\xff" * 12),
        request(SASL_AUTHENTICATE, 3),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64,
        b"GET / HTTP/1.1\r\n\r\n",
    ]

    async def scenario(kafka_client: KafkaTestClient) -> None:
        for blow in blows:
            client = await Client.connect(kafka_client)
            client.send(blow)
            assert await client.is_closed()
        client = await Client.connect(kafka_client)
        assert (await log_in(client))["error"] == ErrorCode.NONE

    closed(tmp_path, scenario)
