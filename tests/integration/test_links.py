"""The links themselves: what a cut holds back comes late, and nobody else's connection is cut."""

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest
from tidemark_chaos.environments.processes import PortRange
from tidemark_chaos.links import CONTROLLER, Links

pytestmark = pytest.mark.cluster

ME, SERVER = 0, 1


Experiment = Callable[[Links, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def run(experiment: Experiment, *, dialer: int | None = None, my_pid: int | None = None) -> None:
    """A server that says everything in capitals, behind a link that this process dials."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data.upper())
        writer.close()

    async def all_of_it() -> None:
        async with asyncio.timeout(60):
            pid = os.getpid() if my_pid is None else my_pid
            links = Links({ME: pid}.get, (CONTROLLER, ME, SERVER))
            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            port = ports.first
            far_port = server.sockets[0].getsockname()[1]
            await links.open_link(port, SERVER, far_port, dialer=dialer)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                await experiment(links, reader, writer)
            finally:
                writer.close()
                server.close()
                await links.close()

    with PortRange(1) as ports:
        asyncio.run(all_of_it())


async def is_silent(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(0.1):
            await reader.readexactly(1)
    except TimeoutError:
        return True
    return False


@pytest.mark.parametrize("direction", [(ME, SERVER), (SERVER, ME)], ids=["question", "answer"])
@pytest.mark.parametrize("dialer", [ME, None], ids=["known by its port", "found by its process"])
def test_a_cut_direction_is_silent_and_what_was_on_its_way_arrives_when_it_heals(
    direction: tuple[int, int], dialer: int | None
) -> None:
    async def experiment(
        links: Links, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(b"a")
        assert await reader.readexactly(1) == b"A"
        links.cut([direction])
        writer.write(b"b")
        assert await is_silent(reader)
        links.cut([])
        assert await reader.readexactly(1) == b"B"

    run(experiment, dialer=dialer)


@pytest.mark.parametrize("direction", [(ME, SERVER), (SERVER, ME)], ids=["question", "answer"])
def test_a_limited_direction_takes_its_time(direction: tuple[int, int]) -> None:
    async def experiment(
        links: Links, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        loop = asyncio.get_running_loop()
        links.limit({direction: 100})
        began = loop.time()
        writer.write(b"a" * 20)
        assert await reader.readexactly(20) == b"A" * 20
        assert loop.time() - began > 0.19
        links.limit({})
        began = loop.time()
        writer.write(b"a" * 20)
        assert await reader.readexactly(20) == b"A" * 20
        assert loop.time() - began < 0.19

    run(experiment, dialer=ME)


def test_lost_segments_come_late_and_in_order() -> None:
    async def experiment(
        links: Links, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        loop = asyncio.get_running_loop()
        links.lose({(ME, SERVER): 1.0 - 2**-53})
        began = loop.time()
        writer.write(b"a")
        await asyncio.sleep(0.05)
        links.lose({})
        writer.write(b"b")
        assert await reader.readexactly(2) == b"AB"
        assert loop.time() - began > 12.5

    run(experiment, dialer=ME)


def test_an_end_waits_for_the_link_too() -> None:
    async def experiment(
        links: Links, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(b"a")
        assert await reader.readexactly(1) == b"A"
        links.cut([(SERVER, ME)])
        writer.write_eof()
        assert await is_silent(reader)
        links.cut([])
        assert await reader.read() == b""

    run(experiment, dialer=ME)


def test_other_links_and_clients_go_on() -> None:
    async def experiment(
        links: Links, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        links.cut([(ME, CONTROLLER), (CONTROLLER, SERVER), (SERVER, CONTROLLER)])
        writer.write(b"a")
        assert await reader.readexactly(1) == b"A"

    run(experiment, dialer=ME)


def test_who_is_no_place_of_ours_is_a_client_and_never_cut() -> None:
    async def experiment(
        links: Links, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        links.cut([(ME, SERVER), (SERVER, ME)])
        writer.write(b"a")
        assert await reader.readexactly(1) == b"A"

    run(experiment, my_pid=1)
