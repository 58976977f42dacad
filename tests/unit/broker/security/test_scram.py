"""The server's side of SCRAM: the vectors of RFC 7677, and what it rejects."""

import base64
import hashlib
import hmac
import random

import pytest
from tidemark_broker.security.exchange import (
    AskScramCredential,
    Authenticated,
    AuthenticationFailed,
    Challenge,
    Identity,
    ScramCredential,
)
from tidemark_broker.security.sasl_plain import WRONG_CREDENTIALS
from tidemark_broker.security.scram import HASHES, ScramExchange
from tidemark_protocol.access_messages import Principal

USER = Principal("tidemark:user:user")
# RFC 7677, section 3.
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def credential(
    password: str = "pencil",
    mechanism: str = "SCRAM-SHA-256",
    *,
    principal: Principal | None = USER,
) -> ScramCredential:
    name = HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password.encode(), SALT, 4096)
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    return ScramCredential(
        principal, SALT, 4096, stored_key, hmac.digest(salted, b"Server Key", name)
    )


def exchange(found: ScramCredential | None = None) -> ScramExchange:
    """An exchange that has sent its challenge, if there is a credential."""
    begun = ScramExchange("SCRAM-SHA-256", NONCE)
    if found is not None:
        assert begun.on_client(FIRST) == AskScramCredential("user", "SCRAM-SHA-256")
        assert begun.on_found(found) == Challenge(CHALLENGE)
    return begun


def client_final(
    mechanism: str, password: str, first: bytes, server_first: bytes, header: bytes = b"n,,"
) -> bytes:
    """What a client of these answers, made apart from the product."""
    name = HASHES[mechanism]
    fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
    salt = base64.b64decode(fields["s"])
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", name)
    bare = b"c=" + base64.b64encode(header) + b",r=" + fields["r"].encode()
    signed = first[len(header) :] + b"," + server_first + b"," + bare
    signature = hmac.digest(hashlib.new(name, client_key).digest(), signed, name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return bare + b",p=" + base64.b64encode(proof)


def test_the_vector_of_the_rfc() -> None:
    assert exchange(credential()).on_client(FINAL) == Authenticated(Identity(USER), SIGNATURE)


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("header", [b"n,,", b"y,,", b"n,a=user,"])
def test_each_mechanism_and_each_header_without_channel_binding(
    mechanism: str, header: bytes
) -> None:
    begun = ScramExchange(mechanism, NONCE)
    first = header + b"n=user,r=abc"
    assert begun.on_client(first) == AskScramCredential("user", mechanism)
    challenge = begun.on_found(credential("secret", mechanism))
    assert isinstance(challenge, Challenge)
    final = client_final(mechanism, "secret", first, challenge.data, header)
    assert isinstance(begun.on_client(final), Authenticated)


def test_a_wrong_password_and_an_unknown_user_fail_alike() -> None:
    wrong = exchange(credential("pen")).on_client(FINAL)
    # Even with the very keys: there is no such user.
    unknown = exchange(credential(principal=None)).on_client(FINAL)
    assert wrong == unknown == AuthenticationFailed(WRONG_CREDENTIALS)


def test_escaped_names_are_read() -> None:
    begun = ScramExchange("SCRAM-SHA-256", NONCE)
    assert begun.on_client(b"n,,n=a=2Cb=3Dc,r=x") == AskScramCredential("a,b=c", "SCRAM-SHA-256")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=,r=x",
        b"n,,n=user,r=",
        b"n,,n=user",
        b"n,,r=x,n=user",
        b"p=tls-unique,,n=user,r=x",
        b"z,,n=user,r=x",
        b"n,a=other,n=user,r=x",
        b"n,,m=ext,n=user,r=x",
        b"n,,n=us=er,r=x",
        b"n,,n=us=2cer,r=x",
        b"n,,n=\xff\xfe,r=x",
        b"n,,n=user,r=\x07",
        b"n,,n=user,r=x,",
        b"n,,n=user\0,r=x",
        b"n,,n=" + b"u" * 2000 + b",r=x",
        b"n,,n=user,r=" + b"x" * 5000,
        b"\xff" * 100,
    ],
)
def test_malformed_first_messages_fail(message: bytes) -> None:
    assert isinstance(exchange().on_client(message), AuthenticationFailed)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        FINAL.replace(b"c=biws", b"c=eSws"),  # y,, although the client said n,,
        FINAL.replace(b"c=biws", b"c=cD10bHMtdW5pcXVlLCw="),
        FINAL.replace(b"r=rOpr", b"r=xOpr"),
        FINAL.replace(b"k0,p", b"k1,p"),
        FINAL.replace(b"p=dH", b"p=dX"),
        FINAL[:-8],
        FINAL.replace(b",p=", b",p=!"),
        FINAL + b",x=y",
        FINAL.rpartition(b",p=")[0],
        FINAL.rpartition(b"p=")[0] + b"p=",
        FIRST,
        b"\0" * 64,
    ],
)
def test_final_messages_that_prove_nothing_fail(message: bytes) -> None:
    assert isinstance(exchange(credential()).on_client(message), AuthenticationFailed)


def test_no_changed_message_is_taken_for_a_proof() -> None:
    rng, found_credential = random.Random(5), credential()
    for _ in range(3000):
        blow = bytearray(FINAL)
        for _ in range(rng.randint(1, 4)):
            blow[rng.randrange(len(blow))] = rng.randrange(256)
        if bytes(blow) != FINAL:
            found = exchange(found_credential).on_client(bytes(blow))
            assert isinstance(found, AuthenticationFailed), blow
