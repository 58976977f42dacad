"""A small HTTP server that answers as Prometheus does, and badly where a test wants it to."""

import json
import socket
import struct
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import crc32c
import pyarrow as pa
from tidemark_audit.sources.protobuf import fields, varint, write_bytes, write_number, write_varint

from tests.support.audit_exports import Export
from tests.unit.audit.sources.test_xor_chunks import encode

STREAMED, SAMPLES = 1, 0
Labels = tuple[tuple[str, str], ...]
Series = dict[Labels, list[tuple[int, float]]]


@dataclass(frozen=True)
class Requested:
    """A request for samples of [start, end), and what form of answers it accepts."""

    path: str
    query: str
    start_ms: int
    end_ms: int
    accepted: tuple[int, ...] = ()

    @property
    def length_ms(self) -> int:
        return self.end_ms - self.start_ms


@dataclass
class Reply:
    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    chunked: bool = False
    says_its_length: bool = True
    breaks_after: int | None = None  # bytes; then the connection is cut
    stalls: bool = False  # after what it sends
    trickles: bool = False  # a byte now and then, for ever


class SmallPrometheus:
    """Answers by the forms that it knows; `instead` may give another reply for a request."""

    def __init__(
        self,
        export: Export,
        *,
        base_ms: int,
        forms: Sequence[int] = (STREAMED, SAMPLES),
        encoding: int = 1,
    ) -> None:
        self.series: Series = {
            key: [(base_ms + at_ms, float(value)) for at_ms, value in samples]
            for key, samples in export.series.items()
        }
        self.forms = tuple(forms)
        self.encoding = encoding
        self.requested: list[Requested] = []
        self.instead: Callable[[Requested], Reply | None] = lambda requested: None
        self.ends = threading.Event()

    def reply(self, path: str, body: bytes) -> Reply:
        requested = _of_read(path, body) if path == "/api/v1/read" else _of_query(path, body)
        self.requested.append(requested)
        return self.instead(requested) or self.honest(requested)

    def honest(self, requested: Requested) -> Reply:
        found = {
            key: [
                (at, value) for at, value in samples if requested.start_ms <= at < requested.end_ms
            ]
            for key, samples in self.series.items()
        }
        found = {key: samples for key, samples in found.items() if samples}
        if requested.path == "/api/v1/query":
            return Reply(_document(requested, found), headers={"Content-Type": "application/json"})
        form = next((each for each in requested.accepted if each in self.forms), None)
        if form is None and SAMPLES in self.forms:
            form = SAMPLES  # it knows no types at all, as before 2.13
        if form == STREAMED:
            return Reply(
                b"".join(_frames(found, self.encoding)),
                headers={"Content-Type": "application/x-streamed-protobuf; proto=prometheus"},
                chunked=True,
            )
        if form == SAMPLES:
            headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
            return Reply(_snappy(_plain(found)), headers=headers)
        return Reply(b"404 page not found\n", 404)

    def of_samples(self) -> list[Requested]:
        """What was asked beside the looks before the first slice."""
        return [each for each in self.requested if each.start_ms or "[" in each.query]


def _of_read(path: str, body: bytes) -> Requested:
    request = list(fields(memoryview(_unpacked(body))))
    query = next(value for number, value in request if number == 1)
    assert isinstance(query, memoryview)
    said = {number: value for number, value in fields(query) if isinstance(value, int)}
    types = tuple(value for number, value in request if number == 2 and isinstance(value, int))
    return Requested(path, "", said.get(1, 0), said.get(2, 0) + 1, types)


def _of_query(path: str, body: bytes) -> Requested:
    form = {name: texts[0] for name, texts in urllib.parse.parse_qs(body.decode()).items()}
    end_ms = round(float(form["time"]) * 1000)
    _, bracket, length = form["query"].partition("[")
    length_ms = int(length.removesuffix("ms]")) if bracket else 0
    return Requested(path, form["query"], end_ms - length_ms, end_ms + 1)


def _unpacked(block: bytes) -> bytes:
    size, _ = varint(block, 0)
    return bytes(pa.decompress(block, decompressed_size=size, codec="snappy", asbytes=True))


def _snappy(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="snappy", asbytes=True))


def _document(requested: Requested, found: Series) -> bytes:
    if requested.query.startswith("count("):
        value: list[Any] = [requested.end_ms / 1000, str(len(found))]
        data = {"resultType": "vector", "result": [{"metric": {}, "value": value}]}
    else:
        result = [
            {"metric": dict(key), "values": [[at / 1000, repr(value)] for at, value in samples]}
            for key, samples in found.items()
        ]
        data = {"resultType": "matrix", "result": result}
    return json.dumps({"status": "success", "data": data}).encode()


def _labels(key: Labels) -> bytes:
    pairs = (write_bytes(1, name.encode()) + write_bytes(2, text.encode()) for name, text in key)
    return b"".join(write_bytes(1, pair) for pair in pairs)


def _frames(found: Series, encoding: int) -> Iterator[bytes]:
    for key, samples in found.items():
        times, values = zip(*samples, strict=True)
        chunk = write_number(1, times[0]) + write_number(2, times[-1]) + write_number(3, encoding)
        chunk += write_bytes(4, encode(list(times), list(values)))
        message = write_bytes(1, _labels(key) + write_bytes(2, chunk))
        checksum = crc32c.crc32c(message).to_bytes(4, "big")
        yield write_varint(len(message)) + checksum + message


def _plain(found: Series) -> bytes:
    """A ReadResponse; as proto3 has it, a value of 0 is left out."""

    def sample(at_ms: int, value: float) -> bytes:
        number = b"\x09" + struct.pack("<d", value) if value else b""
        return write_bytes(2, number + write_number(2, at_ms))

    result = b"".join(
        write_bytes(1, _labels(key) + b"".join(sample(at, value) for at, value in samples))
        for key, samples in found.items()
    )
    return write_bytes(1, result)


@contextmanager
def serving(prometheus: SmallPrometheus, *, port: int = 0) -> Iterator[str]:
    """Its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            _send(self, prometheus.reply(self.path, body), prometheus.ends)

        def log_message(self, *args: Any) -> None:
            """Tests look at `requested`."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        prometheus.ends.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _send(handler: BaseHTTPRequestHandler, reply: Reply, ends: threading.Event) -> None:
    handler.close_connection = True
    handler.send_response(reply.status)
    for name, text in reply.headers.items():
        handler.send_header(name, text)
    handler.send_header("Connection", "close")
    body = reply.body
    if reply.chunked:
        handler.send_header("Transfer-Encoding", "chunked")
        pieces = [body[at : at + 4096] for at in range(0, len(body), 4096)]
        body = b"".join(f"{len(each):x}\r\n".encode() + each + b"\r\n" for each in pieces)
        body += b"0\r\n\r\n"
    elif reply.says_its_length:
        handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    try:
        handler.wfile.write(body[: reply.breaks_after])
        handler.wfile.flush()
        while reply.trickles and not ends.wait(0.02):
            handler.wfile.write(b" ")
        if reply.stalls:
            ends.wait(60)
    except OSError:
        return  # the client did not wait
    if reply.breaks_after is not None:
        handler.connection.shutdown(socket.SHUT_RDWR)
