"""Bearer tokens over HTTP: every route but health and metrics, right, wrong and unknown."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tidemark_broker.security import authenticator as module
from tidemark_protocol.access_messages import Principal, ReviewTokenResponse
from tidemark_protocol.error_codes import ErrorCode

from tests.support.access import Reviews
from tests.support.kafka_test_client import authenticator_by
from tests.support.waiting import HANG_SECONDS
from tests.unit.broker.http.consumers.test_consumers import ForgottenConsumer
from tests.unit.broker.http.fake_broker import FakeBroker, Response, fake_broker

RECORDS = json.dumps({"records": [{"value": 1}]}).encode()
JSON_RECORDS = "application/vnd.kafka.json.v2+json"


async def controller(path: str, message: Any, kind: type[Any], *, timeout_ms: int) -> Any:
    """The tokens `alice` and `bob` are those users'; `gone` makes the controller silent."""
    if message.token == "gone":
        return None
    if message.token not in ("alice", "bob", "brief"):
        return ReviewTokenResponse(ErrorCode.NONE, message="it has expired")
    lifetime_s = 0.3 if message.token == "brief" else 3600
    return ReviewTokenResponse(
        ErrorCode.NONE,
        principal=Principal(f"tidemark:user:{message.token}"),
        expires_at_ms=int((time.time() + lifetime_s) * 1000),
    )


def closed(scenario: Callable[[FakeBroker], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(HANG_SECONDS):
            await scenario(
                fake_broker(
                    authenticator=authenticator_by(controller), new_consumer=ForgottenConsumer
                )
            )

    asyncio.run(main())


async def asked(
    broker: FakeBroker,
    method: str,
    target: str,
    authorization: str = "",
    body: bytes = b"",
    raw_path: str = "",
) -> Response:
    headers = {"content-type": JSON_RECORDS}
    if authorization:
        headers["authorization"] = authorization
    response = await broker.client.request(method, target, body, headers, raw_path)
    assert response is not None
    return response


CLOSED_ROUTES = [
    ("GET", "/topics"),
    ("GET", "/topics/orders"),
    ("GET", "/brokers"),
    ("GET", "/groups"),
    ("GET", "/groups?of=broker"),
    ("GET", "/openapi.json"),
    ("GET", "/"),
    ("GET", "/no/such/path"),
    ("POST", "/topics/orders"),
    ("POST", "/topics/orders/partitions/0"),
    ("GET", "/topics/orders/partitions/0/records"),
    ("GET", "/topics/orders/partitions/0/offsets"),
    ("POST", "/consumers/g"),
    ("GET", "/consumers/g/instances/c/records"),
    ("DELETE", "/consumers/g/instances/c"),
    ("HEAD", "/topics"),
    ("OPTIONS", "/topics"),
    ("GET", "/healthz/"),
    ("GET", "//healthz"),
    ("GET", "/metrics/../topics"),
    ("GET", "/METRICS"),
]


@pytest.mark.parametrize(("method", "target"), CLOSED_ROUTES)
def test_each_route_needs_a_token(method: str, target: str) -> None:
    async def scenario(broker: FakeBroker) -> None:
        for authorization in ("", "Bearer wrong"):
            response = await asked(broker, method, target, authorization, RECORDS)
            assert response.status == 401
            assert response.headers["www-authenticate"].startswith('Bearer realm="tidemark"')
            assert json.loads(response.body)["error"] == "SASL_AUTHENTICATION_FAILED"

    closed(scenario)


def test_optional_authentication_authorises_clients_with_a_token_alone() -> None:
    reviews = Reviews()

    async def main() -> None:
        broker = fake_broker(
            authenticator=authenticator_by(controller),
            authorizer=reviews.authorizer(),
            is_optional=True,
        )
        target = "/topics/orders/partitions/0"
        assert (await asked(broker, "POST", target, "", RECORDS)).status == 200
        assert (await asked(broker, "POST", target, "Basic YTpi", RECORDS)).status == 200
        assert (await asked(broker, "POST", target, "Bearer wrong", RECORDS)).status == 401
        assert (await asked(broker, "POST", target, "Bearer alice", RECORDS)).status == 403
        assert (await asked(broker, "GET", "/topics/orders", "Bearer alice")).status == 403
        assert (await asked(broker, "GET", "/topics/orders")).status == 200

    asyncio.run(main())


@pytest.mark.parametrize("target", ["/healthz", "/readyz", "/healthy", "/ready", "/metrics"])
def test_health_and_metrics_need_none(target: str) -> None:
    async def scenario(broker: FakeBroker) -> None:
        for method in ("GET", "HEAD"):
            assert (await asked(broker, method, target)).status == 200

    closed(scenario)


@pytest.mark.parametrize(
    "authorization",
    [
        "Basic YWxpY2U6eA==",
        "Bearer",
        "Bearer ",
        "Bearer a b",
        "Bearer alice, Bearer bob",
        "alice",
        "Bearer al\x00ice",
        "Bearer " + "a" * 20_000,
    ],
)
def test_another_form_is_no_token(authorization: str) -> None:
    async def scenario(broker: FakeBroker) -> None:
        assert (await asked(broker, "GET", "/topics", authorization)).status == 401

    closed(scenario)


def test_a_client_with_a_token_is_served() -> None:
    async def scenario(broker: FakeBroker) -> None:
        for scheme in ("Bearer", "bearer"):
            assert (await asked(broker, "GET", "/topics", f"{scheme} alice")).status == 200
        produced = await asked(broker, "POST", "/topics/orders", "Bearer alice", RECORDS)
        assert produced.status == 200

    closed(scenario)


def test_a_listener_may_be_open() -> None:
    async def scenario(broker: FakeBroker) -> None:
        broker.client.listener = "open"
        assert (await asked(broker, "GET", "/topics")).status == 200

    closed(scenario)


def test_a_consumer_is_its_users() -> None:
    async def scenario(broker: FakeBroker) -> None:
        body = json.dumps({"name": "c", "format": "json"}).encode()
        made = await asked(broker, "POST", "/consumers/g", "Bearer alice", body)
        assert made.status == 200
        path = "/consumers/g/instances/c"
        assert (await asked(broker, "DELETE", path, "Bearer bob")).status == 404
        assert (await asked(broker, "DELETE", path, "Bearer alice")).status == 204

    closed(scenario)


def test_without_a_controller_an_unknown_client_is_told_to_try_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.3)

    async def scenario(broker: FakeBroker) -> None:
        for method in ("GET", "POST"):
            response = await asked(broker, method, "/topics/orders", "Bearer gone", RECORDS)
            assert response.status == 503
            assert response.headers["retry-after"] == "1"

    closed(scenario)


def test_a_stream_ends_with_its_token() -> None:
    async def scenario(broker: FakeBroker) -> None:
        began_s = time.monotonic()
        headers = {"authorization": "Bearer brief", "accept": "application/x-ndjson"}
        await broker.client.request(
            "GET", "/topics/orders/partitions/0/records?offset=0", b"", headers
        )
        assert time.monotonic() - began_s < HANG_SECONDS / 2

    closed(scenario)
