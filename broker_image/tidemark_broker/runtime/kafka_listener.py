"""The Kafka listener: frames in, answers out, in order, one request of a connection at a time.

Takes ApiVersions and the Fetch of a replica; everything else closes the connection after one log
line (a consumer's Fetch, Produce and Metadata over this protocol come later). Bounded: frame
size, connections, requests waiting behind the one in work.
"""

import asyncio
import logging
from collections import deque
from typing import cast

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.runtime.replica_fetches import FollowerLink, ReplicaFetches
from tidemark_broker.wire.api_versions import (
    MAX_API_VERSIONS_VERSION,
    SupportedApi,
    decode_api_versions_request,
    encode_api_versions_response,
)
from tidemark_broker.wire.fetch import (
    MAX_FETCH_VERSION,
    MIN_FETCH_VERSION,
    FetchRequest,
    FetchResponse,
    TopicAnswer,
    decode_fetch_request,
    encode_fetch_response,
)
from tidemark_broker.wire.frames import (
    API_VERSIONS,
    FETCH,
    Buffers,
    Frame,
    FrameSplitter,
    read_request_header,
)
from tidemark_broker.wire.primitives import MalformedFrame, Reader

MAX_REQUEST_BYTES = 16 * 1024 * 1024
MAX_CONNECTIONS = 1024
MAX_WAITING_REQUESTS = 8  # of one connection; then its socket is not read

SUPPORTED_APIS = (
    SupportedApi(FETCH, MIN_FETCH_VERSION, MAX_FETCH_VERSION),
    SupportedApi(API_VERSIONS, 0, MAX_API_VERSIONS_VERSION),
)

_log = logging.getLogger(__name__)


class KafkaListener:
    """All connections of the listener."""

    def __init__(self, fetches: ReplicaFetches, *, cluster_id: str) -> None:
        self.fetches = fetches
        self.cluster_id = cluster_id
        self.connections: dict[KafkaConnection, None] = {}  # by age
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Returns the port (0 asks for a free one). Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: KafkaConnection(self), host, port, backlog=512
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for connection in tuple(self.connections):
            connection.close()
        await self._server.wait_closed()


class KafkaConnection(asyncio.Protocol):
    def __init__(self, listener: KafkaListener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._splitter = FrameSplitter(max_frame_bytes=MAX_REQUEST_BYTES)
        self._waiting: deque[Frame] = deque()
        self._link = FollowerLink()
        self._is_busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio's by class, only by what they do.
        self._transport = cast(asyncio.Transport, transport)
        if len(self._listener.connections) >= MAX_CONNECTIONS:
            _log.warning("too many connections, closing", extra={"limit": MAX_CONNECTIONS})
            self._transport.close()
            return
        self._listener.connections[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._listener.connections.pop(self, None)
        self._waiting.clear()
        self._listener.fetches.cancel(self._link)

    def data_received(self, data: bytes) -> None:
        try:
            self._waiting.extend(self._splitter.feed(data))
        except MalformedFrame as error:
            self._refuse(str(error))
            return
        if self._waiting:
            self._listener.fetches.end_now(self._link)
        self._work()
        transport = self._transport
        if transport is not None and len(self._waiting) >= MAX_WAITING_REQUESTS:
            transport.pause_reading()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _work(self) -> None:
        while self._waiting and not self._is_busy and self._transport is not None:
            frame = self._waiting.popleft()
            self._is_busy = True
            try:
                self._handle(frame)
            except MalformedFrame as error:
                self._refuse(str(error))
        transport = self._transport
        if transport is None or transport.is_closing() or transport.is_reading():
            return
        if len(self._waiting) < MAX_WAITING_REQUESTS:
            transport.resume_reading()

    def _handle(self, frame: Frame) -> None:
        reader = Reader(frame)
        header = read_request_header(reader)
        if header.api_key == API_VERSIONS:
            if 0 <= header.api_version <= MAX_API_VERSIONS_VERSION:
                decode_api_versions_request(reader, header.api_version)
            self._answer(encode_api_versions_response(header, SUPPORTED_APIS))
            return
        if header.api_key != FETCH:
            self._refuse(f"api key {header.api_key} version {header.api_version}: not served here")
            return
        request = decode_fetch_request(reader, header.api_version)
        if request.replica_id < 0:
            self._refuse("a consumer's Fetch: not served here yet, use HTTP")
            return
        self._fetch(request, header.correlation_id)

    def _fetch(self, request: FetchRequest, correlation_id: int) -> None:
        own_cluster = self._listener.cluster_id
        if request.cluster_id is not None and own_cluster and request.cluster_id != own_cluster:
            error = FetchResponse(correlation_id, ErrorCode.INCONSISTENT_CLUSTER_ID)
            self._answer(encode_fetch_response(error))
            return

        def respond(topics: tuple[TopicAnswer, ...]) -> None:
            response = FetchResponse(correlation_id, ErrorCode.NONE, topics)
            self._answer(encode_fetch_response(response))

        self._listener.fetches.handle(request, self._link, respond)

    def _answer(self, buffers: Buffers) -> None:
        self._is_busy = False
        transport = self._transport
        if transport is None or transport.is_closing():  # uvloop raises on a closed handle
            return
        transport.writelines(buffers)
        if self._waiting:  # not from here: answers may come in the middle of an append
            asyncio.get_running_loop().call_soon(self._work)

    def _refuse(self, reason: str) -> None:
        """What follows in the stream has no meaning any more."""
        transport = self._transport
        if transport is None:
            return
        peer = transport.get_extra_info("peername")
        _log.warning("connection closed", extra={"peer": str(peer), "reason": reason})
        self._waiting.clear()
        transport.close()
