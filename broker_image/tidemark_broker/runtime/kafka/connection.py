"""One connection: frames in, answers out in the order of their requests.

Requests are worked on one at a time, but those that may overlap (Produce, so that acks=all of one
does not hold up the next). Bounded, by not reading the socket: requests waiting and in work, their
bytes, and answers that the client does not read.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Protocol, cast

from tidemark_broker.runtime.kafka.requests import ApiHandler, KafkaRequest
from tidemark_broker.runtime.replica_fetches import FollowerLink, ReplicaFetches
from tidemark_broker.wire.frames import (
    API_VERSIONS,
    Buffers,
    Frame,
    FrameSplitter,
    read_request_header,
)
from tidemark_broker.wire.primitives import MalformedFrame, Reader

MAX_REQUEST_BYTES = 16 * 1024 * 1024
MAX_CONNECTIONS = 1024
MAX_WAITING_REQUESTS = 8  # of one connection; then its socket is not read
MAX_WAITING_BYTES = 16 * 1024 * 1024
MAX_REQUESTS_IN_WORK = 8

_log = logging.getLogger(__name__)


class ConnectionOwner(Protocol):
    connections: "dict[KafkaConnection, None]"

    @property
    def handlers(self) -> Mapping[int, ApiHandler]: ...
    @property
    def fetches(self) -> ReplicaFetches: ...


class _InWork:
    """A request from its begin until its answer is written; `buffers` None: not answered yet."""

    __slots__ = ("buffers", "overlaps", "request")

    def __init__(self, *, overlaps: bool) -> None:
        self.overlaps = overlaps
        self.buffers: Buffers | None = None
        self.request: KafkaRequest | None = None


class KafkaConnection(asyncio.Protocol):
    def __init__(self, owner: ConnectionOwner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._splitter = FrameSplitter(max_frame_bytes=MAX_REQUEST_BYTES)
        self._waiting: deque[Frame] = deque()
        self._waiting_bytes = 0
        self._in_work: deque[_InWork] = deque()
        self._link = FollowerLink()
        self._is_write_paused = False
        self._client_host = ""
        self.active_s = 0.0  # loop time of the last whole request or answer

    # ---- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio's by class, only by what they do.
        self._transport = cast(asyncio.Transport, transport)
        if len(self._owner.connections) >= MAX_CONNECTIONS:
            _log.warning("too many connections, closing", extra={"limit": MAX_CONNECTIONS})
            self._transport.close()
            return
        peer = transport.get_extra_info("peername")
        self._client_host = str(peer[0]) if peer else ""
        self._note_activity()
        self._owner.connections[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._owner.connections.pop(self, None)
        self._forget_waiting()
        self._owner.fetches.cancel(self._link)
        in_work, self._in_work = self._in_work, deque()
        for work in in_work:
            if work.buffers is None and work.request is not None:
                work.request.cancel()

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._splitter.feed(data)
        except MalformedFrame as error:
            self._refuse(str(error))
            return
        if frames:
            self._waiting.extend(frames)
            self._waiting_bytes += sum(len(frame) for frame in frames)
            self._note_activity()
            self._owner.fetches.end_now(self._link)
        self._work()
        transport = self._transport
        if transport is not None and not transport.is_closing() and self._is_full():
            transport.pause_reading()

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._work()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def close_if_idle(self, since_s: float) -> None:
        """Nothing whole came or went since then, and it waits for nothing of ours."""
        if self.active_s < since_s and (not self._in_work or self._is_write_paused):
            self.close()

    # ---- inside

    def _work(self) -> None:
        while self._waiting and self._transport is not None and self._may_begin():
            frame = self._waiting.popleft()
            self._waiting_bytes -= len(frame)
            try:
                self._begin(frame)
            except MalformedFrame as error:
                self._refuse(str(error))
                return
            except Exception as error:
                _log.exception("a request failed")
                self._refuse(f"{type(error).__name__}: {error}")
                return
        transport = self._transport
        if transport is None or transport.is_closing() or transport.is_reading():
            return
        if not self._is_full():
            transport.resume_reading()

    def _is_full(self) -> bool:
        return (
            len(self._waiting) >= MAX_WAITING_REQUESTS or self._waiting_bytes >= MAX_WAITING_BYTES
        )

    def _may_begin(self) -> bool:
        if self._is_write_paused or len(self._in_work) >= MAX_REQUESTS_IN_WORK:
            return False
        if not self._in_work:
            return True
        handler = self._owner.handlers.get(_api_key(self._waiting[0]))
        is_overlapping = handler is not None and handler.overlaps
        return is_overlapping and all(work.overlaps for work in self._in_work)

    def _begin(self, frame: Frame) -> None:
        reader = Reader(frame)
        header = read_request_header(reader)
        handler = self._owner.handlers.get(header.api_key)
        if handler is None:
            raise MalformedFrame(
                f"api key {header.api_key} version {header.api_version}: not served here"
            )
        supported = handler.supported
        is_known = supported.min_version <= header.api_version <= supported.max_version
        if not is_known and header.api_key != API_VERSIONS:
            raise MalformedFrame(
                f"api key {header.api_key}: expected version {supported.min_version} to"
                f" {supported.max_version}, found {header.api_version}"
            )
        work = _InWork(overlaps=handler.overlaps)
        work.request = KafkaRequest(
            header,
            reader,
            self._link,
            lambda buffers: self._answer(work, buffers),
            self._refuse,
            self._client_host,
        )
        self._in_work.append(work)
        handler.handle(work.request)

    def _answer(self, work: _InWork, buffers: Buffers) -> None:
        assert work.buffers is None, "a request is answered once"
        work.buffers = buffers
        work.request = None
        transport = self._transport
        while self._in_work and self._in_work[0].buffers is not None:
            ready = self._in_work.popleft().buffers
            # uvloop raises on a closed handle.
            if ready and transport is not None and not transport.is_closing():
                transport.writelines(ready)
        self._note_activity()
        if self._waiting:  # not from here: answers may come in the middle of an append
            asyncio.get_running_loop().call_soon(self._work)

    def _note_activity(self) -> None:
        self.active_s = asyncio.get_running_loop().time()

    def _forget_waiting(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0

    def _refuse(self, reason: str) -> None:
        """What follows in the stream has no meaning any more."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        _log.warning("connection closed", extra={"peer": self._client_host, "reason": reason})
        self._forget_waiting()
        transport.close()


def _api_key(frame: Frame) -> int:
    return int.from_bytes(frame[:2], "big", signed=True)
