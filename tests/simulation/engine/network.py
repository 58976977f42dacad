"""Byte streams between simulated processes: what TCP of their kernels would show them.

Kernels shake hands and keep bytes, so a connection to a frozen process is made and its bytes wait.
A killed process's kernel closes its connections; a machine without power says nothing, and resets
what reaches it after its next boot. A blocked direction of a link swallows: segments and hand
shakes are sent again and arrive after it healed. Bytes stay in order; bandwidth has no limit.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from tests.simulation.engine.loop import SimulatedLoop
from tests.simulation.engine.timeline import Timeline

FIRST_PORT = 30_000
SYN_RETRY_US = 1_000_000
MIN_RETRANSMIT_US, MAX_RETRANSMIT_US = 5_000, 400_000


class Node(Protocol):
    """A machine as its network card shows it."""

    name: str
    is_up: bool


class Endpoint(Protocol):
    """A process as its kernel knows it."""

    @property
    def machine(self) -> Node: ...

    host: str  # address
    loop: SimulatedLoop
    is_alive: bool
    sockets: "dict[SimulatedTransport, None]"
    listeners: "dict[SimulatedServer, None]"


@dataclass
class LinkDelay:
    """One way, in microseconds."""

    least_us: int = 50
    most_us: int = 300


class SimulatedServer:
    def __init__(
        self, network: "Network", owner: Endpoint, factory: Callable[[], Any], port: int
    ) -> None:
        self.owner = owner
        self.factory = factory
        self.port = port
        self.sockets = (self,)
        self._network = network

    def getsockname(self) -> tuple[str, int]:
        return (self.owner.host, self.port)

    def close(self) -> None:
        self.owner.listeners.pop(self, None)
        self._network.servers.pop((self.owner.host, self.port), None)

    async def wait_closed(self) -> None:
        return None


class SimulatedTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: "Network", owner: Endpoint, port: int) -> None:
        super().__init__()
        self.owner = owner
        self.port = port
        self.peer: SimulatedTransport | None = None
        self.protocol: Any = None
        self.is_open = True  # until closed here, or lost
        self.is_paused = False
        self.stalled: deque[tuple[str, bytes]] = deque()  # sent, and swallowed by the link
        self._network = network
        self._last_arrival_us = 0
        self._received: list[bytes] = []  # in the kernel's buffer
        self._is_reading_due = False
        self._has_ended = False  # the peer sent its end
        owner.sockets[self] = None

    # ---- asyncio's side

    def write(self, data: Any) -> None:
        if self.is_open and self.owner.is_alive and len(data):
            self._send("data", bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if self.is_open:
            self._end("fin")

    def abort(self) -> None:
        if self.is_open:
            self._end("rst")

    def _end(self, kind: str) -> None:
        self.is_open = False
        self.owner.sockets.pop(self, None)
        if not self.owner.is_alive:
            return
        self._send(kind, b"")
        self.owner.loop.call_soon(self._lost, None)

    def is_closing(self) -> bool:
        return not self.is_open

    def is_reading(self) -> bool:
        return self.is_open and not self.is_paused

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False
        self._read_soon()

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername" and self.peer is not None:
            return (self.peer.owner.host, self.peer.port)
        return default

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol

    # ---- the kernel's side

    def begin(self, factory: Callable[[], Any]) -> Any:
        """The process takes the connection."""
        if self.protocol is None and self.owner.is_alive:
            self.protocol = factory()
            self.protocol.connection_made(self)
            self._read_soon()
        return self.protocol

    def owner_ended(self) -> None:
        """The kernel closes what an ended process left open."""
        if self.is_open:
            self.is_open = False
            self._send("rst" if self._received else "fin", b"")

    def vanish(self) -> None:
        """The machine lost its power: nobody is told."""
        self.is_open = False
        self.stalled.clear()

    def _send(self, kind: str, data: bytes) -> None:
        peer = self.peer
        assert peer is not None
        network = self._network
        delay_us = network.delay_us(self.owner.machine, peer.owner.machine)
        arrival_us = max(network.timeline.now_us + delay_us, self._last_arrival_us)
        self._last_arrival_us = arrival_us
        network.timeline.at(arrival_us, self.arrive, kind, data)

    def arrive(self, kind: str, data: bytes) -> None:
        """At the peer's network card, if the link lets it through."""
        peer = self.peer
        assert peer is not None
        if self.stalled or not self._network.lets_through(self):
            if kind == "rst":  # sent once
                return
            self.stalled.append((kind, data))
            self._network.stalled[self] = None
            return
        peer.receive(kind, data)

    def send_stalled_again(self) -> None:
        stalled, self.stalled = self.stalled, deque()
        for kind, data in stalled:
            self.arrive(kind, data)

    def receive(self, kind: str, data: bytes) -> None:
        if not self.is_open:
            if kind == "data":
                self._send("rst", b"")
            return
        loop = self.owner.loop
        if kind == "data":
            self._received.append(data)
            self._read_soon()
        elif kind == "fin":
            self._has_ended = True
            self._read_soon()
        else:
            self.is_open = False
            self.owner.sockets.pop(self, None)
            loop.call_soon(self._lost, ConnectionResetError(104, "Connection reset by peer"))

    def _read_soon(self) -> None:
        has_change = self._received or self._has_ended
        if has_change and not self._is_reading_due and not self.is_paused and self.protocol:
            self._is_reading_due = True
            self.owner.loop.call_soon(self._read)

    def _read(self) -> None:
        self._is_reading_due = False
        if not self.is_open or self.is_paused:
            return
        if self._received:
            received, self._received = self._received, []
            self.protocol.data_received(received[0] if len(received) == 1 else b"".join(received))
        if self._has_ended and self.is_open and not self.is_paused:
            self.protocol.eof_received()
            self.close()  # no protocol here asks to keep its half open

    def _lost(self, error: Exception | None) -> None:
        self._received.clear()
        if self.protocol is not None:
            self.protocol.connection_lost(error)


