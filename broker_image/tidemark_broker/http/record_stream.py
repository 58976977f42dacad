"""Stream records without end: one JSON object a line (`application/x-ndjson`).

A step reads, renders and sends; the next begins once the client's socket has accepted it, so a slow
client holds one step and no more. Without records for a while an empty line is sent, which keeps
proxies open and detects clients that disconnected. A stream that cannot continue (leadership moved,
a value that is not JSON) ends with the problem as its last line: an object with `error` and
`next_offset`, from which the next stream continues, after a record that this format cannot show.

`FetchTarget` is who reads which partition; `positions` are the headers beside its records.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_BROKER

from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.http.media_types import LINES_TYPE, EmbeddedFormat
from tidemark_broker.http.problems import HttpProblem
from tidemark_broker.http.queries import FetchQuery
from tidemark_broker.http.record_json import FetchedRecords
from tidemark_broker.http.request import Request
from tidemark_broker.http.response import ClientGone, Receive, Send, until_gone
from tidemark_broker.replication.results import FetchResult


@dataclass(frozen=True, slots=True)
class FetchTarget:
    """One client at one partition."""

    request: Request
    topic: str
    partition: int
    query: FetchQuery


def positions(result: FetchResult, next_offset: int) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers that say where the log is and where to continue."""
    topic_id = ((b"tidemark-topic-id", result.topic_id.encode()),) if result.topic_id else ()
    return (
        *topic_id,
        (b"tidemark-high-watermark", b"%d" % result.high_watermark),
        (b"tidemark-log-start-offset", b"%d" % result.log_start_offset),
        (b"tidemark-next-offset", b"%d" % next_offset),
    )


BUSY_RETRY_SECONDS = 0.1  # while this broker has no bytes to spare


class RecordSource(Protocol):
    """The route of single reads; both methods raise HttpProblem."""

    async def read(
        self, reading: FetchTarget, offset: int, *, wait_ms: int, max_bytes: int = 0
    ) -> FetchResult: ...

    async def render(
        self,
        reading: FetchTarget,
        embedded: EmbeddedFormat,
        data: bytes,
        offset: int,
        *,
        as_lines: bool = False,
    ) -> FetchedRecords: ...

    def quota_wait_seconds(self, request: Request, size_bytes: int) -> float: ...


@dataclass(slots=True)
class StreamedResponse:
    """A response in pieces; `send_to` starts `pieces`."""

    pieces: AsyncIterator[bytes]
    receive: Receive
    headers: tuple[tuple[bytes, bytes], ...]
    status: int = 200
    body: bytes = b""  # nothing is held before it is sent

    async def send_to(self, send: Send) -> None:
        watch = asyncio.get_running_loop().create_task(until_gone(self.receive))
        headers = [(b"content-type", LINES_TYPE), *self.headers]
        try:
            await send({"type": "http.response.start", "status": self.status, "headers": headers})
            async for piece in self.pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                if watch.done():
                    return
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except ClientGone:
            return
        finally:
            watch.cancel()


class RecordStreams:
    def __init__(self, source: RecordSource, limits: HttpLimits) -> None:
        self._source = source
        self._limits = limits
        self._open = 0

    def open(
        self, reading: FetchTarget, embedded: EmbeddedFormat, offset: int, first: FetchResult
    ) -> StreamedResponse:
        """Open a stream; `first` is the result of the first read, which decided that there is one.

        Raises HttpProblem.
        """
        if self._open >= self._limits.streams:
            raise HttpProblem(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"streams: this broker is at its limit of {self._limits.streams}: try again later",
            )
        return StreamedResponse(
            self._pieces(reading, embedded, offset, first),
            reading.request.receive,
            positions(first, offset),
        )

    async def _pieces(
        self, reading: FetchTarget, embedded: EmbeddedFormat, offset: int, result: FetchResult
    ) -> AsyncIterator[bytes]:
        query = reading.query
        idle_ms = round(self._limits.stream_idle_seconds * 1000)
        waited_ms = 0
        self._open += 1
        try:
            while True:
                if result.data:
                    waited_ms = 0
                    rendered = await self._render(reading, embedded, result.data, offset)
                    offset = rendered.next_offset
                    if rendered.body:
                        yield rendered.body
                        await self._keep_to_quota(reading, len(rendered.body))
                elif waited_ms:
                    yield b"\n"
                if query.ends and waited_ms >= query.max_wait_ms and not result.data:
                    return
                wait_ms = min(idle_ms, query.max_wait_ms - waited_ms) if query.ends else idle_ms
                result = await self._read(reading, offset, wait_ms=wait_ms)
                waited_ms += wait_ms
        except HttpProblem as problem:
            problem.members = {"next_offset": offset, **problem.members}
            if problem.location:
                problem.members["location"] = problem.location
            yield problem.answer(reading.request.path, is_produce=False).body + b"\n"
        finally:
            self._open -= 1

    async def _keep_to_quota(self, reading: FetchTarget, size_bytes: int) -> None:
        wait_seconds = self._source.quota_wait_seconds(reading.request, size_bytes)
        while wait_seconds:
            await asyncio.sleep(wait_seconds)
            wait_seconds = self._source.quota_wait_seconds(reading.request, 0)

    async def _read(self, reading: FetchTarget, offset: int, *, wait_ms: int) -> FetchResult:
        max_bytes = min(reading.query.max_bytes, self._limits.stream_bytes)
        result = await self._source.read(reading, offset, wait_ms=wait_ms, max_bytes=max_bytes)
        if result.preferred_replica != NO_BROKER:
            raise HttpProblem(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"partition {reading.topic}-{reading.partition}: the preferred read replica is now"
                f" broker {result.preferred_replica}: open another stream at next_offset",
            )
        return result

    async def _render(
        self, reading: FetchTarget, embedded: EmbeddedFormat, data: bytes, offset: int
    ) -> FetchedRecords:
        while True:
            try:
                return await self._source.render(reading, embedded, data, offset, as_lines=True)
            except HttpProblem as problem:
                if problem.error is not ErrorCode.THROTTLING_QUOTA_EXCEEDED:
                    raise
            await asyncio.sleep(BUSY_RETRY_SECONDS)
