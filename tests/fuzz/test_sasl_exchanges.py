"""Hostile messages in SASL exchanges: each ends in a failure, none in an error or a user."""

import base64
import random

import pytest
from tidemark_broker.security.exchange import (
    AskPassword,
    AskScramCredential,
    AskToken,
    Authenticated,
    AuthenticationFailed,
    Challenge,
    Exchange,
    Found,
    Review,
    ScramCredential,
    Step,
)
from tidemark_broker.security.mechanisms import MECHANISMS, new_exchange
from tidemark_protocol.access_messages import Principal

from tests.fuzz.hostile import mutated

ROUNDS = 2000
NONCE = "3rfcNHYJY1ZVvWVs7j"
PROOF = base64.b64encode(bytes(64))
FIRST = {
    "OAUTHBEARER": [b"n,,\x01auth=Bearer abc.def.ghi\x01\x01", b"n,a=u,\x01auth=Bearer x\x01\x01"],
    "PLAIN": [b"\0user\0password", b"user\0user\0password"],
    "SCRAM-SHA-256": [b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL", b"y,a=user,n=user,r=abc,x=y"],
    "SCRAM-SHA-512": [b"n,,n=us=2Cer,r=fyko+d2lbbFgONRv9qkxdawL"],
}
SECOND = {
    "OAUTHBEARER": [b"\x01"],
    "PLAIN": [b""],
    "SCRAM-SHA-256": [b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL" + NONCE.encode() + b",p=" + PROOF],
    "SCRAM-SHA-512": [b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL" + NONCE.encode() + b",p=" + PROOF],
}


def found_for(step: Step) -> Found | None:
    """What a controller says that knows no such token and password, but every name."""
    if isinstance(step, AskToken | AskPassword):
        return Review(None, "unknown")
    if isinstance(step, AskScramCredential):
        size = 32 if step.mechanism == "SCRAM-SHA-256" else 64
        return ScramCredential(Principal("u"), b"salt", 4096, b"\x07" * size, b"\x08" * size)
    return None


def hostile(messages: list[bytes], rng: random.Random) -> bytes:
    message = rng.choice(messages)
    return mutated(message, rng) if rng.random() < 0.8 else message


def exchanged(exchange: Exchange, mechanism: str, rng: random.Random) -> Step:
    step = exchange.on_client(hostile(FIRST[mechanism], rng))
    for _ in range(3):
        found = found_for(step)
        if found is not None:
            step = exchange.on_found(found)
        if not isinstance(step, Challenge):
            return step
        step = exchange.on_client(hostile(SECOND[mechanism] + FIRST[mechanism], rng))
    return step


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_hostile_messages_authenticate_no_client(mechanism: str) -> None:
    rng = random.Random(mechanism)
    failed = 0
    for _ in range(ROUNDS):
        exchange = new_exchange(mechanism, lambda: NONCE)
        assert exchange is not None
        step = exchanged(exchange, mechanism, rng)
        assert not isinstance(step, Authenticated)
        failed += isinstance(step, AuthenticationFailed)
    assert failed > ROUNDS * 9 // 10
