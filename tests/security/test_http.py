"""Attempts over HTTP: at a broker, and at the controller API."""

import contextlib
import json
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.local_tokens import broker_token

from tests.security.attacker import Attacker, audit_lines, forged_token, read_all, status_of

pytestmark = pytest.mark.cluster
SECRET = "secret-plans"


# ---- at a broker


@pytest.mark.parametrize(
    "token",
    ["", "x", forged_token({"alg": "none"}, {"sub": "tidemark:user:admin"}, ""), "a" * 20_000],
    ids=["none", "no JWT", "alg none", "huge"],
)
def test_no_valid_token(attacker: Attacker, token: str) -> None:
    status, answer = attacker.get("/topics", token=token)
    assert status == 401 and b"www-authenticate: bearer" in answer.lower()
    line = attacker.rejected_once("authentication failed", protocol="http")
    assert not token or len(token) < 5 or token not in str(line)


@pytest.mark.parametrize(
    "path",
    [
        f"/topics/{SECRET}",
        f"/topics/{SECRET}/partitions/0/records?offset=0",
        f"/topics/own/..%2f{SECRET}",
        f"/topics/own/../{SECRET}",
        f"/topics/%2e%2e%2f{SECRET}",
        f"/topics/..%252f{SECRET}",
        "/topics/..%5c..%5cetc%5cpasswd",
        "//topics//" + SECRET,
        "/groups",
        "/groups/../groups",
    ],
)
def test_paths_of_others(attacker: Attacker, path: str) -> None:
    status, answer = attacker.get(path, user="mallory")
    assert status in (400, 403, 404), answer
    assert b'"records":[{' not in answer and b'"partition_count"' not in answer
    lines = attacker.lines()
    assert len(lines) <= 1 and (status != 403 or lines[0]["reason"] == "access denied")


def test_absolute_form_names_the_same_topic(attacker: Attacker) -> None:
    status, _ = attacker.get(f"http://evil.example/topics/{SECRET}", user="mallory")
    assert status in (400, 403, 404)


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "DELETE", "PATCH", "PROPFIND"])
def test_methods(attacker: Attacker, method: str) -> None:
    path = "127.0.0.1:22" if method == "CONNECT" else f"/topics/{SECRET}"
    status, answer = attacker.get(path, method=method, user="mallory")
    assert status in (0, 400, 403, 404, 405), answer
    assert b"Bearer" not in answer, "nothing is echoed"


def test_websocket_upgrade(attacker: Attacker) -> None:
    more = (
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"
        "Connection: Upgrade\r\n"
    )
    status, _ = attacker.get(f"/topics/{SECRET}", more=more, user="mallory")
    assert status in (400, 403, 404, 426)


