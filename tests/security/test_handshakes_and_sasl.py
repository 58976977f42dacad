"""Attempts without credentials, or with those of others: TLS and SASL."""

import base64
import json
import socket
import ssl
import struct
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tidemark_broker.kafka_wire.messages.fetch import FetchRequest, encode_fetch_request
from tidemark_broker.kafka_wire.messages.sasl import SASL_AUTHENTICATE_API
from tidemark_protocol.error_codes import ErrorCode

from tests.security.attacker import (
    Attacker,
    ended,
    forged_token,
    frame,
    oauth_message,
    plain_message,
    read_all,
)
from tests.support.certificates import TestPool
from tests.support.closed_cluster import users, write_users
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED


def unverified(**versions: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    for name, version in versions.items():
        setattr(context, f"{name}_version", version)
    return context


def shut(attacker: Attacker, port: int, context: ssl.SSLContext) -> None:
    """Check that nothing is served on a connection with this context."""
    try:
        with attacker.secured(port, context) as stream:
            stream.sendall(frame(18, 0))
            assert read_all(stream) == b""
    except OSError:
        pass


# ---- TLS


@pytest.mark.parametrize(
    "version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1], ids=["1.0", "1.1"]
)
def test_old_tls_version(attacker: Attacker, version: ssl.TLSVersion) -> None:
    shut(attacker, attacker.kafka, unverified(minimum=version, maximum=version))
    attacker.rejected_once("TLS: TLS version", protocol="kafka")


@pytest.mark.parametrize("ciphers", ["AES128-SHA", "ECDHE-RSA-NULL-SHA:AECDH-NULL-SHA", "ADH"])
def test_weak_cipher(attacker: Attacker, ciphers: str) -> None:
    context = unverified(maximum=ssl.TLSVersion.TLSv1_2)
    context.set_ciphers(f"{ciphers}:@SECLEVEL=0")
    shut(attacker, attacker.kafka, context)
    attacker.rejected_once("TLS: no shared cipher", protocol="kafka")


@pytest.mark.parametrize("port", ["kafka", "http_port", "replication", "controller"])
@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", frame(18, 0)], ids=["http", "kafka"])
def test_plain_text_at_a_tls_port(attacker: Attacker, port: str, sent: bytes) -> None:
    with attacker.plain(getattr(attacker, port)) as stream:
        stream.sendall(sent)
        assert ended(stream) or read_all(stream)[:1] in (b"", b"\x03")  # an alert
    attacker.rejected_once("TLS: plain text at a TLS port")


def test_renegotiation(attacker: Attacker) -> None:
    """TLS 1.2: Python cannot ask for it, so what counts is that the server says it cannot."""
    context = unverified(maximum=ssl.TLSVersion.TLSv1_2)
    with attacker.secured(attacker.kafka, context) as stream:
        assert stream.version() == "TLSv1.2"
        # A renegotiation is a ClientHello inside of the session: bytes that are no Kafka frame.
        stream.sendall(b"\x16\x03\x03\x00\x05\x01\x00\x00\x01\x00")
        assert ended(stream)
    attacker.rejected_once("TLS", protocol="kafka")


# ---- the listener of replicas


def fetch_as(broker_id: int) -> bytes:
    request = FetchRequest(0, 1, 1, (), replica_id=broker_id, replica_epoch=1)
    return encode_fetch_request(request, correlation_id=7, client_id="b")


def test_replication_without_a_certificate(attacker: Attacker) -> None:
    shut(attacker, attacker.replication, unverified())
    attacker.rejected_once("TLS: no client certificate", listener="@replication")


def test_replication_with_the_certificate_of_another_pool(attacker: Attacker) -> None:
    """Of the same names, by another authority."""
    context = TestPool(pool="default/default").broker(1).peers_out
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    shut(attacker, attacker.replication, context)
    attacker.rejected_once("TLS: certificate of an unknown authority", listener="@replication")


def self_signed(tmp_path: Path, *, name: str, is_expired: bool) -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    start, end = now - timedelta(days=2), now + timedelta(days=-1 if is_expired else 1)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return context_of(tmp_path, made.public_bytes(serialization.Encoding.PEM), key)


def context_of(
    tmp_path: Path, certificate_pem: bytes, key: ec.EllipticCurvePrivateKey
) -> ssl.SSLContext:
    path = tmp_path / "certificate.pem"
    path.write_bytes(
        certificate_pem
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = unverified()
    context.load_cert_chain(path)
    return context


@pytest.mark.parametrize("is_expired", [False, True], ids=["self-signed", "expired"])
def test_replication_with_a_certificate_of_its_own(
    attacker: Attacker, tmp_path: Path, is_expired: bool
) -> None:
    name = "broker-1.default.default.tidemark.internal"
    context = self_signed(tmp_path, name=name, is_expired=is_expired)
    shut(attacker, attacker.replication, context)
    attacker.rejected_once("TLS: certificate of an unknown authority", listener="@replication")


def test_fetch_as_a_follower_on_the_port_of_clients(attacker: Attacker) -> None:
    with attacker.known("admin") as stream:
        answer = attacker.asked(stream, fetch_as(1))
    error = int.from_bytes(answer[9:11], "big", signed=True)
    assert answer == b"" or error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED, answer
    attacker.rejected_once("fetch as a replica", protocol="kafka")


@pytest.mark.parametrize("broker_id", [1, 2])
def test_certificate_of_one_broker_that_fetches_as_another(
    attacker: Attacker, tmp_path: Path, broker_id: int
) -> None:
    """The attacker has taken over broker 0: its certificate is good for broker 0 only."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"broker-{broker_id}")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    pem = request.public_bytes(serialization.Encoding.PEM).decode()
    body = json.dumps({"pool": "default/default", "broker_id": 0, "request_pem": pem}).encode()
    status, answer = attacker.get(
        "/v1/sign-certificate", method="POST", body=body, port=attacker.controller,
        token=attacker.cluster.token_file(0).read_text(),
    )  # fmt: skip
    assert status == 200
    signed = json.loads(answer.split(b"\r\n\r\n", 1)[1])["certificate_pem"]
    context = context_of(tmp_path, signed.encode(), key)
    with attacker.secured(attacker.replication, context) as stream:
        found = attacker.asked(stream, fetch_as(broker_id))
    assert found[9:11] == int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED).to_bytes(2, "big"), found
    attacker.rejected_once("fetch as a replica", listener="@replication")


# ---- SASL

CLAIMS = {
    "sub": "system:serviceaccount:shop:orders",
    "aud": ["tidemark/default/default"],
    "exp": 4_000_000_000,
}
TOKENS: dict[str, str] = {
    "alg none": forged_token({"alg": "none", "typ": "JWT"}, CLAIMS, ""),
    "HS256 by a public key": forged_token({"alg": "HS256"}, CLAIMS, "public"),
    "kid of a path": forged_token({"alg": "RS256", "kid": "../../etc/passwd"}, CLAIMS, "x"),
    "jku of the attacker": forged_token({"alg": "RS256", "jku": "http://evil/"}, CLAIMS, "x"),
    "other audience": forged_token(
        {"alg": "RS256"}, {**CLAIMS, "aud": ["tidemark/shop/other"]}, "x"
    ),
    "subject of an administrator": forged_token(
        {"alg": "none"}, {**CLAIMS, "sub": "tidemark:user:admin"}, "x"
    ),
    "no JWT": "x",
    "huge": "a" * 20_000,
}


@pytest.mark.parametrize("name", list(TOKENS))
def test_forged_token_by_sasl(attacker: Attacker, name: str) -> None:
    found = attacker.sasl("OAUTHBEARER", oauth_message(TOKENS[name]))
    assert found["error"] == FAILED
    line = attacker.rejected_once("authentication failed", protocol="kafka")
    assert TOKENS[name] not in str(line) or len(TOKENS[name]) < 5


@pytest.mark.parametrize("token", ["a\0b", "a\r\nb: c", "a b", "\x01auth=Bearer x"])
def test_token_with_control_characters(attacker: Attacker, token: str) -> None:
    assert attacker.sasl("OAUTHBEARER", oauth_message(token))["error"] == FAILED
    attacker.rejected_once("authentication failed")


def test_authorization_identity_of_another_user(attacker: Attacker) -> None:
    token = attacker.token("mallory")
    message = oauth_message(token, authorization_id="tidemark:user:admin")
    first = b""
    with attacker.secured(attacker.kafka) as stream:
        attacker.handshake(stream, "OAUTHBEARER")
        found = attacker.authenticate(stream, message)
        if found["error"] == ErrorCode.NONE:  # an error document; the client has to end it
            first = bytes(found["auth_bytes"])
            found = attacker.authenticate(stream, b"\x01")
    assert found["error"] == FAILED and (b"invalid_token" in first or not first)
    attacker.rejected_once("authentication failed")


def test_plain_authorization_identity(attacker: Attacker) -> None:
    message = plain_message(attacker.cluster, attacker.mallory, authorization_id="admin")
    assert attacker.sasl("PLAIN", message)["error"] == FAILED
    attacker.rejected_once("authentication failed")


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "EXTERNAL", "", "GSSAPI", "scram-sha-1"])
def test_mechanism_downgrade(attacker: Attacker, mechanism: str) -> None:
    with attacker.secured(attacker.kafka) as stream:
        found = attacker.handshake(stream, mechanism)
        assert found is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert attacker.authenticate(stream, b"x")["error"] == ErrorCode.ILLEGAL_SASL_STATE
        assert ended(stream)
    attacker.rejected_once("authentication failed")


def test_authenticate_without_a_handshake(attacker: Attacker) -> None:
    with attacker.secured(attacker.kafka) as stream:
        assert attacker.authenticate(stream, b"\0a\0b")["error"] == ErrorCode.ILLEGAL_SASL_STATE
        assert ended(stream)
    attacker.rejected_once("authentication failed")


def scram(attacker: Attacker, stream: socket.socket, first: bytes) -> bytes:
    attacker.handshake(stream, "SCRAM-SHA-256")
    found = attacker.authenticate(stream, first)
    return bytes(found["auth_bytes"]) if found["error"] == ErrorCode.NONE else b""


SCRAM_FINALS: dict[str, Callable[[bytes], bytes]] = {
    "nonce of the client alone": lambda nonce: b"c=biws,r=abc,p=" + base64.b64encode(b"x" * 32),
    "nonce with more": lambda nonce: b"c=biws,r=" + nonce + b"A,p=" + base64.b64encode(b"x" * 32),
    "another header": lambda nonce: b"c=eSws,r=" + nonce + b",p=" + base64.b64encode(b"x" * 32),
    "empty proof": lambda nonce: b"c=biws,r=" + nonce + b",p=",
    "proof of zeros": lambda nonce: b"c=biws,r=" + nonce + b",p=" + base64.b64encode(bytes(32)),
}


@pytest.mark.parametrize("name", list(SCRAM_FINALS))
def test_scram_without_the_password(attacker: Attacker, name: str) -> None:
    with attacker.secured(attacker.kafka) as stream:
        challenge = scram(attacker, stream, b"n,,n=admin,r=abc")
        nonce = challenge.split(b",")[0][2:]
        assert nonce.startswith(b"abc") and len(nonce) > 30
        assert attacker.authenticate(stream, SCRAM_FINALS[name](nonce))["error"] == FAILED
        assert ended(stream)
    attacker.rejected_once("authentication failed")


@pytest.mark.parametrize(
    "first",
    [
        b"n,,n=admin,r=abc,i=2000000000",  # an extension: iterations are the server's to say
        b"p=tls-unique,,n=admin,r=abc",
        b"n,a=admin,n=mallory,r=abc",
        b"n,,m=x,n=admin,r=abc",
        b"n,,n=ad=00min,r=abc",
        b"n,,n=" + b"a" * 5000 + b",r=abc",
    ],
    ids=["iteration bomb", "channel binding", "authzid", "extension m", "escape", "long"],
)
def test_scram_first_message(attacker: Attacker, first: bytes) -> None:
    began_s = time.monotonic()
    with attacker.secured(attacker.kafka) as stream:
        attacker.handshake(stream, "SCRAM-SHA-256")
        found = attacker.authenticate(stream, first)
        if found["error"] == ErrorCode.NONE:
            found = attacker.authenticate(stream, b"c=biws,r=x,p=eA==")
        assert found["error"] == FAILED
        assert ended(stream)
    assert time.monotonic() - began_s < 5
    attacker.rejected_once("authentication failed")


def test_replay_of_a_scram_exchange(attacker: Attacker) -> None:
    """The server creates a new nonce for each exchange, so it rejects a recorded proof."""
    nonces = set()
    for _ in range(2):
        with attacker.secured(attacker.kafka) as stream:
            nonces.add(scram(attacker, stream, b"n,,n=admin,r=abc").split(b",")[0])
    assert len(nonces) == 2
    assert attacker.lines() == []


def test_wrong_user_and_wrong_password_take_as_long(attacker: Attacker) -> None:
    took: dict[bytes, list[float]] = {b"admin": [], b"nobody": []}
    for _ in range(4):
        for user, times in took.items():
            began_s = time.monotonic()
            found = attacker.sasl("PLAIN", b"\0" + user + b"\0wrong")
            times.append(time.monotonic() - began_s)
            assert (found["error"], found["message"]) == (FAILED, "wrong user or password")
    assert abs(median(took[b"admin"]) - median(took[b"nobody"])) < 0.05
    attacker.rejected_once("authentication failed")  # the others are counted


def test_request_before_sasl(attacker: Attacker) -> None:
    with attacker.secured(attacker.kafka) as stream:
        assert attacker.asked(stream, frame(3, 1, struct.pack(">i", -1))) == b""
    attacker.rejected_once("malformed request")


@pytest.mark.parametrize("size", [33 * 1024, 100 * 2**20, 2**31 - 1, -1])
def test_oversized_frame_before_sasl(attacker: Attacker, size: int) -> None:
    with attacker.secured(attacker.kafka) as stream:
        stream.sendall(struct.pack(">i", size) + frame(17, 1)[4:])
        assert ended(stream)
    attacker.rejected_once("malformed frame")


def test_authentication_again_as_another_user(attacker: Attacker) -> None:
    with attacker.known("mallory") as stream:
        attacker.handshake(stream, "OAUTHBEARER")
        found = attacker.authenticate(stream, oauth_message(attacker.cluster.token("admin")))
        assert found["error"] == FAILED
        assert ended(stream)
    attacker.rejected_once("authentication failed")


def test_authentication_again_by_another_mechanism(attacker: Attacker) -> None:
    with attacker.known("mallory") as stream:
        assert attacker.handshake(stream, "PLAIN") is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        found = attacker.authenticate(stream, plain_message(attacker.cluster, attacker.mallory))
        assert found["error"] == ErrorCode.ILLEGAL_SASL_STATE
    attacker.rejected_once("authentication failed")


def test_token_after_its_expiry(attacker: Attacker) -> None:
    """A token that was valid is replayed: on a new connection, and on the one that it opened."""
    cluster = attacker.cluster
    token = forged_token({"alg": "none"}, CLAIMS, "brief")
    expires_ms = int((time.time() + 3) * 1000)
    brief = {"name": "brief", "token": token, "password": "", "expiresAtMs": expires_ms}
    write_users(cluster, [*users(cluster), brief])
    with attacker.secured(attacker.kafka) as stream:
        attacker.handshake(stream, "OAUTHBEARER")
        found = attacker.authenticate(stream, oauth_message(token))
        assert found["error"] == ErrorCode.NONE and found["session_lifetime_ms"] <= 3000
        wait_for("its expiry", lambda: time.time() * 1000 > expires_ms + 100)
        assert ended(stream)
    assert attacker.sasl("OAUTHBEARER", oauth_message(token))["error"] == FAILED
    attacker.rejected_once("authentication failed")


def test_bare_authentication_of_version_0(attacker: Attacker) -> None:
    """SaslHandshake v0, then bytes without a header: as other requests they are not taken."""
    with attacker.secured(attacker.kafka) as stream:
        assert attacker.asked(stream, frame(17, 0, b"\0\x05PLAIN"))
        bare = b"\0admin\0wrong"
        assert attacker.asked(stream, struct.pack(">i", len(bare)) + bare) == b""
    assert attacker.lines()


def test_sasl_authenticate_message_of_the_largest_size(attacker: Attacker) -> None:
    values = {"auth_bytes": b"\0" * 32_000}
    with attacker.secured(attacker.kafka) as stream:
        attacker.handshake(stream, "PLAIN")
        assert attacker.call(stream, SASL_AUTHENTICATE_API, 2, values)["error"] == FAILED
    attacker.rejected_once("authentication failed")


def test_client_that_leaves_after_a_rejection(attacker: Attacker) -> None:
    """By RFC 7628 a client ends an exchange that has failed; one that leaves has its line too."""
    with attacker.secured(attacker.kafka) as stream:
        attacker.handshake(stream, "OAUTHBEARER")
        found = attacker.authenticate(stream, oauth_message("x.y.z"))
        assert b"invalid_token" in bytes(found["auth_bytes"])
    attacker.rejected_once("authentication failed")