class Network:
    def __init__(self, timeline: Timeline, chance: Random) -> None:
        self.timeline = timeline
        self.usual_delay = LinkDelay()
        self.delays: dict[tuple[str, str], LinkDelay] = {}  # by machines, from and to
        self.blocked: dict[tuple[str, str], None] = {}
        self.rejected: dict[tuple[str, str], None] = {}  # new connections only
        self.servers: dict[tuple[str, int], SimulatedServer] = {}
        self.hosts: dict[str, Node] = {}  # address to machine
        self.stalled: dict[SimulatedTransport, None] = {}
        self.held_up: dict[SimulatedTransport, None] = {}
        self._chance = chance
        self._next_port = FIRST_PORT

    # ---- links

    def delay_us(self, source: Node, destination: Node) -> int:
        if source is destination:
            return 20
        delay = self.delays.get((source.name, destination.name), self.usual_delay)
        return delay.least_us + int(self._chance.random() * (delay.most_us - delay.least_us))

    def passes(self, source: Node, destination: Node) -> bool:
        return destination.is_up and (source.name, destination.name) not in self.blocked

    def lets_through(self, transport: SimulatedTransport) -> bool:
        peer = transport.peer
        assert peer is not None
        is_free = transport not in self.held_up
        return is_free and self.passes(transport.owner.machine, peer.owner.machine)

    def hold_up(self, transport: SimulatedTransport, for_us: int) -> None:
        """What this end of one connection sends: it takes another way than all others."""
        self.held_up[transport] = None
        self.timeline.after(for_us, self._let_go, transport)

    def _let_go(self, transport: SimulatedTransport) -> None:
        self.held_up.pop(transport, None)
        transport.send_stalled_again()

    def block(self, source: str, destination: str) -> None:
        self.blocked[source, destination] = None

    def unblock(self, source: str, destination: str) -> None:
        self.blocked.pop((source, destination), None)
        self.send_stalled_again()

    def reject(self, source: str, destination: str) -> None:
        """As a policy that answers in the destination's place."""
        self.rejected[source, destination] = None

    def send_stalled_again(self) -> None:
        """A link healed or a machine booted: each connection on its own next try."""
        for transport in tuple(self.stalled):
            if self.lets_through(transport):
                del self.stalled[transport]
                delay_us = self._chance.randint(MIN_RETRANSMIT_US, MAX_RETRANSMIT_US)
                self.timeline.after(delay_us, transport.send_stalled_again)

    def reset(self, transport: SimulatedTransport) -> None:
        """Something between the two ends cut the connection: both hear of it."""
        peer = transport.peer
        transport.receive("rst", b"")
        if peer is not None:
            peer.receive("rst", b"")

    # ---- processes

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def listen(self, owner: Endpoint, factory: Callable[[], Any], port: int) -> SimulatedServer:
        port = port or self.free_port()
        if (owner.host, port) in self.servers:
            raise OSError(98, f"Address already in use: {owner.host}:{port}")
        server = SimulatedServer(self, owner, factory, port)
        self.servers[owner.host, port] = server
        owner.listeners[server] = None
        return server

    async def connect(
        self, owner: Endpoint, factory: Callable[[], Any], host: str, port: int
    ) -> tuple[SimulatedTransport, Any]:
        """Raises ConnectionRefusedError; waits for ever where nobody answers."""
        machine = self.hosts.get(host)
        if machine is None:
            raise OSError(113, f"No route to host: {host}")
        made: asyncio.Future[SimulatedTransport] = owner.loop.create_future()
        shake = _HandShake(self, owner, host, port, machine, made)
        shake.send()
        transport = await made
        return transport, transport.begin(factory)

    def process_ended(self, owner: Endpoint) -> None:
        for server in tuple(owner.listeners):
            server.close()
        for transport in tuple(owner.sockets):
            transport.owner_ended()
        owner.sockets.clear()

    def power_lost(self, owner: Endpoint) -> None:
        for server in tuple(owner.listeners):
            server.close()
        for transport in tuple(owner.sockets):
            transport.vanish()
        owner.sockets.clear()


