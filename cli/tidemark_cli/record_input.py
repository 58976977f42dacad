"""Read the records that `tidemark produce` sends: split from a byte stream, or whole files.

Bytes are kept unchanged: nothing is decoded, and a carriage return is part of its line. A record
that is too large is reported with its size and skipped to its end, so no part of it is written.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

CHUNK_BYTES = 256 * 1024
MOST_RECORD_BYTES = 8_300_000  # a request's body, one batch, is at most 8 MiB


@dataclass(frozen=True, slots=True)
class TooLarge:
    """Stand in for a record that is too large; its bytes were counted and not kept."""

    size_bytes: int


class RecordSplitter:
    """Cuts a stream at each delimiter; what follows the last one is a record if it is not empty."""

    def __init__(self, delimiter: bytes, most_bytes: int = MOST_RECORD_BYTES) -> None:
        self._delimiter = delimiter
        self._most_bytes = most_bytes
        self._rest = b""  # of a record that has not ended yet
        self._passed_bytes = 0  # of one that is too large, before `_rest`

    def feed(self, data: bytes) -> list[bytes | TooLarge]:
        first, *others = (self._rest + data).split(self._delimiter)
        if not others:
            self._keep(first)
            return []
        found = [self._whole(first), *map(self._whole, others[:-1])]
        self._keep(others[-1])
        return found

    def end(self) -> list[bytes | TooLarge]:
        rest, self._rest = self._rest, b""
        return [self._whole(rest)] if rest or self._passed_bytes else []

    def _whole(self, record: bytes) -> bytes | TooLarge:
        size_bytes, self._passed_bytes = self._passed_bytes + len(record), 0
        return record if size_bytes <= self._most_bytes else TooLarge(size_bytes)

    def _keep(self, rest: bytes) -> None:
        """Keep the bytes that follow the last delimiter.

        While an oversized record is skipped, only the bytes that may begin a delimiter are kept.
        """
        if len(rest) > self._most_bytes or self._passed_bytes:
            kept = min(len(rest), len(self._delimiter) - 1)
            self._passed_bytes += len(rest) - kept
            rest = rest[len(rest) - kept :]
        self._rest = rest


async def chunks_of(descriptor: int) -> AsyncIterator[bytes]:
    """Yield what arrives at a file descriptor, until its end.

    A silent terminal or pipe does not block the loop, and the iterator can be left at any time.
    """
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()

    def record_readable() -> None:
        loop.remove_reader(descriptor)  # one read for each call: a second one would block
        readable.set()

    try:
        while True:
            try:
                loop.add_reader(descriptor, record_readable)
            except PermissionError:  # a regular file: epoll takes none, as it is always readable
                await asyncio.sleep(0)
            else:
                await readable.wait()
                readable.clear()
            if not (data := os.read(descriptor, CHUNK_BYTES)):
                return
            yield data
    finally:
        loop.remove_reader(descriptor)


async def records_of(descriptor: int, delimiter: bytes) -> AsyncIterator[list[bytes | TooLarge]]:
    """Yield records in lists, as they arrive."""
    splitter = RecordSplitter(delimiter)
    async for data in chunks_of(descriptor):
        if found := splitter.feed(data):
            yield found
    if found := splitter.end():
        yield found


async def whole_of(descriptor: int) -> bytes | TooLarge:
    """Read all input as one record."""
    pieces, size_bytes = [], 0
    async for data in chunks_of(descriptor):
        size_bytes += len(data)
        if size_bytes <= MOST_RECORD_BYTES:
            pieces.append(data)
    return b"".join(pieces) if size_bytes <= MOST_RECORD_BYTES else TooLarge(size_bytes)


def record_of_file(path: Path) -> bytes | TooLarge:
    """Read a whole file as one record.

    Raises OSError.
    """
    with path.open("rb") as file:
        data = file.read(MOST_RECORD_BYTES + 1)
        if len(data) <= MOST_RECORD_BYTES:
            return data
        return TooLarge(os.fstat(file.fileno()).st_size)
