"""What an attacker has: sockets from an address of its own, and bytes of any kind.

Each attempt comes from another loopback address, so that its lines in the audit log are its own.
"""

import base64
import contextlib
import itertools
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from tidemark_broker.kafka_wire.messages.sasl import SASL_AUTHENTICATE_API, SASL_HANDSHAKE_API
from tidemark_broker.kafka_wire.messages.schema import Api, Values
from tidemark_protocol.error_codes import ErrorCode

from tests.support.closed_cluster import oauth_settings, password
from tests.support.local_cluster import LocalCluster
from tests.support.waiting import wait_for

TIMEOUT_S = 15.0
MALLORIES = tuple(f"mallory{number}" for number in range(80))
_numbers = itertools.count(2)


@dataclass
class Attacker:
    cluster: LocalCluster
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def address(self) -> str:
        return f"127.0.{self.number}.1"

    @property
    def mallory(self) -> str:
        """Return the user of this attacker alone: the log has a bound for each."""
        return MALLORIES[self.number % len(MALLORIES)]

    @property
    def principal(self) -> str:
        return f"tidemark:user:{self.mallory}"

    def token(self, user: str) -> str:
        return self.cluster.token(self.mallory if user == "mallory" else user)

    # ---- ports

    @property
    def kafka(self) -> int:
        return self.cluster.first_port + 5

    @property
    def http_port(self) -> int:
        return self.cluster.first_port

    @property
    def controller(self) -> int:
        return self.cluster.first_port + 11

    @property
    def replication(self) -> int:
        return self.cluster.first_port + 12

    # ---- connections

    def plain(self, port: int) -> socket.socket:
        found = socket.create_connection(
            ("127.0.0.1", port), TIMEOUT_S, source_address=(self.address, 0)
        )
        found.settimeout(TIMEOUT_S)
        return found

    def secured(self, port: int, context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
        context = context or self.cluster.context()
        assert context is not None
        return context.wrap_socket(self.plain(port), server_hostname="localhost")

    # ---- Kafka

    def asked(self, stream: socket.socket, frame: bytes) -> bytes:
        """Return the response without its length; b"" if the connection ended."""
        try:
            stream.sendall(frame)
            return received_frame(stream)
        except OSError:
            return b""

    def call(
        self, stream: socket.socket, api: Api, version: int, values: Mapping[str, Any]
    ) -> Values:
        frame = api.encode_request(7, version, "attacker", values)
        answer = self.asked(stream, frame)
        assert answer, "the connection ended"
        return api.decode_response(answer, version)[1]

    def handshake(self, stream: socket.socket, mechanism: str) -> ErrorCode:
        found = self.call(stream, SASL_HANDSHAKE_API, 1, {"mechanism": mechanism})
        return ErrorCode(found["error"])

    def authenticate(self, stream: socket.socket, auth_bytes: bytes) -> Values:
        return self.call(stream, SASL_AUTHENTICATE_API, 2, {"auth_bytes": auth_bytes})

    def sasl(self, mechanism: str, auth_bytes: bytes) -> Values:
        """Return the answer to one message on a new connection, which then ends."""
        with self.secured(self.kafka) as stream:
            assert self.handshake(stream, mechanism) is ErrorCode.NONE
            found = self.authenticate(stream, auth_bytes)
            if b"invalid_token" in bytes(found["auth_bytes"]):  # RFC 7628: the client ends it
                found = self.authenticate(stream, b"\x01")
            if found["error"] != ErrorCode.NONE:
                assert ended(stream)
            return found

    def known(self, user: str, port: int | None = None) -> ssl.SSLSocket:
        """Return a connection that is authenticated as a user."""
        stream = self.secured(port or self.kafka)
        assert self.handshake(stream, "OAUTHBEARER") is ErrorCode.NONE
        found = self.authenticate(stream, oauth_message(self.token(user)))
        assert found["error"] == ErrorCode.NONE, found
        return stream

    def as_user(self, user: str, api: Api, version: int, values: Mapping[str, Any]) -> Values:
        with self.known(user) as stream:
            return self.call(stream, api, version, values)

    # ---- HTTP

    def http(self, request: bytes, *, port: int | None = None) -> bytes:
        """Return all that is answered until the connection ends or nothing comes for a second."""
        with self.secured(port or self.http_port) as stream:
            try:
                stream.sendall(request)
            except OSError:
                return b""
            return read_all(stream)

    def get(
        self, path: str, *, user: str = "", more: str = "", port: int | None = None,
        method: str = "GET", token: str = "", body: bytes = b"",
    ) -> tuple[int, bytes]:  # fmt: skip
        token = token or (self.token(user) if user else "")
        head = f"{method} {path} HTTP/1.1\r\nConnection: close\r\n{more}"
        if "host:" not in more.lower():
            head += "Host: 127.0.0.1\r\n"
        if token:
            head += f"Authorization: Bearer {token}\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        answer = self.http(head.encode() + b"\r\n" + body, port=port)
        return status_of(answer), answer

    # ---- the audit log

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines about this attacker."""
        return [line for line in audit_lines(self.cluster) if line["address"] == self.address]

    def rejected_once(self, reason: str, **fields: str) -> dict[str, Any]:
        """Wait for the one line of the attempt, and return it."""
        wait_for(f"a line about {self.address}", lambda: bool(self.lines()), seconds=15)
        (line,) = self.lines()
        assert (line["audit"], line["reason"]) == ("rejected", reason), line
        assert line.items() >= fields.items(), line
        return line


def audit_lines(cluster: LocalCluster) -> list[dict[str, Any]]:
    found = []
    for path in sorted(cluster.data_dir.glob("logs/*.log")):
        # The last piece is a line that is being written, or empty.
        for text in path.read_text(errors="replace").split("\n")[:-1]:
            if '"audit":' in text:
                assert len(text.splitlines()) == 1, "one line for every reader"
                found.append(json.loads(text))
    return found


def received_frame(stream: socket.socket) -> bytes:
    size = _exactly(stream, 4)
    return _exactly(stream, int.from_bytes(size, "big")) if size else b""


def _exactly(stream: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        piece = stream.recv(count - len(found))
        if not piece:
            return b""
        found += piece
    return found


def ended(stream: socket.socket) -> bool:
    """Return whether the server ended the connection, without another byte."""
    try:
        return stream.recv(1) == b""
    except (ConnectionError, ssl.SSLError):
        return True


def read_all(stream: socket.socket, *, quiet_s: float = 1.0) -> bytes:
    stream.settimeout(quiet_s)
    found = b""
    with contextlib.suppress(OSError):
        while piece := stream.recv(65536):
            found += piece
    return found


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def oauth_message(token: str, *, authorization_id: str = "") -> bytes:
    header = f"n,{'a=' + authorization_id if authorization_id else ''},"
    return f"{header}\x01auth=Bearer {token}\x01\x01".encode()


def forged_token(header: Mapping[str, object], claims: Mapping[str, object], sign: str) -> str:
    parts = [json.dumps(header), json.dumps(claims), sign]
    return ".".join(base64.urlsafe_b64encode(each.encode()).decode().rstrip("=") for each in parts)


def plain_message(cluster: LocalCluster, user: str, *, authorization_id: str = "") -> bytes:
    return f"{authorization_id}\0{user}\0{password(cluster, user)}".encode()


def frame(api_key: int, version: int, body: bytes = b"", client_id: bytes = b"attacker") -> bytes:
    head = struct.pack(">hhih", api_key, version, 7, len(client_id)) + client_id
    return struct.pack(">i", len(head) + len(body)) + head + body


def produce_frame(topic: str, batch: bytes, *, acks: int = -1) -> bytes:
    """v3, for partition 0."""
    name = topic.encode()
    body = struct.pack(">hhii", -1, acks, 5000, 1) + struct.pack(">h", len(name)) + name
    body += struct.pack(">iii", 1, 0, len(batch)) + batch
    return frame(0, 3, body)


def produce_error(answer: bytes, topic: str) -> int:
    position = 4 + 4 + 2 + len(topic.encode()) + 4 + 4  # correlation, topics, name, partitions, 0
    return int.from_bytes(answer[position : position + 2], "big", signed=True)


class Bystander:
    """A client that behaves, is authenticated, and must never have an error."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.acknowledged = 0
        self.errors: list[str] = []
        self.longest_gap_s = 0.0
        self._last_s = 0.0
        settings: dict[str, Any] = {
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(cluster.ca_file),
            "acks": "all",
            "retries": 0,
            "error_cb": self._on_error,
        }
        self._producer = Producer(oauth_settings(cluster, "producer", **settings))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._producer.produce("orders", b"fine", on_delivery=self._on_delivery)
            self._producer.poll(0.02)
            self._stop.wait(0.02)

    def _on_error(self, error: KafkaError) -> None:
        self.errors.append(str(error))

    def _on_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        now_s = time.monotonic()
        if self._last_s:
            self.longest_gap_s = max(self.longest_gap_s, now_s - self._last_s)
        self._last_s = now_s
        self.acknowledged += 1

    @contextlib.contextmanager
    def unharmed(self) -> Iterator[None]:
        """Check that it went on, and had no error."""
        before, errors = self.acknowledged, len(self.errors)
        yield
        wait_for("the bystander goes on", lambda: self.acknowledged > before + 2, seconds=15)
        assert self.errors[errors:] == []

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT_S)
        assert self._producer.flush(TIMEOUT_S) == 0


def resident_bytes(pids: Sequence[int]) -> int:
    total = 0
    for pid in pids:
        total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    return total
