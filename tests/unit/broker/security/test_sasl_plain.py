"""The server's side of PLAIN (RFC 4616)."""

import pytest
from tidemark_broker.security.exchange import (
    AskPassword,
    Authenticated,
    AuthenticationFailed,
    Identity,
    Review,
)
from tidemark_broker.security.sasl_plain import WRONG_CREDENTIALS, PlainExchange
from tidemark_protocol.access_messages import Principal

IDENTITY = Identity(Principal("tidemark:user:tim"))


@pytest.mark.parametrize("message", [b"\0tim\0tanstaaftanstaaf", b"tim\0tim\0tanstaaftanstaaf"])
def test_the_vectors_of_the_rfc(message: bytes) -> None:
    exchange = PlainExchange()
    assert exchange.on_client(message) == AskPassword("tim", "tanstaaftanstaaf")
    assert exchange.on_found(Review(IDENTITY)) == Authenticated(IDENTITY)


def test_a_rejection_tells_no_reason() -> None:
    exchange = PlainExchange()
    exchange.on_client(b"\0tim\0x")
    found = exchange.on_found(Review(None, "no such user"))
    assert found == AuthenticationFailed(WRONG_CREDENTIALS)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"tim",
        b"\0tim",
        b"\0\0password",
        b"\0tim\0",
        b"admin\0tim\0password",
        b"\0tim\0password\0",
        b"\0\xff\0password",
        b"\0tim\0\xff",
        b"\0" + b"u" * 2000 + b"\0p",
        b"\0u\0" + b"p" * 5000,
    ],
)
def test_malformed_messages_fail(message: bytes) -> None:
    assert isinstance(PlainExchange().on_client(message), AuthenticationFailed)
