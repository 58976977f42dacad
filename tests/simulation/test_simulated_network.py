"""Connections as the kernels of simulated machines would treat them."""

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from tests.simulation.engine.messages import MessageFaults, MessageServer, RequestFailed, request
from tests.simulation.engine.processes import SimulatedProcess
from tests.simulation.engine.simulated_cluster import Cluster

HERE, THERE = "10.9.0.1", "10.9.0.2"
PORT = 1234


class Recorder(asyncio.Protocol):
    def __init__(self) -> None:
        self.heard: list[str] = []
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.heard.append("made")

    def data_received(self, data: bytes) -> None:
        self.heard.append(data.decode())

    def connection_lost(self, exc: Exception | None) -> None:
        self.heard.append("lost" if exc is None else type(exc).__name__)


class Harness:
    """A client process and a server process on two machines."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.client = cluster.spawn("client", cluster.new_machine("here"), HERE)
        self.server = cluster.spawn("server", cluster.new_machine("there"), THERE)
        self.accepted: list[Recorder] = []
        self.mine = Recorder()
        self.server.start(self.listen)

    async def listen(self) -> None:
        def accept() -> Recorder:
            self.accepted.append(Recorder())
            return self.accepted[-1]

        await asyncio.get_running_loop().create_server(accept, THERE, PORT)
        await asyncio.Event().wait()

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self.mine, THERE, PORT)
        await asyncio.Event().wait()

    def run(self, work: Coroutine[Any, Any, Any], process: SimulatedProcess) -> None:
        process.loop.call_soon(lambda: process.loop.create_task(work))

    def connected(self) -> None:
        self.cluster.run_for(1)
        self.run(self.connect(), self.client)
        self.cluster.run_for(10)

    def send(self, *texts: str) -> None:
        for text in texts:
            self.client.loop.call_soon(lambda text=text: self.mine.transport.write(text.encode()))

    @property
    def theirs(self) -> Recorder:
        assert len(self.accepted) == 1
        return self.accepted[0]


def test_bytes_arrive_in_order_and_a_close_after_them() -> None:
    with Cluster(1) as cluster:
        bench = Harness(cluster)
        bench.connected()
        bench.send("a", "b", "c")
        bench.client.loop.call_soon(lambda: bench.mine.transport.close())
        cluster.run_for(10)
        assert "".join(bench.theirs.heard) == "madeabclost"
        assert bench.mine.heard == ["made", "lost"]


def test_a_port_that_nobody_listens_at_refuses_at_once() -> None:
    with Cluster(1) as cluster:
        bench = Harness(cluster)
        bench.server.kill()
        refused: list[OSError] = []

        async def connect() -> None:
            try:
                await bench.connect()
            except OSError as error:
                refused.append(error)

        bench.run(connect(), bench.client)
        cluster.run_for(5)
        assert [type(error) for error in refused] == [ConnectionRefusedError]


def test_a_killed_process_closes_its_connections_and_a_frozen_one_keeps_them() -> None:
    with Cluster(1) as cluster:
        bench = Harness(cluster)
        bench.connected()
        bench.server.freeze()
        bench.send("waits")
        cluster.run_for(5_000)
        assert (bench.theirs.heard, bench.mine.heard) == (["made"], ["made"])
        bench.server.thaw()
        cluster.run_for(1)
        assert bench.theirs.heard == ["made", "waits"]
        bench.server.kill()
        cluster.run_for(5)
        assert bench.mine.heard == ["made", "lost"]


def test_a_connection_to_a_frozen_process_is_made_by_its_kernel() -> None:
    with Cluster(1) as cluster:
        bench = Harness(cluster)
        cluster.run_for(1)
        bench.server.freeze()
        bench.connected()
        assert bench.mine.heard == ["made"]
        assert bench.accepted == []


def test_one_blocked_direction_swallows_until_it_heals() -> None:
    with Cluster(1) as cluster:
        bench = Harness(cluster)
        bench.connected()
        cluster.network.block("here", "there")
        bench.send("a", "b")
        bench.server.loop.call_soon(lambda: bench.theirs.transport.write(b"answer"))
        cluster.run_for(10_000)
        assert bench.theirs.heard == ["made"]
        assert bench.mine.heard == ["made", "answer"]
        cluster.network.unblock("here", "there")
        cluster.run_for(1_000)
        assert "".join(bench.theirs.heard) == "madeab"


def test_a_connection_through_a_blocked_link_is_made_after_it_healed() -> None:
    with Cluster(1) as cluster:
        bench = Harness(cluster)
        cluster.run_for(1)
        cluster.network.block("there", "here")
        bench.connected()
        cluster.run_for(3_000)
        assert (bench.mine.heard, bench.accepted) == ([], [])
        cluster.network.unblock("there", "here")
        cluster.run_for(1_500)
        assert (bench.mine.heard, bench.theirs.heard) == (["made"], ["made"])


def test_a_machine_without_power_says_nothing_and_resets_after_its_boot() -> None:
    with Cluster(1) as cluster:
        bench = Harness(cluster)
        bench.connected()
        bench.server.machine.lose_power()
        bench.send("a")
        cluster.run_for(5_000)
        assert bench.mine.heard == ["made"]
        bench.server.machine.boot()
        cluster.run_for(1_000)
        assert bench.mine.heard == ["made", "ConnectionResetError"]


def test_a_reset_is_heard_by_both() -> None:
    with Cluster(1) as cluster:
        bench = Harness(cluster)
        bench.connected()
        cluster.network.reset(bench.mine.transport)
        cluster.run_for(5)
        assert bench.mine.heard == bench.theirs.heard == ["made", "ConnectionResetError"]


def test_what_a_paused_reader_left_is_read_later() -> None:
    with Cluster(1) as cluster:
        bench = Harness(cluster)
        bench.connected()
        bench.theirs.transport.pause_reading()
        bench.send("a")
        cluster.run_for(5)
        bench.send("b")
        cluster.run_for(5)
        assert bench.theirs.heard == ["made"]
        bench.server.loop.call_soon(lambda: bench.theirs.transport.resume_reading())
        cluster.run_for(5)
        assert bench.theirs.heard == ["made", "ab"]


# ---- messages


class Asking:
    """A server of one path, and what a client heard of it."""

    def __init__(self, cluster: Cluster, faults: MessageFaults | None = None) -> None:
        self.cluster = cluster
        self.calls: list[str] = []
        self.heard: list[object] = []
        self.client = cluster.spawn("client", cluster.new_machine("here"), HERE)
        self.server = cluster.spawn("server", cluster.new_machine("there"), THERE)
        messages = MessageServer({"/echo": self.echo}, faults or MessageFaults(), Random(1))

        async def serve() -> None:
            await messages.start(THERE, PORT)
            await asyncio.Event().wait()

        self.server.start(serve)
        cluster.run_for(1)

    async def echo(self, _: str, body: bytes) -> bytes:
        self.calls.append(body.decode())
        try:
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            self.calls.append("cancelled")
            raise
        return body.upper()

    def ask(self, path: str = "/echo", *, timeout_s: float = 1.0) -> None:
        async def call() -> None:
            try:
                async with asyncio.timeout(timeout_s):
                    self.heard.append(await request(THERE, PORT, path, b"hello"))
            except (TimeoutError, OSError, RequestFailed) as error:
                self.heard.append(type(error))

        self.client.loop.call_soon(lambda: self.client.loop.create_task(call()))


def test_a_request_is_answered() -> None:
    with Cluster(2) as cluster:
        requesting = Asking(cluster)
        requesting.ask()
        requesting.ask("/else")
        cluster.run_for(200)
        assert requesting.heard == [RequestFailed, b"HELLO"]


def test_a_client_that_gives_up_cancels_the_handler() -> None:
    with Cluster(2) as cluster:
        requesting = Asking(cluster)
        requesting.ask(timeout_s=0.05)
        cluster.run_for(200)
        assert (requesting.heard, requesting.calls) == ([TimeoutError], ["hello", "cancelled"])


def test_a_server_that_dies_breaks_the_request() -> None:
    with Cluster(2) as cluster:
        requesting = Asking(cluster)
        requesting.ask()
        cluster.run_for(50)
        requesting.server.kill()
        cluster.run_for(5)
        assert requesting.heard == [ConnectionResetError]


@pytest.mark.parametrize(
    ("faults", "heard", "calls"),
    [
        (MessageFaults(request_lost=1.0), [TimeoutError], []),
        (MessageFaults(response_lost=1.0), [TimeoutError], ["hello"]),
        (MessageFaults(request_doubled=1.0), [b"HELLO"], ["hello", "hello"]),
        (MessageFaults(request_late=1.0, most_late_ms=100), [b"HELLO"], ["hello"]),
    ],
)
def test_bad_messages(faults: MessageFaults, heard: list[object], calls: list[str]) -> None:
    with Cluster(2) as cluster:
        requesting = Asking(cluster, faults)
        requesting.ask()
        cluster.run_for(1_500)
        assert (requesting.heard, requesting.calls) == (heard, calls)
