"""Queue the messages of one open page, by bound: a page that does not read is dropped."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from tidemark_operator.manager.web.pool_feed import Message

MAX_WAITING = 128  # messages: some ten seconds of the busiest pool
MAX_WAITING_BYTES = 8 * 1024 * 1024


class PageStream:
    def __init__(self) -> None:
        self._waiting: deque[Message] = deque()
        self.waiting_bytes = 0
        self.is_ended = False
        self._news = asyncio.Event()

    def push(self, message: Message) -> None:
        """Queue a message; end the stream of a page that reads too slowly."""
        if self.is_ended:
            return
        self._waiting.append(message)
        self.waiting_bytes += len(message.body)
        if len(self._waiting) > MAX_WAITING or self.waiting_bytes > MAX_WAITING_BYTES:
            self.end()
            return
        self._news.set()

    def end(self) -> None:
        """End it; the page connects again."""
        self.is_ended = True
        self._waiting.clear()
        self.waiting_bytes = 0
        self._news.set()

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield the messages until the stream is ended."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                message = self._waiting.popleft()
                self.waiting_bytes -= len(message.body)
                yield message.body
            if self.is_ended:
                return
