"""Proxy the network between a controller and its brokers, so that links can be cut or slowed.

Every connection between two of them goes through a proxy of ours. A cut direction carries nothing
and rejects nothing: bytes, ends and resets that were on their way wait, and arrive late when the
cut heals, as with TCP. Only a new connection differs from a real cut: it is accepted here, and then
carries nothing. A delayed direction keeps its order. Clients' connections are not proxied.

Proxies carry streams, not packets, so loss is what TCP makes of it: the last segment of what was
sent at once is lost with a probability, and is sent again after a timeout that doubles while it is
lost again. All that follows on the connection waits for it. A segment that others follow costs
about a round trip, which is nothing on one machine, and is not counted.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

CONTROLLER = -1
Place = int  # CONTROLLER, or a broker id
CHUNK_BYTES = 65536
MAX_CHUNKS = 64  # of one direction of a connection that are on their way
RETRANSMISSION_SECONDS = 0.2  # Linux's least timeout
MAX_RETRANSMISSIONS = 6  # 12.6 s: broker and controller have given up the connection long before


class Links:
    """Owned by one event loop. `pid_of`: the present process of each place."""

    def __init__(self, pid_of: Callable[[Place], int | None], places: Iterable[Place]) -> None:
        self._pid_of = pid_of
        self._places = tuple(places)
        self._cuts: frozenset[tuple[Place, Place]] = frozenset()
        self._delays: dict[tuple[Place, Place], float] = {}
        self._losses: dict[tuple[Place, Place], float] = {}
        self._rates: dict[tuple[Place, Place], int] = {}
        self._free_at: dict[tuple[Place, Place], float] = {}  # of limited ones, in the loop's time
        self._chance = random.Random(0)
        self._changed = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    def cut(self, directions: Iterable[tuple[Place, Place]]) -> None:
        """Cut these (from, to) and no others from now on."""
        self._cuts = frozenset(directions)
        self._changed.set()
        self._changed = asyncio.Event()

    def delay(self, seconds: Mapping[tuple[Place, Place], float]) -> None:
        """Delay these (from, to) and no others from now on."""
        self._delays = dict(seconds)

    def lose(self, parts: Mapping[tuple[Place, Place], float]) -> None:
        """Lose this part of the segments of these (from, to) and no others from now on."""
        self._losses = dict(parts)

    def limit(self, bytes_per_second: Mapping[tuple[Place, Place], int]) -> None:
        """Limit these (from, to), each over all its connections, and no others from now on."""
        self._rates = dict(bytes_per_second)
        self._free_at.clear()

    async def open_link(
        self, port: int, to: Place, to_port: int, *, dialer: Place | None = None
    ) -> None:
        """Carry connections of `port` to `to_port`; without a `dialer` its process tells."""

        async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._connections.add(task)
            try:
                who = dialer if dialer is not None else self._who_dials(writer)
                await self._carry(who, to, to_port, (reader, writer))
            finally:
                self._connections.discard(task)
                writer.close()

        self._servers.append(await asyncio.start_server(on_connection, "127.0.0.1", port))

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _carry(
        self,
        dialer: Place | None,
        to: Place,
        to_port: int,
        near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        await self._until_open(dialer, to)
        try:
            far = await asyncio.open_connection("127.0.0.1", to_port)
        except OSError:
            near[1].transport.abort()  # refused there is refused here, as near as we can
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pump(near[0], far[1], dialer, to))
                both.create_task(self._pump(far[0], near[1], to, dialer))
        finally:
            far[1].close()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        source: Place | None,
        to: Place | None,
    ) -> None:
        on_its_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(MAX_CHUNKS)
        async with asyncio.TaskGroup() as both:
            both.create_task(self._take(reader, on_its_way, source, to))
            both.create_task(self._deliver(on_its_way, writer, source, to))

    async def _take(
        self,
        reader: asyncio.StreamReader,
        on_its_way: "asyncio.Queue[tuple[float, bytes]]",
        source: Place | None,
        to: Place | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                data = await reader.read(CHUNK_BYTES)
            except OSError:
                data = b""
            await on_its_way.put((self._due(loop.time(), len(data), source, to), data))
            if not data:
                return

    async def _deliver(
        self,
        on_its_way: "asyncio.Queue[tuple[float, bytes]]",
        writer: asyncio.StreamWriter,
        source: Place | None,
        to: Place | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await on_its_way.get()
            if (early := due - loop.time()) > 0:
                await asyncio.sleep(early)
            await self._until_open(source, to)
            if not data:
                writer.transport.abort()
                return
            with contextlib.suppress(OSError):
                writer.write(data)
                await writer.drain()

    def _due(self, now: float, size: int, source: Place | None, to: Place | None) -> float:
        """Return when bytes that are sent now arrive."""
        if source is None or to is None:
            return now
        way = (source, to)
        due = now + self._delays.get(way, 0.0)
        if (rate := self._rates.get(way)) is not None:
            self._free_at[way] = max(now, self._free_at.get(way, 0.0)) + size / rate
            due += self._free_at[way] - now
        if (loss := self._losses.get(way)) is not None:
            due += retransmission_seconds(loss, self._chance.random)
        return due

    async def _until_open(self, source: Place | None, to: Place | None) -> None:
        while (source, to) in self._cuts:
            await self._changed.wait()

    def _who_dials(self, writer: asyncio.StreamWriter) -> Place | None:
        """Return who dials; None is a client, which is never cut."""
        inode = socket_inode(
            writer.get_extra_info("peername")[1], writer.get_extra_info("sockname")[1]
        )
        if inode is None:
            return None
        for place in self._places:
            pid = self._pid_of(place)
            if pid is not None and has_socket(pid, inode):
                return place
        return None


def retransmission_seconds(loss: float, draw: Callable[[], float]) -> float:
    """Return how late a segment arrives that is lost with this probability each time."""
    lost = 0
    while lost < MAX_RETRANSMISSIONS and draw() < loss:
        lost += 1
    return RETRANSMISSION_SECONDS * ((1 << lost) - 1)


def socket_inode(local_port: int, remote_port: int) -> int | None:
    """Return the inode of this machine's socket with these ports (Linux /proc/net/tcp)."""
    wanted = (f":{local_port:04X}", f":{remote_port:04X}")
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[1].endswith(wanted[0]) and words[2].endswith(wanted[1]):
            return int(words[9])
    return None


def has_socket(pid: int, inode: int) -> bool:
    name = f"socket:[{inode}]"
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            if str(descriptor.readlink()) == name:
                return True
    return False
