"""The messages of one page wait by bound."""

import asyncio

from tidemark_operator.manager.web.page_stream import MAX_WAITING, MAX_WAITING_BYTES, PageStream
from tidemark_operator.manager.web.pool_feed import Message


def read(*sizes: int) -> list[bytes]:
    async def scenario() -> list[bytes]:
        page = PageStream()
        for size in sizes:
            page.push(Message(b"x" * size))
        if len(sizes) <= MAX_WAITING and sum(sizes) <= MAX_WAITING_BYTES:
            asyncio.get_running_loop().call_soon(page.end)
            return [body async for body in page.messages()][: len(sizes)]
        return [body async for body in page.messages()]

    return asyncio.run(scenario())


def test_messages_come_in_order() -> None:
    assert read(1, 2, 3) == [b"x", b"xx", b"xxx"]


def test_page_that_does_not_read_is_ended_by_count() -> None:
    assert read(*[1] * (MAX_WAITING + 1)) == []


def test_page_that_does_not_read_is_ended_by_bytes() -> None:
    assert read(MAX_WAITING_BYTES // 2, MAX_WAITING_BYTES // 2 + 1) == []
