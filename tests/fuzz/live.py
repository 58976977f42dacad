"""Hostile bytes at the Kafka ports of real brokers, while a good client writes through the same."""

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.hostile import LENGTHS, mutated
from tests.support.kafka_cluster import Sending, bootstrap, read_all
from tests.support.local_cluster import LocalCluster

MOST_GROWN_BYTES = 200_000_000
OPEN_AT_ONCE = 40
RESPONSE_SECONDS = 0.05
OTHER_LANGUAGES = (
    b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"",
)

Bodies = dict[tuple[int, int], list[bytes]]  # of requests, by API key and version


@dataclass
class Report:
    connections: int = 0
    frames: int = 0
    responded: int = 0
    closed: int = 0
    wrong: list[str] = field(default_factory=list)


def frame(api_key: int, version: int, body: bytes, chance: random.Random) -> bytes:
    """With a header, and mostly with the length that it has."""
    client = b"\x00\x04fuzz"
    head = struct.pack(">hhi", api_key, version, chance.getrandbits(31)) + client
    tags = chance.choice((b"\x00", b""))  # right for flexible versions, or for the others
    whole = head + tags + body
    length = struct.pack(">i", len(whole))
    return (chance.choice(LENGTHS)[:4] if chance.random() < 0.05 else length) + whole


def attack(cluster: LocalCluster, bodies: Bodies, chance: random.Random, seconds: float) -> Report:
    """Opens, writes, sometimes reads, sometimes leaves open what it began."""
    report = Report()
    kinds = sorted(bodies)
    ports = [int(address.split(":")[1]) for address in bootstrap(cluster)]
    until = time.monotonic() + seconds
    with contextlib.ExitStack() as left_open:
        while time.monotonic() < until:
            if report.connections % OPEN_AT_ONCE == 0:
                left_open.close()
            report.connections += 1
            connection = left_open.enter_context(socket.socket())
            connection.settimeout(RESPONSE_SECONDS)
            connection.connect(("127.0.0.1", chance.choice(ports)))
            with contextlib.suppress(OSError):
                if chance.random() < 0.1:
                    connection.sendall(chance.choice(OTHER_LANGUAGES))
                    continue
                for _ in range(chance.randrange(1, 6)):
                    api_key, version = chance.choice(kinds)
                    body = chance.choice(bodies[api_key, version])
                    sent = frame(api_key, version, mutated(body, chance), chance)
                    connection.sendall(
                        sent[: chance.randrange(len(sent))] if chance.random() < 0.1 else sent
                    )
                    report.frames += 1
                got = connection.recv(65536)
                report.responded += bool(got)
                report.closed += not got
    return report


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


@contextlib.contextmanager
def unharmed(cluster: LocalCluster, report: Report) -> Iterator[None]:
    """What is wrong afterwards stands in the report: brokers that fell or grew, records lost."""
    before = {n: int(cluster.broker(n)["pid"]) for n in range(cluster.brokers)}
    grown_from = {n: resident_bytes(pid) for n, pid in before.items()}
    ended = threading.Event()
    sending = Sending(cluster, **{"enable.idempotence": True, "linger.ms": 5})
    sent: list[bytes] = []

    def write() -> None:
        while not ended.wait(0.005):
            sent.append(b"good-%d" % len(sent))
            sending.send([sent[-1]])
        sending.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()
    after = {n: int(cluster.broker(n)["pid"]) for n in range(cluster.brokers)}
    if after != before:
        report.wrong.append(f"brokers fell: pids {before}, then {after}")
        return
    for number, pid in after.items():
        grown = resident_bytes(pid) - grown_from[number]
        if grown > MOST_GROWN_BYTES:
            report.wrong.append(f"broker {number} has grown by {grown} bytes")
    counts = Counter(message.value() for message in read_all(cluster))
    if sending.failed or not sent or {counts[value] for value in sent} != {1}:
        report.wrong.append(f"a good client was harmed: {len(sent)} sent, {sending.failed[:3]}")
