"""A simulated client at a broker's Kafka listener, by the production frames and tables."""

import asyncio

from tidemark_broker.wire.tables import Api, Values

from tests.simulator.client_port import Frames
from tests.simulator.clients import CONNECT_TIMEOUT_SECONDS, NoAnswer, NotSent


class KafkaLink(asyncio.Protocol):
    """Several questions may be under way; answers come in their order."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._frames = Frames()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._number = 0
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, client_id: str, host: str, port: int) -> "KafkaLink":
        """Raises NotSent."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                _, link = await loop.create_connection(lambda: cls(client_id), host, port)
        except (OSError, TimeoutError) as error:
            raise NotSent(f"{host}:{port}: {error}") from error
        return link

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(NoAnswer("connection lost"))
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            future = self._waiting.pop(int.from_bytes(frame[:4], "big"), None)
            if future is not None and not future.done():
                future.set_result(frame)

    async def ask(self, api: Api, values: Values, timeout_ms: int) -> Values:
        """In the newest version. Raises NotSent, NoAnswer."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise NotSent("connection closed")
        self._number += 1
        number = self._number
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        transport.write(api.encode_request(number, api.max_version, self._client_id, values))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                frame = await future
        except TimeoutError as error:
            raise NoAnswer("timed out") from error
        finally:
            self._waiting.pop(number, None)
        return api.decode_response(frame, api.max_version)[1]
