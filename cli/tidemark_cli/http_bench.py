"""Produce over HTTP for measurements: N connections, each with one request in flight.

It writes HTTP/1.1 to plain streams, with a request prepared once: aiohttp's own cost (about 0.1 ms
of CPU a request) would dominate on a machine shared with the brokers.
"""

import asyncio
import base64
import os
import time
from collections import Counter
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec
from tidemark_chaos.verification import percentile
from tidemark_client.credentials import authorization
from tidemark_client.responses import read_problem
from tidemark_client.trust import tls_context

BINARY_V2 = "application/vnd.kafka.binary.v2+json"
RESPONSE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class BenchSettings:
    topic: str
    connections: int = 64
    records_per_request: int = 1
    record_bytes: int = 1024
    seconds: float = 5.0
    warm_up_seconds: float = 1.0
    acks: str = "all"


@dataclass(frozen=True, slots=True)
class BenchResult:
    records_per_request: int
    connections: int
    requests: int
    failures: dict[str, int]  # by error; a request that failed is in no other figure
    records_per_second: float
    p50_ms: float
    p99_ms: float


class _Connection:
    """Hold one keep-alive connection to a partition's leader."""

    def __init__(self, leader_url: str, partition: int, settings: BenchSettings) -> None:
        self._address = urlsplit(leader_url)
        self._settings = settings
        self._request = _request(self._address.netloc, partition, settings)
        self.latencies_ms: list[float] = []
        self.failures: Counter[str] = Counter()

    async def run(self, counting_from: float, until: float) -> None:
        """Send requests until the first failure.

        A broken connection must not look like a slow one.
        """
        reader, writer = await asyncio.open_connection(
            self._address.hostname, self._address.port, ssl=tls_context(self._address.geturl())
        )
        try:
            while (sent := time.perf_counter()) < until:
                writer.write(self._request)
                async with asyncio.timeout(RESPONSE_SECONDS):
                    status, body = await _read_response(reader)
                if status != 200:
                    self.failures[read_problem(status, body).error] += 1
                elif sent >= counting_from:
                    self.latencies_ms.append((time.perf_counter() - sent) * 1000)
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            self.failures[type(error).__name__] += 1
        finally:
            writer.close()


async def run_bench(leader_urls: list[str], settings: BenchSettings) -> BenchResult:
    """`leader_urls`: of partition 0, 1, ...; connections are dealt out to them in turn."""
    connections = [
        _Connection(leader_urls[number % len(leader_urls)], number % len(leader_urls), settings)
        for number in range(settings.connections)
    ]
    counting_from = time.perf_counter() + settings.warm_up_seconds
    until = counting_from + settings.seconds
    async with asyncio.TaskGroup() as tasks:
        for connection in connections:
            tasks.create_task(connection.run(counting_from, until))
    latencies = sorted(latency for entry in connections for latency in entry.latencies_ms)
    return BenchResult(
        records_per_request=settings.records_per_request,
        connections=settings.connections,
        requests=len(latencies),
        failures=dict(sum((entry.failures for entry in connections), Counter())),
        records_per_second=round(len(latencies) * settings.records_per_request / settings.seconds),
        p50_ms=round(percentile(latencies, 50), 2),
        p99_ms=round(percentile(latencies, 99), 2),
    )


def _request(host: str, partition: int, settings: BenchSettings) -> bytes:
    value = base64.b64encode(os.urandom(settings.record_bytes)).decode()
    body = msgspec.json.encode({"records": [{"value": value}] * settings.records_per_request})
    token = "".join(f"{name}: {value}\r\n" for name, value in authorization().items())
    head = (
        f"POST /topics/{settings.topic}/partitions/{partition}?acks={settings.acks} HTTP/1.1\r\n"
        f"Host: {host}\r\nContent-Type: {BINARY_V2}\r\nContent-Length: {len(body)}\r\n{token}\r\n"
    )
    return head.encode() + body


async def _read_response(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body. Raises ValueError for what is not HTTP."""
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0
    )
    body = await reader.readexactly(length)
    return int(lines[0].split()[1]), body
