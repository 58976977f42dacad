"""A real broker under a thousand connections that do not read, or do not finish what they send: its
resident memory stays below what docs/user/kafka.md says, and a well-behaved client is served."""

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kafka_cluster import Sending, read_all
from tests.support.kafka_test_client import fetch, request
from tests.support.local_cluster import LocalCluster, running

pytestmark = pytest.mark.cluster

MIB = 2**20
CONNECTIONS = 1000
LARGEST = 100  # MiB of a request
# The three pools, one request of the largest size, and 64 KiB a connection that its socket holds
# unsent (docs/user/kafka.md), and a part for what the allocator keeps.
BOUND_BYTES = (64 + 64 + 128 + LARGEST + 64) * MIB * 5 // 4
ONE_BROKER = """
apiVersion: tidemark.dev/v1alpha1
kind: Topic
metadata: {name: orders}
spec: {partitions: 3, replicationFactor: 1, config: {min.insync.replicas: "1"}}
"""


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


@contextlib.contextmanager
def connections(cluster: LocalCluster, data: bytes, *, receive_bytes: int) -> Iterator[None]:
    """So many that send `data` as far as it is taken, and read nothing."""
    with contextlib.ExitStack() as stack:
        rest: dict[socket.socket, memoryview] = {}
        for _ in range(CONNECTIONS):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            connection.connect(("127.0.0.1", cluster.first_port + 5))
            connection.setblocking(False)
            rest[connection] = memoryview(data)
        for _ in range(20):
            for connection, unsent in tuple(rest.items()):
                with contextlib.suppress(BlockingIOError):
                    try:
                        rest[connection] = unsent[connection.send(unsent[: 4 * MIB]) :]
                    except ConnectionError:
                        del rest[connection]  # cut
        yield


@pytest.mark.parametrize("kind", ["slow-readers", "half-sent", "half-sent-largest"])
def test_memory_is_bounded_under_a_thousand_slow_connections(tmp_path: Path, kind: str) -> None:
    with running(tmp_path, brokers=1, manifest=ONE_BROKER) as cluster:
        cluster.wait_until_in_sync(seconds=60)
        pid = int(cluster.broker(0)["pid"])
        sending = Sending(cluster)
        sending.send((bytes(500_000) for _ in range(120)), partition=0)
        sending.flush()
        before = resident_bytes(pid)
        data = {
            "slow-readers": fetch(max_bytes=50 * MIB) * 4,
            "half-sent": request(0, 3, bytes(16 * MIB - 100))[:-1],
            "half-sent-largest": request(0, 3, bytes(LARGEST * MIB - 100))[:-1],
        }[kind]
        highest = 0
        with connections(cluster, data, receive_bytes=4096):
            other = Sending(cluster)
            other.send((b"%d" % number for number in range(100)), partition=1)
            other.flush()
            deadline = time.monotonic() + 3
            while time.monotonic() < deadline:
                highest = max(highest, resident_bytes(pid))
                time.sleep(0.02)
            found = [message for message in read_all(cluster) if message.partition() == 1]
            assert len(found) == len(other.acknowledged) == 100
            highest = max(highest, resident_bytes(pid))
        assert highest - before < BOUND_BYTES, (highest, before)