@dataclass(slots=True)
class _HandShake:
    """SYN, SYN-ACK; sent again each second."""

    network: Network
    owner: Endpoint
    host: str
    port: int
    machine: Node
    made: "asyncio.Future[SimulatedTransport]"

    def send(self) -> None:
        if self.made.done() or not self.owner.is_alive:
            return
        delay_us = self.network.delay_us(self.owner.machine, self.machine)
        self.network.timeline.after(delay_us, self._syn)

    def _again(self) -> None:
        self.network.timeline.after(SYN_RETRY_US, self.send)

    def _syn(self) -> None:
        network = self.network
        if not network.passes(self.owner.machine, self.machine):
            self._again()
            return
        delay_us = network.delay_us(self.machine, self.owner.machine)
        network.timeline.after(delay_us, self._answer)

    def _answer(self) -> None:
        """Both ends at once: what is sent meanwhile waits in the kernel."""
        network = self.network
        if not network.passes(self.machine, self.owner.machine):
            self._again()
            return
        if self.made.done() or not self.owner.is_alive:
            return
        server = network.servers.get((self.host, self.port))
        link = (self.owner.machine.name, self.machine.name)
        if server is None or not server.owner.is_alive or link in network.rejected:
            error = ConnectionRefusedError(111, f"Connection refused: {self.host}:{self.port}")
            self._soon(self._rejected, error)
            return
        client = SimulatedTransport(network, self.owner, network.free_port())
        accepted = SimulatedTransport(network, server.owner, self.port)
        client.peer, accepted.peer = accepted, client
        server.owner.loop.call_soon(accepted.begin, server.factory)
        self._soon(self._connected, client)

    def _soon(self, act: Callable[..., None], value: object) -> None:
        self.owner.loop.call_soon(act, value)

    def _rejected(self, error: OSError) -> None:
        if not self.made.done():
            self.made.set_exception(error)

    def _connected(self, client: SimulatedTransport) -> None:
        if self.made.done():  # given up meanwhile
            client.abort()
        else:
            self.made.set_result(client)
