"""Attempts by mass: half-open handshakes, idle connections, slow clients."""

import contextlib
import resource
import socket
import ssl
import struct
import time
from collections.abc import Iterator

import pytest

from tests.security.attacker import Attacker, Bystander, frame, resident_bytes
from tests.support.waiting import wait_for

pytestmark = pytest.mark.cluster
COUNT = 2_000
BOUND = 256 * 64 * 1024 + 24 * 2**20  # of connections of one address; and what others cause
TOO_MANY = "too many unauthenticated connections"


@contextlib.contextmanager
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16_384), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def pid_of(attacker: Attacker, port: str) -> int:
    if port == "controller":
        process = attacker.cluster.process
        assert process is not None
        return process.pid
    return int(attacker.cluster.broker(0)["pid"])


@pytest.mark.parametrize("port", ["kafka", "http_port", "replication", "controller"])
def test_half_open_handshakes(attacker: Attacker, bystander: Bystander, port: str) -> None:
    pid = pid_of(attacker, port)
    before = resident_bytes([pid])
    bystander.longest_gap_s = 0.0
    held: list[socket.socket] = []
    hello = client_hello()
    with many_files():
        try:
            for number in range(COUNT):
                with contextlib.suppress(OSError):
                    stream = attacker.plain(getattr(attacker, port))
                    held.append(stream)
                    stream.sendall(hello if number % 2 else hello[:20])
            after = resident_bytes([pid])
            assert after - before < BOUND, f"{(after - before) / 2**20:.1f} MiB"
            with attacker.known("mallory") as stream:
                assert attacker.asked(stream, frame(18, 0))
            assert attacker.cluster.pool()["brokers"]
        finally:
            for each in held:
                each.close()
    wait_for("a line", lambda: any(line["reason"] == TOO_MANY for line in attacker.lines()))
    assert len([line for line in attacker.lines() if line["reason"] == TOO_MANY]) == 1
    assert bystander.longest_gap_s < 5.0


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        made.do_handshake()
    return outgoing.read()


def test_idle_connections_before_sasl(attacker: Attacker) -> None:
    pid = pid_of(attacker, "kafka")
    before = resident_bytes([pid])
    held = []
    with many_files():
        try:
            for _ in range(600):
                with contextlib.suppress(OSError):
                    held.append(attacker.secured(attacker.kafka))
            assert resident_bytes([pid]) - before < BOUND
            wait_for("the line", lambda: bool(attacker.lines()))
            with attacker.known("mallory") as stream:
                assert attacker.asked(stream, frame(18, 0))
        finally:
            for each in held:
                each.close()
    attacker.rejected_once(TOO_MANY, protocol="kafka")


@pytest.mark.parametrize("port", ["http_port", "controller"])
def test_idle_http_connections(attacker: Attacker, port: str) -> None:
    """More than a port has of unknown clients; a known one keeps its connection."""
    held = []
    token = attacker.token("mallory")
    get = f"GET /topics HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n"
    with many_files(), attacker.secured(attacker.http_port) as known:
        known.sendall(get.encode())
        assert response_of(known).startswith(b"HTTP/1.1 200")
        try:
            for _ in range(400):
                with contextlib.suppress(OSError):
                    held.append(attacker.secured(getattr(attacker, port)))
            wait_for("the line", lambda: bool(attacker.lines()))
            known.sendall(get.encode())
            assert response_of(known).startswith(b"HTTP/1.1 200")
        finally:
            for each in held:
                each.close()
    attacker.rejected_once(TOO_MANY)


def response_of(stream: socket.socket) -> bytes:
    found = b""
    while not found.endswith(b"]}"):
        piece = stream.recv(65536)
        assert piece, "the connection ended"
        found += piece
    return found


def test_slow_clients(attacker: Attacker) -> None:
    """A slow loris at each port: two bytes a second do not extend its deadline."""
    sasl, http, controller = Attacker(attacker.cluster), Attacker(attacker.cluster), attacker
    with (
        sasl.secured(sasl.kafka) as first,
        http.secured(http.http_port) as second,
        controller.secured(controller.controller) as third,
    ):
        for stream in (first, second, third):
            stream.settimeout(0.01)
        first.sendall(struct.pack(">i", 1000))
        second.sendall(b"GET / HTTP/1.1\r\n")
        third.sendall(b"GET / HTTP/1.1\r\n")
        open_streams = {first, second, third}
        began_s = time.monotonic()
        while open_streams and time.monotonic() - began_s < 25:
            for stream in tuple(open_streams):
                try:
                    stream.sendall(b"a")
                    if stream.recv(1) == b"":
                        open_streams.discard(stream)
                except TimeoutError:
                    continue
                except OSError:
                    open_streams.discard(stream)
            time.sleep(0.5)
        assert not open_streams
    sasl.rejected_once("no authentication", protocol="kafka")
    http.rejected_once("slow request head", protocol="http")
    controller.rejected_once("no request", protocol="controller")