SMUGGLED = b"GET /topics/" + SECRET.encode() + b" HTTP/1.1\r\nHost: a\r\n\r\n"
SMUGGLES = {
    "both lengths": (b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    "two lengths": (b"Content-Length: 4\r\nContent-Length: 40\r\n", b"abcd"),
    "chunked twice": (b"Transfer-Encoding: chunked, chunked\r\n", b"0\r\n\r\n"),
    "space before colon": (b"Transfer-Encoding : chunked\r\n", b"0\r\n\r\n"),
    "negative length": (b"Content-Length: -1\r\n", b""),
    "length with a sign": (b"Content-Length: +4\r\n", b"abcd"),
    "folded header": (b"X: a\r\n Transfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    "chunk size overflow": (
        b"Transfer-Encoding: chunked\r\n", b"ffffffffffffffffff\r\nabc\r\n0\r\n\r\n"
    ),
    "bare line feed": (b"X: a\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    "NUL in a header": (b"X: a\0b\r\n", b""),
}  # fmt: skip


@pytest.mark.parametrize("name", list(SMUGGLES))
def test_smuggling(attacker: Attacker, name: str) -> None:
    """No request that a proxy would take for a body is answered with records or a 2xx."""
    head, body = SMUGGLES[name]
    token = attacker.token("mallory").encode()
    request = b"POST /topics/own HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + token + b"\r\n"
    request += b"Content-Type: application/json\r\n" + head + b"\r\n" + body + SMUGGLED
    answer = attacker.http(request)
    assert b"HTTP/1.1 2" not in answer
    assert answer.count(b'"partition_count"') == 0
    assert status_of(answer) in (0, 400, 401, 403, 404, 411, 413, 415, 422, 501), answer


def test_headers_without_end(attacker: Attacker) -> None:
    with attacker.secured(attacker.http_port) as stream:
        stream.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n")
        try:
            for _ in range(200):
                stream.sendall(b"X-Bomb: " + b"a" * 1000 + b"\r\n")
        except OSError:
            pass
        answer = read_all(stream)
    assert status_of(answer) in (0, 400, 431)
    attacker.rejected_once("request head too large", protocol="http")


def test_many_headers(attacker: Attacker) -> None:
    with attacker.secured(attacker.http_port) as stream:
        with contextlib.suppress(OSError):
            stream.sendall(b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * 20_000)
        assert status_of(read_all(stream)) in (0, 400, 431)
    attacker.rejected_once("request head too large", protocol="http")


def test_body_without_end(attacker: Attacker) -> None:
    """Without a token no byte of a body is waited for."""
    with attacker.secured(attacker.http_port) as stream:
        stream.sendall(b"POST /topics/own HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nx")
        answer = read_all(stream)
    assert status_of(answer) == 401
    attacker.rejected_once("authentication failed")


def test_body_that_is_too_large(attacker: Attacker) -> None:
    token = attacker.token("mallory")
    head = (
        f"POST /topics/own HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {2**31}\r\n\r\n"
    )
    assert status_of(attacker.http(head.encode() + b"[")) == 413


def test_log_line_by_path(attacker: Attacker) -> None:
    attacker.get("/topics/a%0d%0a%7b%22audit%22%3a%22forged%22%7d", user="mallory")
    assert all(line["audit"] == "rejected" for line in attacker.lines())
    assert not [line for line in audit_lines(attacker.cluster) if line["audit"] == "forged"]


# ---- at the controller API


def sent(
    attacker: Attacker, path: str, body: Any, token: str = "", *, more: str = "",
    method: str = "POST",
) -> tuple[int, bytes]:  # fmt: skip
    return attacker.get(
        path, method=method, token=token, body=json.dumps(body).encode(), more=more,
        port=attacker.controller,
    )  # fmt: skip


def registration(broker_id: int) -> dict[str, object]:
    return {
        "pool": "default/default", "broker_id": broker_id, "cluster_id": "",
        "incarnation": "forged",
        "endpoints": {"host": "127.0.0.1", "kafka_port": 1, "http_port": 2,
                      "advertised_http_url": "http://127.0.0.1:2"},
        "rack": "", "storage": {"directory_id": "forged"}, "clean_stop_epoch": -1,
        "highest_controller_epoch": -1, "highest_broker_epoch": -1, "highest_producer_id": -1,
    }  # fmt: skip


def tokens(attacker: Attacker) -> dict[str, tuple[str, int, str]]:
    cluster = attacker.cluster
    other = cluster.token_file(0).read_text()
    return {
        "none": ("", 401, "NoToken"),
        "of another broker": (other, 403, "OtherBroker"),
        "of another broker, changed": (other.replace(":0.", ":1."), 401, "InvalidToken"),
        "of a guessed secret": (
            broker_token(b"guess", "default/default", BrokerId(1)),
            401,
            "InvalidToken",
        ),
        "of a client": (cluster.token("admin"), 401, "InvalidToken"),
        "alg none": (forged_token({"alg": "none"}, {"sub": "x"}, ""), 401, "InvalidToken"),
        "huge": ("a" * 17_000, 401, "InvalidToken"),
    }


NAMES = (
    "none", "of another broker", "of another broker, changed", "of a guessed secret",
    "of a client", "alg none",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_forged_registration(attacker: Attacker, name: str) -> None:
    token, status, reason = tokens(attacker)[name]
    before = attacker.cluster.broker(1)["incarnation"]
    found, _ = sent(attacker, "/v1/register", registration(1), token)
    assert found == status
    line = attacker.rejected_once(reason, protocol="controller")
    assert attacker.cluster.broker(1)["incarnation"] == before
    assert not token or token not in str(line)


RPCS = (
    "/v1/heartbeat", "/v1/alter-partition", "/v1/allocate-producer-ids", "/v1/create-topics",
    "/v1/delete-topics", "/v1/review-token", "/v1/review-access", "/v1/review-password",
    "/v1/scram-credential", "/v1/sign-certificate",
)  # fmt: skip


@pytest.mark.parametrize("path", RPCS)
def test_controller_by_the_token_of_a_client(attacker: Attacker, path: str) -> None:
    found, answer = sent(attacker, path, {}, attacker.cluster.token("admin"))
    assert found == 401, answer
    attacker.rejected_once("InvalidToken", resource=path)


def csr(names: list[str], *, is_authority: bool) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]))
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize("is_authority", [False, True], ids=["other names", "CA"])
def test_names_of_a_request_for_a_certificate_are_ignored(
    attacker: Attacker, is_authority: bool
) -> None:
    """With the token of broker 0, as who took over that broker would."""
    wanted = ["broker-1.default.default.tidemark.internal", "controller.tidemark.internal"]
    body = {
        "pool": "default/default", "broker_id": 0,
        "request_pem": csr(wanted, is_authority=is_authority),
    }  # fmt: skip
    status, answer = sent(
        attacker, "/v1/sign-certificate", body, attacker.cluster.token_file(0).read_text()
    )
    assert status == 200
    pem = json.loads(answer.split(b"\r\n\r\n", 1)[1])["certificate_pem"]
    made = x509.load_pem_x509_certificate(pem.encode())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    found = set(names.get_values_for_type(x509.DNSName))
    assert not found & set(wanted), found
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_certificate_of_another_broker(attacker: Attacker) -> None:
    body = {
        "pool": "default/default", "broker_id": 1, "request_pem": csr(["x"], is_authority=False)
    }  # fmt: skip
    token = attacker.cluster.token_file(0).read_text()
    assert sent(attacker, "/v1/sign-certificate", body, token)[0] == 403
    attacker.rejected_once("OtherBroker")


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "127.0.0.1@evil", ""]
)
def test_dns_rebinding(attacker: Attacker, host: str) -> None:
    status, _ = attacker.get("/v1/status", more=f"Host: {host}\r\n", port=attacker.controller)
    assert status in (400, 403)
    lines = attacker.lines()
    assert len(lines) <= 1 and (status == 400 or lines[0]["reason"] == "UnknownHost")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "/v1/topics/secret-plans"),
        ("PATCH", "/v1/topics/secret-plans"),
        ("POST", "/v1/apply"),
        ("PATCH", "/v1/brokerpools/default"),
        ("POST", "/v1/topics"),
    ],
)
def test_changes_without_the_secret(attacker: Attacker, method: str, path: str) -> None:
    assert sent(attacker, path, {}, method=method)[0] == 401
    attacker.rejected_once("NoToken", verb=method, resource=path)


@pytest.mark.parametrize(
    "path", ["/ui/..%2f..%2fcontroller.secret", "/ui/../../etc/passwd", "/ui/%2e%2e/main.py"]
)
def test_files_beside_the_page(attacker: Attacker, path: str) -> None:
    status, answer = attacker.get(path, port=attacker.controller)
    assert status in (400, 403, 404), answer


@pytest.mark.parametrize("name", ["both lengths", "chunk size overflow", "space before colon"])
def test_smuggling_at_the_controller(attacker: Attacker, name: str) -> None:
    head, body = SMUGGLES[name]
    request = b"POST /v1/register HTTP/1.1\r\nHost: 127.0.0.1\r\n" + head + b"\r\n" + body
    answer = attacker.http(request + SMUGGLED, port=attacker.controller)
    assert status_of(answer) in (0, 400, 401, 413), answer
