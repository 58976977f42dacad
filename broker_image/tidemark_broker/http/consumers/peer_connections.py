"""Send Kafka requests to brokers, this one included, as a client.

There is one connection to each broker, made when needed. Responses come in the order of the
requests, and one request is sent at a time: a connection whose response is no longer waited for is
closed, so that an abandoned request delays no other.
"""

import asyncio
from dataclasses import dataclass
from typing import cast

from tidemark_protocol.controller_messages import Endpoints
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId

from tidemark_broker.kafka_wire.messages.fetch import (
    FetchRequest,
    FetchResponse,
    decode_fetch_response,
    encode_fetch_request,
)
from tidemark_broker.kafka_wire.messages.frames import (
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    FrameSplitter,
)
from tidemark_broker.kafka_wire.messages.primitives import MalformedFrame
from tidemark_broker.kafka_wire.messages.sasl import SASL_AUTHENTICATE_API, SASL_HANDSHAKE_API
from tidemark_broker.kafka_wire.messages.schema import Api, Values
from tidemark_broker.metadata.metadata_cache import MetadataCache
from tidemark_broker.security.peer_addresses import PLAIN, PeerAddress, PeerAddresses
from tidemark_broker.security.sasl_oauthbearer import MECHANISM as OAUTHBEARER

MAX_RESPONSE_BYTES = 128 * 1024 * 1024  # a first batch is whole however large
CONNECT_TIMEOUT_SECONDS = 1.0

# Below the newest versions: a broker that is not upgraded yet knows no newer ones, and closes the
# connection; and topics are named here, not identified.
_PEER_VERSIONS = {LIST_OFFSETS: 10, OFFSET_COMMIT: 9, OFFSET_FETCH: 9}


AUTHENTICATION_TIMEOUT_MS = 10_000


@dataclass(slots=True)
class BearerToken:
    """The newest token that a client sent: connections that are opened later use it."""

    value: bytes = b""


class BrokerUnavailable(Exception):
    """An error: there was no response; the request may have had its effect or not."""


class BrokerConnection(asyncio.Protocol):
    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._splitter = FrameSplitter(max_frame_bytes=MAX_RESPONSE_BYTES)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._correlation_id = 0
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, client_id: str, host: str, port: int) -> "BrokerConnection":
        """Connect to a broker without TLS.

        Raises BrokerUnavailable.
        """
        return await cls.open_at(client_id, PeerAddress(host, port))

    @classmethod
    async def open_at(
        cls, client_id: str, address: PeerAddress, token: bytes = b""
    ) -> "BrokerConnection":
        """Connect to a broker, as the client of that token if there is one.

        Raises BrokerUnavailable.
        """
        loop = asyncio.get_running_loop()
        host, port = address.host, address.port
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                _, link = await loop.create_connection(
                    lambda: cls(client_id), host, port, **address.connect_options()
                )
        except (OSError, TimeoutError) as error:
            raise BrokerUnavailable(f"{host}:{port}: {error or 'no connection'}") from error
        if token:
            try:
                await link.authenticate(token)
            except BrokerUnavailable:
                link.close()
                raise
        return link

    async def authenticate(self, token: bytes) -> None:
        """Authenticate by SASL/OAUTHBEARER, unless the broker requires none.

        Raises BrokerUnavailable.
        """
        shaken = await self.ask(
            SASL_HANDSHAKE_API, {"mechanism": OAUTHBEARER}, AUTHENTICATION_TIMEOUT_MS
        )
        if shaken["error"] == ErrorCode.ILLEGAL_SASL_STATE:
            return
        auth_bytes = b"n,,\x01auth=Bearer " + token + b"\x01\x01"
        response = await self.ask(
            SASL_AUTHENTICATE_API, {"auth_bytes": auth_bytes}, AUTHENTICATION_TIMEOUT_MS
        )
        if response["error"] != ErrorCode.NONE or response["auth_bytes"]:
            raise BrokerUnavailable("the broker rejected the client's token")

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio's by class, only by what they do.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(BrokerUnavailable("the connection was lost"))
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._splitter.feed(data)
        except MalformedFrame:
            self.close()
            return
        for frame in frames:
            waiting = self._waiting.pop(int.from_bytes(frame[:4], "big"), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(bytes(frame))

    async def ask(self, api: Api, values: Values, timeout_ms: int) -> Values:
        """Send a request in the newest version that each broker of the pool supports.

        Raises BrokerUnavailable.
        """
        version = _PEER_VERSIONS.get(api.api_key, api.max_version)
        frame = api.encode_request(self._correlation_id + 1, version, self._client_id, values)
        response = await self._ask(frame, timeout_ms)
        try:
            return api.decode_response(response, version)[1]
        except MalformedFrame as error:
            raise BrokerUnavailable(f"{api.name}: {error}") from error

    async def fetch(self, request: FetchRequest, timeout_ms: int) -> FetchResponse:
        """Send a Fetch.

        Raises BrokerUnavailable.
        """
        number = self._correlation_id + 1
        frame = encode_fetch_request(request, correlation_id=number, client_id=self._client_id)
        response = await self._ask(frame, timeout_ms)
        try:
            return decode_fetch_response(response)
        except MalformedFrame as error:
            raise BrokerUnavailable(f"Fetch: {error}") from error

    async def _ask(self, frame: bytes, timeout_ms: int) -> bytes:
        transport = self._transport
        if transport is None or transport.is_closing():
            raise BrokerUnavailable("the connection is closed")
        self._correlation_id += 1
        number = self._correlation_id
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        transport.write(frame)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await waiting
        except TimeoutError as error:
            self.close()
            raise BrokerUnavailable(f"no response within {timeout_ms} ms") from error
        finally:
            self._waiting.pop(number, None)
            if waiting.cancelled() and not self._waiting:
                self.close()


class BrokerConnections:
    def __init__(
        self,
        metadata: MetadataCache,
        client_id: str,
        addresses: PeerAddresses = PLAIN,
        *,
        token: BearerToken | None = None,
    ) -> None:
        self._metadata = metadata
        self._addresses = addresses
        self._token = token or BearerToken()
        self._client_id = client_id
        self._links: dict[tuple[str, int], BrokerConnection] = {}
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True
        for link in self._links.values():
            link.close()
        self._links.clear()

    async def broker(self, broker_id: BrokerId) -> BrokerConnection:
        """Return the connection to a broker.

        Raises BrokerUnavailable.
        """
        broker = self._metadata.brokers.get(broker_id)
        if broker is None:
            raise BrokerUnavailable(f"broker {broker_id}: unknown to this broker")
        return await self.to(broker.broker_id, broker.endpoints)

    async def to(self, broker_id: BrokerId, endpoints: Endpoints) -> BrokerConnection:
        """Return the connection to a broker at these endpoints.

        Raises BrokerUnavailable.
        """
        address = self._addresses.kafka(broker_id, endpoints)
        host, port = address.host, address.port
        known = self._links.get((host, port))
        if known is not None and known.is_open:
            return known
        link = await BrokerConnection.open_at(self._client_id, address, self._token.value)
        opened = self._links.get((host, port))
        if self._is_closed or (opened is not None and opened.is_open):
            link.close()
            if opened is None or not opened.is_open:
                raise BrokerUnavailable(f"{host}:{port}: closed")
            return opened
        self._links[host, port] = link
        return link
