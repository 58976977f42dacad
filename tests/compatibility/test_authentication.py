"""Unmodified clients against a cluster that asks who they are: each mechanism, right and wrong."""

import asyncio
import base64
import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.compatibility.client_programs import ClientPrograms
from tests.compatibility.programs.java_program import java
from tests.support.client_tools import tool
from tests.support.closed_cluster import (
    closed_cluster,
    oauth_settings,
    password,
    password_settings,
    users,
    write_users,
)
from tests.support.kafka_cluster import LIMIT_SECONDS, bootstrap, librdkafka_settings
from tests.support.local_cluster import LocalCluster, get_json, run_command
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with closed_cluster(tmp_path_factory.mktemp("closed")) as cluster:
        yield cluster


def produced(settings: dict[str, Any], count: int = 20) -> None:
    failed: list[KafkaError] = []
    producer = Producer({"acks": "all", **settings})
    for number in range(count):
        producer.produce(
            "orders",
            b"%d" % number,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(LIMIT_SECONDS) == 0
    assert failed == []


def refusal(settings: dict[str, Any], seconds: float = LIMIT_SECONDS) -> KafkaError | None:
    """What a new producer with these settings is told of its credentials, within this time."""
    told: list[KafkaError] = []
    producer = Producer({**settings, "error_cb": told.append, "log_level": 0})
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        producer.poll(0.1)
        for error in told:
            if error.code() == KafkaError._AUTHENTICATION:
                return error
    return None


# ---- librdkafka


def test_librdkafka_with_oauthbearer_produces_and_consumes_in_a_group(closed: LocalCluster) -> None:
    produced(oauth_settings(closed), 100)
    group = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(oauth_settings(closed, "consumer", **group))
    consumer.subscribe(["orders"])
    found: set[bytes] = set()
    ends = time.monotonic() + LIMIT_SECONDS
    while len(found) < 100 and time.monotonic() < ends:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.add(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    assert len(found) == 100


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_librdkafka_with_a_password(closed: LocalCluster, mechanism: str) -> None:
    produced(password_settings(closed, mechanism, "producer"))


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
@pytest.mark.parametrize("user", ["admin", "nobody"])
def test_librdkafka_is_told_of_wrong_credentials(
    closed: LocalCluster, mechanism: str, user: str
) -> None:
    wrong = {"sasl.username": user, "sasl.password": "wrong"}
    error = refusal(password_settings(closed, mechanism, **wrong))
    assert error is not None and "wrong user or password" in error.str()


def test_librdkafka_is_told_of_a_wrong_token(closed: LocalCluster) -> None:
    def oauth(_: str) -> tuple[str, float]:
        return "no.body.knows", time.time() + 3600

    error = refusal(oauth_settings(closed, oauth_cb=oauth))
    assert error is not None and "the token is not valid" in error.str()


def test_librdkafka_without_sasl_is_not_served(closed: LocalCluster) -> None:
    producer = Producer(librdkafka_settings(closed, **{"message.timeout.ms": 3000, "log_level": 0}))
    failed: list[KafkaError | None] = []
    producer.produce("orders", b"x", on_delivery=lambda error, _: failed.append(error))
    producer.flush(LIMIT_SECONDS)
    assert failed[0] is not None


class _TokenEndpoint(BaseHTTPRequestHandler):
    """The token endpoint of an identity provider (client credentials)."""

    token = ""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps(
            {"access_token": self.token, "token_type": "bearer", "expires_in": 3600}
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_librdkafka_with_its_own_oidc_handler(closed: LocalCluster) -> None:
    handler = type("Endpoint", (_TokenEndpoint,), {"token": closed.token("admin")})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            produced(
                librdkafka_settings(
                    closed,
                    **{
                        "security.protocol": "sasl_plaintext",
                        "sasl.mechanism": "OAUTHBEARER",
                        "sasl.oauthbearer.method": "oidc",
                        "sasl.oauthbearer.client.id": "orders",
                        "sasl.oauthbearer.client.secret": "secret",
                        "sasl.oauthbearer.token.endpoint.url": (
                            f"http://127.0.0.1:{server.server_port}/token"
                        ),
                    },
                )
            )
        finally:
            server.shutdown()
            thread.join()


# ---- other clients in Python


class _PythonToken(AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


def test_kafka_python(closed: LocalCluster) -> None:
    common = {"bootstrap_servers": bootstrap(closed), "security_protocol": "SASL_PLAINTEXT"}
    provider = _PythonToken(closed.token("admin"))
    bearer = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": provider}
    secret = {
        "sasl_plain_username": "admin",
        "sasl_plain_password": password(closed, "admin"),
    }
    ways = [bearer, *({"sasl_mechanism": each, **secret} for each in ("PLAIN", *SCRAM))]
    for way in ways:
        producer = KafkaProducer(**common, **way)
        assert producer.send("orders", b"python").get(LIMIT_SECONDS).offset >= 0
        producer.close()
    with pytest.raises(PythonKafkaError):
        KafkaConsumer(
            **common, sasl_mechanism="PLAIN", sasl_plain_username="admin", sasl_plain_password="x"
        )


class _AioToken(AioTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def test_aiokafka(closed: LocalCluster) -> None:
    async def sent(**way: Any) -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap(closed), security_protocol="SASL_PLAINTEXT", **way
        )
        await producer.start()
        try:
            return int((await producer.send_and_wait("orders", b"aio")).offset)
        finally:
            await producer.stop()

    async def scenario() -> None:
        provider = _AioToken(closed.token("admin"))
        assert await sent(sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=provider) >= 0
        for mechanism in ("PLAIN", *SCRAM):
            offset = await sent(
                sasl_mechanism=mechanism,
                sasl_plain_username="admin",
                sasl_plain_password=password(closed, "admin"),
            )
            assert offset >= 0

    asyncio.run(scenario())


# ---- Java


def java_settings(closed: LocalCluster, mechanism: str) -> str:
    modules = "org.apache.kafka.common.security"
    lines = ["security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={mechanism}"]
    if mechanism == "OAUTHBEARER":
        handler = f"{modules}.oauthbearer.OAuthBearerLoginCallbackHandler"
        lines += [
            f"sasl.jaas.config={modules}.oauthbearer.OAuthBearerLoginModule required;",
            f"sasl.login.callback.handler.class={handler}",
            f"sasl.oauthbearer.jwt.retriever.class={modules}.oauthbearer.FileJwtRetriever",
            f"sasl.oauthbearer.token.endpoint.url=file://{closed.data_dir}/tokens/admin",
        ]
    else:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        secret = password(closed, "admin")
        lines.append(
            f'sasl.jaas.config={modules}.{module} required username="admin" password="{secret}";'
        )
    return "\n".join([*lines, "acks=all", ""])


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "PLAIN", "SCRAM-SHA-512"])
def test_java(
    closed: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    monkeypatch.setenv("TIDEMARK_KAFKA_JARS", tool("kafka/jars"))
    settings = tmp_path / "client.properties"
    settings.write_text(java_settings(closed, mechanism))
    where = ["--bootstrap-server", ",".join(bootstrap(closed)), "--topic", "orders"]
    command = java("VerifiableProducer", *where, "--max-messages", "5", "--acks", "-1")
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed."
    command[1:1] = [
        f"{allowed}files={closed.data_dir}/tokens/admin",
        f"{allowed}urls=file://{closed.data_dir}/tokens/admin",
    ]
    done = subprocess.run(
        [*command, "--command-config", str(settings)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.count("producer_send_success") == 5, done.stdout + done.stderr


# ---- Go, and kcat


@pytest.mark.parametrize(
    ("client", "by"),
    [
        ("franz-go", "token"),
        ("franz-go", "password"),  # SCRAM-SHA-512
        ("sarama", "token"),
        ("sarama", "password"),  # PLAIN
        ("kafka-go", "password"),  # PLAIN
    ],
)
def test_go(
    closed: LocalCluster,
    programs: ClientPrograms,
    monkeypatch: pytest.MonkeyPatch,
    client: str,
    by: str,
) -> None:
    if by == "token":
        monkeypatch.setenv("TIDEMARK_TOKEN", closed.token("admin"))
    else:
        monkeypatch.setenv("TIDEMARK_USER", "admin")
        monkeypatch.setenv("TIDEMARK_PASSWORD", password(closed, "admin"))
    program = programs.run(client, "produce", closed, "orders", count=5)
    assert len(program.named("producer_send_success")) == 5


def test_kcat(closed: LocalCluster) -> None:
    """By PLAIN: its librdkafka 2.0 repeats its nonce in SCRAM, which Kafka rejects too by now."""
    sasl = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "admin",
        "sasl.password": password(closed, "admin"),
    }
    options = [word for name, value in sasl.items() for word in ("-X", f"{name}={value}")]
    where = ["-b", ",".join(bootstrap(closed)), "-t", "orders"]
    done = subprocess.run(
        ["kcat", "-P", *where, *options],
        input=b"kcat\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# ---- HTTP


def posted(url: str, body: object, token: str) -> Any:
    request = urllib.request.Request(
        url,
        data=json.dumps(body).encode(),
        headers={
            "Content-Type": "application/vnd.kafka.json.v2+json",
            **({"Authorization": f"Bearer {token}"} if token else {}),
        },
    )
    with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as response:
        text = response.read()
    return json.loads(text) if text else None


def test_http_needs_a_token_but_for_health_and_metrics(closed: LocalCluster) -> None:
    url = closed.broker_url(0)
    for token in ("", "no.body.knows"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            get_json(f"{url}/topics/orders", token=token)
        assert refused.value.code == 401
        assert refused.value.headers["WWW-Authenticate"].startswith("Bearer")
        assert json.loads(refused.value.read())["error"] == "SASL_AUTHENTICATION_FAILED"
    for path in ("/healthz", "/readyz", "/metrics"):
        with urllib.request.urlopen(url + path, timeout=LIMIT_SECONDS) as response:
            assert response.status == 200


def test_http_records_are_forwarded_as_the_clients(closed: LocalCluster) -> None:
    token = closed.token("producer")
    records = [{"value": number, "partition": number % 3} for number in range(9)]
    for broker_url in closed.broker_urls:
        answer = posted(f"{broker_url}/topics/orders", {"records": records}, token)
        assert [entry["partition"] for entry in answer["offsets"]] == [0, 1, 2] * 3
        assert all(entry["offset"] is not None for entry in answer["offsets"])
    groups = get_json(closed.broker_url(0) + "/groups", token=token)
    assert groups["missing_brokers"] == []


def test_an_http_consumer_reads_as_its_client_and_is_its_own(closed: LocalCluster) -> None:
    token, url = closed.token("consumer"), closed.broker_url(0)
    posted(f"{url}/topics/orders", {"records": [{"value": "for http"}]}, token)
    made = posted(
        f"{url}/consumers/http",
        {"name": "c", "format": "json", "auto.offset.reset": "earliest"},
        token,
    )
    base = made["base_uri"]
    posted(f"{base}/subscription", {"topics": ["orders"]}, token)
    found: list[Any] = []

    def has_read() -> bool:
        found.extend(get_json(f"{base}/records?timeout=1000", token=token))
        return bool(found)

    wait_for("records", has_read, seconds=LIMIT_SECONDS)
    with pytest.raises(urllib.error.HTTPError) as refused:
        get_json(f"{base}/records", token=closed.token("viewer"))
    assert refused.value.code == 404


def test_the_command_line_sends_the_token_of_a_file(
    closed: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    consume = ("consume", "orders", "--from", "earliest", "--max", "1")
    assert run_command(closed, *consume).returncode != 0
    monkeypatch.setenv("TIDEMARK_TOKEN_FILE", str(closed.data_dir / "tokens" / "consumer"))
    done = run_command(closed, *consume)
    assert done.returncode == 0, done.stdout + done.stderr
    done = run_command(closed, "groups")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_live_page_reads_from_brokers(closed: LocalCluster) -> None:
    def is_read() -> bool:
        query = "pool=default/default&topic=orders&first=0"
        return '"watermark"' in json.dumps(
            get_json(f"{closed.controller_url}/v1/isr/topic?{query}")
        )

    wait_for("offsets of replicas", is_read, seconds=LIMIT_SECONDS)


# ---- time


def test_a_client_authenticates_again_with_a_new_token_before_the_old_one_expires(
    closed: LocalCluster,
) -> None:
    """KIP-368: librdkafka re-authenticates on the same connection; nothing fails meanwhile."""
    before = users(closed)
    known = {"name": "short", "password": "p"}

    def renewed() -> str:
        claims = base64.urlsafe_b64encode(os.urandom(12)).decode()
        token = f"short.{claims}.x"
        expires_at_ms = int((time.time() + 6) * 1000)
        kept = [each for each in users(closed) if each["name"] != "short"]
        write_users(closed, [*kept, {**known, "token": token, "expiresAtMs": expires_at_ms}])
        return token

    asked: list[float] = []

    def oauth(_: str) -> tuple[str, float]:
        asked.append(time.monotonic())
        return renewed(), time.time() + 6

    failed: list[KafkaError] = []
    producer = Producer(oauth_settings(closed, oauth_cb=oauth, acks="all"))
    began = time.monotonic()
    while time.monotonic() - began < 14:
        producer.produce(
            "orders",
            b"x",
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0.05)
    assert producer.flush(LIMIT_SECONDS) == 0
    write_users(closed, before)
    assert failed == []
    assert len(asked) >= 2


def test_a_user_that_is_removed_is_refused_within_a_minute(closed: LocalCluster) -> None:
    before = users(closed)
    settings = password_settings(closed, "PLAIN", "viewer")
    produced(settings)
    write_users(closed, [each for each in before if each["name"] != "viewer"])
    try:
        wait_for("the refusal", lambda: refusal(settings, 2.0), seconds=2 * LIMIT_SECONDS)
    finally:
        write_users(closed, before)


def test_without_a_controller_known_clients_go_on_and_unknown_ones_wait(
    closed: LocalCluster,
) -> None:
    assert closed.process is not None
    before = users(closed)
    write_users(closed, [*before, {"name": "new", "token": "n.e.w"}])

    def oauth(_: str) -> tuple[str, float]:
        return "n.e.w", time.time() + 3600

    known, unknown = oauth_settings(closed), oauth_settings(closed, oauth_cb=oauth)
    produced(known)  # every broker knows its token now
    os.kill(closed.process.pid, signal.SIGSTOP)
    try:
        produced(known)
        failed: list[KafkaError | None] = []
        producer = Producer({**unknown, "message.timeout.ms": 5000, "log_level": 0})
        producer.produce("orders", b"x", on_delivery=lambda error, _: failed.append(error))
        producer.flush(LIMIT_SECONDS)
        assert failed[0] is not None
    finally:
        os.kill(closed.process.pid, signal.SIGCONT)
    closed.wait_until_in_sync()
    produced(unknown)
    write_users(closed, before)
