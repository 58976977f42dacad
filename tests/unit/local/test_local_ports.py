"""A port that somebody else has is said before a cluster begins."""

import asyncio
import socket

import pytest
from tidemark_operator.local.ports import until_free

HOST = "127.0.0.1"


def test_a_taken_port_is_refused_with_its_number_and_what_to_do() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"port {port} .* --kafka-port"):
            asyncio.run(until_free(HOST, [port], seconds=0))


def test_a_port_that_becomes_free_is_waited_for() -> None:
    async def story() -> None:
        taken = socket.create_server((HOST, 0))
        waiting = asyncio.create_task(until_free(HOST, [taken.getsockname()[1]], seconds=60))
        await asyncio.sleep(0)
        assert not waiting.done()
        taken.close()
        await waiting

    asyncio.run(story())
