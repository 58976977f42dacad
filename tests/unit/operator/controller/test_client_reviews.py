"""What the controller answers about clients, and to whom."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tidemark_operator.controller.client_reviews import ClientReviews
from tidemark_operator.controller.service import ControllerService
from tidemark_operator.security.clients import PasswordUser, ReviewedClient, ReviewUnavailable
from tidemark_operator.security.operator_token import OPERATOR, OperatorTokens
from tidemark_protocol.access_messages import (
    Principal,
    ReviewPasswordRequest,
    ReviewTokenRequest,
    ScramCredentialRequest,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId
from tidemark_protocol.topic_messages import RequestingBroker

BROKER = RequestingBroker("shop/default", BrokerId(1), BrokerEpoch(3))
ALICE = Principal("tidemark:user:alice")


class Clients:
    is_away = False

    async def review_token(self, pool: str, token: str, *, source: str) -> ReviewedClient:
        if self.is_away:
            raise ReviewUnavailable("timeout")
        if (pool, token) == ("shop/default", "good"):
            return ReviewedClient(ALICE, 17)
        return ReviewedClient(None, reason="unknown")

    async def find_user(self, pool: str, name: str) -> PasswordUser | None:
        if self.is_away:
            raise ReviewUnavailable("timeout")
        return PasswordUser(ALICE, "secret") if name == "alice" else None


def reviews(
    *,
    leads: bool = True,
    clients: Clients | None = None,
    operator_tokens: OperatorTokens | None = None,
) -> ClientReviews:
    views = (SimpleNamespace(broker_id=1, broker_epoch=3),)
    controller: Any = SimpleNamespace(
        is_leading=leads,
        controller_epoch=7,
        brokers=lambda pool: views if pool == "shop/default" else (),
    )
    directory = clients or Clients()
    tokens = operator_tokens or OperatorTokens(lambda: 1000.0)
    return ClientReviews(cast(ControllerService, controller), directory, tokens, salt_key=b"k")


def test_a_token_is_reviewed_for_a_registered_broker() -> None:
    response = asyncio.run(reviews().review_token(ReviewTokenRequest(BROKER, "good")))
    assert (response.principal, response.expires_at_ms) == (ALICE, 17)
    assert (response.error, response.controller_epoch) == (ErrorCode.NONE, 7)


@pytest.mark.parametrize("token", ["bad", "x" * 20_000])
def test_another_token_has_no_principal(token: str) -> None:
    response = asyncio.run(reviews().review_token(ReviewTokenRequest(BROKER, token)))
    assert (response.error, response.principal) == (ErrorCode.NONE, None)
    assert response.message


@pytest.mark.parametrize(
    "broker",
    [
        RequestingBroker("shop/default", BrokerId(1), BrokerEpoch(2)),
        RequestingBroker("shop/default", BrokerId(2), BrokerEpoch(3)),
        RequestingBroker("shop/other", BrokerId(1), BrokerEpoch(3)),
    ],
)
def test_nobody_else_is_answered(broker: RequestingBroker) -> None:
    response = asyncio.run(reviews().review_token(ReviewTokenRequest(broker, "good")))
    assert (response.error, response.principal) == (ErrorCode.STALE_BROKER_EPOCH, None)


def test_only_the_leader_answers() -> None:
    request = ReviewTokenRequest(BROKER, "good")
    response = asyncio.run(reviews(leads=False).review_token(request))
    assert (response.error, response.principal) == (ErrorCode.NOT_CONTROLLER, None)


def test_operator_is_known_at_the_broker_that_its_token_is_for() -> None:
    tokens = OperatorTokens(lambda: 1000.0)
    answering = reviews(operator_tokens=tokens)
    token = tokens.authorization("shop/default", BrokerId(1))["Authorization"].split()[1]
    response = asyncio.run(answering.review_token(ReviewTokenRequest(BROKER, token)))
    assert (response.principal, response.expires_at_ms) == (OPERATOR, 1_200_000)
    other = tokens.authorization("shop/default", BrokerId(2))["Authorization"].split()[1]
    response = asyncio.run(answering.review_token(ReviewTokenRequest(BROKER, other)))
    assert response.principal is None


def test_without_the_api_server_nothing_is_said_of_the_client() -> None:
    clients = Clients()
    clients.is_away = True
    answering = reviews(clients=clients)
    found = (
        asyncio.run(answering.review_token(ReviewTokenRequest(BROKER, "good"))),
        asyncio.run(answering.review_password(ReviewPasswordRequest(BROKER, "alice", "secret"))),
        asyncio.run(
            answering.scram_credential(ScramCredentialRequest(BROKER, "alice", "SCRAM-SHA-256"))
        ),
    )
    assert {response.error for response in found} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert {response.principal for response in found} == {None}


@pytest.mark.parametrize(
    ("user", "password", "is_right"),
    [("alice", "secret", True), ("alice", "wrong", False), ("bob", "secret", False)],
)
def test_passwords(user: str, password: str, *, is_right: bool) -> None:
    request = ReviewPasswordRequest(BROKER, user, password)
    response = asyncio.run(reviews().review_password(request))
    assert (response.principal == ALICE) is is_right
    assert response.message == ("" if is_right else "wrong user or password")


def test_an_unknown_scram_user_looks_like_a_known_one() -> None:
    async def found(user: str) -> Any:
        answering = reviews()
        request = ScramCredentialRequest(BROKER, user, "SCRAM-SHA-512")
        first = await answering.scram_credential(request)
        assert (await answering.scram_credential(request)).salt == first.salt
        assert (await reviews().scram_credential(request)).salt == first.salt, "elsewhere too"
        return first

    known, unknown = (asyncio.run(found(user)) for user in ("alice", "bob"))
    assert (known.principal, unknown.principal) == (ALICE, None)
    for name in ("salt", "stored_key", "server_key"):
        assert len(getattr(known, name)) == len(getattr(unknown, name))
    assert known.iterations == unknown.iterations


def test_another_mechanism_is_not_answered() -> None:
    request = ScramCredentialRequest(BROKER, "alice", "SCRAM-SHA-1")
    response = asyncio.run(reviews().scram_credential(request))
    assert response.error is ErrorCode.UNSUPPORTED_SASL_MECHANISM
