"""The server's side of OAUTHBEARER (RFC 7628)."""

import json

import pytest
from tidemark_broker.security.exchange import (
    AskToken,
    Authenticated,
    AuthenticationFailed,
    Challenge,
    Identity,
    Review,
)
from tidemark_broker.security.sasl_oauthbearer import OauthBearerExchange
from tidemark_protocol.access_messages import Principal

PRINCIPAL = Principal("system:serviceaccount:shop:orders")
MESSAGE = b"n,,\x01auth=Bearer abc.def-g_h~+/==\x01\x01"


@pytest.mark.parametrize(
    "message",
    [
        MESSAGE,
        b"y,,\x01auth=Bearer abc.def-g_h~+/==\x01\x01",
        b"n,a=system:serviceaccount:shop:orders,\x01auth=bearer abc.def-g_h~+/==\x01\x01",
        b"n,,\x01host=example.com\x01port=143\x01auth=BEARER  abc.def-g_h~+/== \x01\x01",
    ],
)
def test_a_token_is_found_and_its_user_authenticated(message: bytes) -> None:
    exchange = OauthBearerExchange()
    assert exchange.on_client(message) == AskToken("abc.def-g_h~+/==")
    identity = Identity(PRINCIPAL, 17)
    assert exchange.on_found(Review(identity)) == Authenticated(identity)


def test_a_rejection_takes_two_steps() -> None:
    exchange = OauthBearerExchange()
    exchange.on_client(MESSAGE)
    challenge = exchange.on_found(Review(None, "it has expired"))
    assert isinstance(challenge, Challenge)
    assert json.loads(challenge.data)["status"] == "invalid_token"
    assert exchange.on_client(b"\x01") == AuthenticationFailed(
        "the token is not valid: it has expired"
    )


def test_no_token_counts_after_a_rejection() -> None:
    exchange = OauthBearerExchange()
    exchange.on_client(MESSAGE)
    exchange.on_found(Review(None))
    assert isinstance(exchange.on_client(MESSAGE), AuthenticationFailed)


def test_a_client_is_nobody_else_than_its_token_says() -> None:
    exchange = OauthBearerExchange()
    exchange.on_client(b"n,a=admin,\x01auth=Bearer abc\x01\x01")
    assert isinstance(exchange.on_found(Review(Identity(PRINCIPAL))), Challenge)
    assert isinstance(exchange.on_client(b"\x01"), AuthenticationFailed)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer abc",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"n,,\x01auth=Bearer \xff\xfe\x01\x01",
        b"n,,\x01auth=Bearer a\nb\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer abc\x01\x01",
        b"n,b=c,\x01auth=Bearer abc\x01\x01",
        b"n,a=\xff,\x01auth=Bearer abc\x01\x01",
        b"n\x01auth=Bearer abc\x01\x01",
        b"auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * 30_000 + b"\x01\x01",
    ],
)
def test_malformed_messages_fail(message: bytes) -> None:
    assert isinstance(OauthBearerExchange().on_client(message), AuthenticationFailed)
