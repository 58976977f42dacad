"""Call the controller: try each address, remember the leader, accept responses by their epochs.

A call is one POST to one address: the leader that answered last, a leader that a standby named,
else the configured names in turn, each resolved at that moment (a headless Service's addresses
change with its pods). Nothing here retries.

Slow requests have connections of their own, a few at a time, so that no number of clients with slow
requests delays a heartbeat (0057).

The channel is built before the log directory is open, and started once the epochs of responses can
be stored there. Until then requests on behalf of clients have no response.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import aiohttp
from tidemark_protocol.access_messages import (
    REVIEW_ACCESS_PATH,
    SIGN_CERTIFICATE_PATH,
    Access,
    Principal,
    ReviewAccessRequest,
    ReviewAccessResponse,
    ReviewTokenResponse,
    ScramCredentialResponse,
    SignCertificateRequest,
    SignCertificateResponse,
)
from tidemark_protocol.certificate_names import CONTROLLER_NAME
from tidemark_protocol.controller_messages import (
    ALLOCATE_PRODUCER_IDS_PATH,
    ALTER_PARTITION_PATH,
    MAX_MESSAGE_BYTES,
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    IsrProposal,
    MalformedMessage,
    RegisterResponse,
    decode,
    encode,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_EPOCH, BrokerEpoch, BrokerId, ControllerEpoch
from tidemark_protocol.token_file import TokenFile
from tidemark_protocol.topic_messages import RequestingBroker, TopicsRequest, TopicsResponse

from tidemark_broker.security.tls import TrustedFile

_log = logging.getLogger(__name__)

Response = TypeVar("Response")
Reviewed = TypeVar("Reviewed", ReviewTokenResponse, ScramCredentialResponse)
Accepted = TypeVar("Accepted", AlterPartitionResponse, AllocateProducerIdsResponse, TopicsResponse)

CONNECT_TIMEOUT_SECONDS = 1.0
MAX_BACKGROUND_CALLS = 4
UNAUTHORIZED = 401
MAX_REVIEW_CALLS = 4  # of clients' credentials, which changes of topics do not delay
REVIEW_TIMEOUT_MS = 5_000


class ControllerUnavailable(Exception):
    """An error: no response from this address in time, or one that is not a response."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        host, separator, port = text.strip().rpartition(":")
        if not separator or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"a controller's address: expected host:port, found {text!r}")
        return cls(host.strip("[]"), int(port))


class ControllerTransport(Protocol):
    """The transport of a request to one controller: HTTP, or the simulator's network."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def post(self, address: Address, path: str, body: bytes) -> bytes:
        """Return the response's body.

        Only connecting has a limit of its own; cancelling this closes the connection. Raises
        ControllerUnavailable or OSError.
        """
        ...

    async def resolve(self, name: Address) -> list[Address]:
        """Return all addresses that a configured name has now.

        Raises OSError.
        """
        ...


class EpochStore(Protocol):
    """The durable epochs of this broker and of the controllers that it accepted (S16)."""

    async def store(self, broker_epoch: BrokerEpoch, controller_epoch: ControllerEpoch) -> bool:
        """Store the epochs; False: the storage failed, and the response does not count."""
        ...


class HttpTransport:
    """Requests by HTTP, with the token by which the controller knows this broker."""

    def __init__(
        self, token_file: Path | None = None, *, trusted: TrustedFile | None = None
    ) -> None:
        """Create it; with `trusted` authorities requests go by TLS."""
        self._token = TokenFile(token_file)
        self._trusted = trusted
        self._http: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        # aiohttp sets TCP_NODELAY. Polls, proposals and an interrupting poll go side by side.
        connector = aiohttp.TCPConnector(limit=8, use_dns_cache=False, keepalive_timeout=30)
        self._http = aiohttp.ClientSession(connector=connector, auto_decompress=False)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()

    async def post(self, address: Address, path: str, body: bytes) -> bytes:
        assert self._http is not None, "start first"
        host = f"[{address.host}]" if ":" in address.host else address.host
        scheme, options = "http", {}
        if self._trusted is not None:
            # Whatever address it has: its name is its identity.
            scheme = "https"
            options = {"ssl": self._trusted.context, "server_hostname": CONTROLLER_NAME}
        try:
            async with self._http.post(
                f"{scheme}://{host}:{address.port}{path}",
                data=body,
                headers={"content-type": "application/json", **self._token.headers()},
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_SECONDS),
                **cast(Any, options),
            ) as response:
                if response.status == UNAUTHORIZED:
                    self._token.expire()
                return await _read(response)
        except aiohttp.ClientError as error:
            raise ControllerUnavailable(str(error) or type(error).__name__) from error

    async def resolve(self, name: Address) -> list[Address]:
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(name.host, name.port, type=socket.SOCK_STREAM)
        return [Address(str(socket_address[0]), name.port) for *_, socket_address in infos]


async def _read(response: aiohttp.ClientResponse) -> bytes:
    chunks = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > MAX_MESSAGE_BYTES:
            raise ControllerUnavailable(f"an answer above {MAX_MESSAGE_BYTES} bytes")
        chunks.append(chunk)
    if response.status != 200:
        text = b"".join(chunks)[:200].decode(errors="replace")
        raise ControllerUnavailable(f"expected status 200, found {response.status}: {text}")
    return b"".join(chunks)


class ControllerChannel:
    def __init__(
        self,
        controllers: tuple[str, ...],
        new_transport: Callable[[], ControllerTransport],
        *,
        pool: str,
        broker_id: BrokerId,
        has_tls: bool = False,
    ) -> None:
        """Create a channel; `new_transport` is called twice, each with connections of its own."""
        self._has_tls = has_tls
        self.pool = pool
        self.broker_epoch = BrokerEpoch(NO_EPOCH)
        self.controller_epoch = ControllerEpoch(NO_EPOCH)
        self.session_timeout_ms = 3000
        self.problem = "not registered with a controller yet"
        self._broker_id = broker_id
        self._epoch_store: EpochStore | None = None
        self._names = tuple(Address.parse(text) for text in controllers)
        self._transport = new_transport()
        self._transport_in_background = new_transport()
        self._in_background = asyncio.Semaphore(MAX_BACKGROUND_CALLS)
        self._reviews = asyncio.Semaphore(MAX_REVIEW_CALLS)
        self._leader: Address | None = None
        self._candidates: list[Address] = []
        self._hung: Address | None = None  # when it was asked last

    def leader(self) -> Address | None:
        """Return the address of the controller that leads, None while none is known."""
        return self._leader

    async def start(self, epoch_store: EpochStore) -> None:
        await self._transport.start()
        await self._transport_in_background.start()
        self._epoch_store = epoch_store

    async def close(self) -> None:
        await self._transport_in_background.close()
        await self._transport.close()

    # ---- addresses

    def prefer(self, controller_address: str) -> None:
        """Use the leader that a standby named; ignore an invalid address, or one that names itself.

        One that just hung is asked again only in its turn: else it is waited for twice, longer than
        a session, between two requests to the one that may lead by then.
        """
        requested, self._leader = self._leader, None
        try:
            named = Address.parse(controller_address)
        except ValueError:
            return
        if self._has_tls:  # standbys name the port without TLS
            named = Address(named.host, self._names[0].port)
        if named not in (requested, self._hung) and named not in self._candidates[:1]:
            self._candidates.insert(0, named)

    async def call(
        self, path: str, message: object, kind: type[Response], *, timeout_ms: int
    ) -> Response:
        """Call the controller.

        Raises ControllerUnavailable; the next call then goes to another address.
        """
        address = self._leader or await self._next_candidate()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                body = await self._transport.post(address, path, encode(message))
            response = decode(body, kind)
        except (TimeoutError, ControllerUnavailable, OSError, MalformedMessage) as error:
            if self._leader == address:
                self._leader = None
            if isinstance(error, TimeoutError):
                self._hung = address
            requested = f"controller {address.host}:{address.port}{path}"
            raise ControllerUnavailable(_reported(requested, error)) from error
        if self._hung == address:
            self._hung = None
        self._leader = address
        return response

    async def call_in_background(
        self,
        path: str,
        message: object,
        kind: type[Response],
        *,
        timeout_ms: int,
        among: asyncio.Semaphore | None = None,
    ) -> Response:
        """Call the leader that `call` found on a connection for slow requests.

        A failure does not make the client doubt that leader. The time counts from here, and
        includes waiting for others, which are those that `among` counts. Raises
        ControllerUnavailable.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000), among or self._in_background:
                address = self._leader
                if address is None:
                    raise ControllerUnavailable("no active controller found")
                body = await self._transport_in_background.post(address, path, encode(message))
            return decode(body, kind)
        except (TimeoutError, ControllerUnavailable, OSError, MalformedMessage) as error:
            raise ControllerUnavailable(_reported(path, error)) from error

    # ---- requests of a registered broker; None: no usable response, ask again

    async def send_proposals(
        self, proposals: tuple[IsrProposal, ...]
    ) -> AlterPartitionResponse | None:
        request = AlterPartitionRequest(self.pool, self._broker_id, self.broker_epoch, proposals)
        return await self._ask(
            ALTER_PARTITION_PATH, request, AlterPartitionResponse, during="in-sync proposals"
        )

    async def request_producer_ids(self) -> AllocateProducerIdsResponse | None:
        """Request a block of producer ids that is this broker's alone (S5)."""
        request = AllocateProducerIdsRequest(self.pool, self._broker_id, self.broker_epoch)
        return await self._ask(
            ALLOCATE_PRODUCER_IDS_PATH,
            request,
            AllocateProducerIdsResponse,
            during="producer ids",
        )

    def requesting_broker(self) -> RequestingBroker:
        return RequestingBroker(self.pool, self._broker_id, self.broker_epoch)

    async def request_topics(
        self, path: str, request: TopicsRequest, timeout_ms: int
    ) -> TopicsResponse | None:
        """Request a change of topics.

        It is as slow as the controller's own writes, and so runs concurrently with heartbeats.
        """
        if self._epoch_store is None:
            return None
        requesting = self.call_in_background(path, request, TopicsResponse, timeout_ms=timeout_ms)
        return await self._accepted(requesting, during="changes of topics")

    async def request_certificate(
        self, request_pem: str, current_pem: str, timeout_ms: int
    ) -> SignCertificateResponse | None:
        """Request a certificate; the broker need not be registered. None: ask again.

        With `current_pem` it is requested only if that one has not the names of now.
        """
        request = SignCertificateRequest(
            self.pool, self._broker_id, request_pem, self.broker_epoch, current_pem
        )
        try:
            response = await self.call(
                SIGN_CERTIFICATE_PATH, request, SignCertificateResponse, timeout_ms=timeout_ms
            )
        except ControllerUnavailable as error:
            self.record_problem("certificate", str(error))
            return None
        if response.error is ErrorCode.NOT_CONTROLLER:
            self.prefer("")
            return None
        return response

    async def review(
        self, path: str, request: object, kind: type[Reviewed], *, timeout_ms: int
    ) -> Reviewed | None:
        """Request what the controller knows of a client; None without a usable response.

        Whether the API server could be asked is no problem of this broker's registration.
        """
        if self._epoch_store is None:
            return None
        try:
            response = await self.call_in_background(
                path, request, kind, timeout_ms=timeout_ms, among=self._reviews
            )
        except ControllerUnavailable:
            return None
        if response.error is not ErrorCode.NONE:
            return None
        return response if await self.accept(response.controller_epoch) else None

    async def review_accesses(
        self, principal: Principal, accesses: tuple[Access, ...]
    ) -> ReviewAccessResponse:
        """Request what a client may do; a response with an error says why that is not known.

        It is no problem of this broker's registration if the API server could not be asked.
        """
        unknown = ErrorCode.UNKNOWN_SERVER_ERROR
        if self._epoch_store is None:
            return ReviewAccessResponse(unknown, message="not registered with a controller yet")
        request = ReviewAccessRequest(self.requesting_broker(), principal, accesses)
        try:
            response = await self.call_in_background(
                REVIEW_ACCESS_PATH,
                request,
                ReviewAccessResponse,
                timeout_ms=REVIEW_TIMEOUT_MS,
                among=self._reviews,
            )
        except ControllerUnavailable as error:
            return ReviewAccessResponse(unknown, message=str(error))
        is_result = response.error is ErrorCode.NONE
        if is_result and not await self.accept(response.controller_epoch):
            return ReviewAccessResponse(unknown, message="response of a superseded controller")
        return response

    async def _ask(
        self, path: str, request: object, kind: type[Accepted], *, during: str
    ) -> Accepted | None:
        """Send a request; None without a usable response of the leading controller."""
        if self._epoch_store is None:
            return None
        timeout_ms = self.session_timeout_ms // 2
        requesting = self.call(path, request, kind, timeout_ms=timeout_ms)
        return await self._accepted(requesting, during=during)

    async def _accepted(self, requesting: Awaitable[Accepted], *, during: str) -> Accepted | None:
        try:
            response = await requesting
        except ControllerUnavailable as error:
            self.record_problem(during, str(error))
            return None
        if response.error is ErrorCode.NOT_CONTROLLER:
            self.prefer("")
            return None
        if response.error is not ErrorCode.NONE:
            # A stale broker epoch is the heartbeat's to judge: it names the controller epoch too.
            self.record_problem(during, f"{response.error.name}: {response.message}")
            return None
        if not await self.accept(response.controller_epoch):
            return None
        return response

    # ---- epochs

    def on_registration(self, response: RegisterResponse) -> None:
        """Use the broker epoch and the session timeout of a registration's response."""
        self.session_timeout_ms = response.session_timeout_ms
        self.broker_epoch = response.broker_epoch

    async def accept(self, controller_epoch: ControllerEpoch) -> bool:
        """Store the controller epoch; False for a deposed controller's response (I16).

        Such a response is dropped. Every response passes here before anything of it counts.
        """
        if controller_epoch < self.controller_epoch:
            _log.warning(
                "response of a superseded controller ignored",
                extra={"found": controller_epoch, "expected": self.controller_epoch},
            )
            self.prefer("")
            return False
        self.controller_epoch = controller_epoch
        assert self._epoch_store is not None, "start first"
        if not await self._epoch_store.store(self.broker_epoch, controller_epoch):
            return False
        # It may have waited for space, and another controller came meanwhile.
        return controller_epoch >= self.controller_epoch

    # ---- problems that keep this broker from serving

    def record_problem(self, during: str, problem: str) -> None:
        text = f"{during}: {problem}"
        if text != self.problem:
            _log.warning("controller not reachable", extra={"problem": text})
        self.problem = text

    def clear_problem(self) -> None:
        self.problem = ""

    # ---- addresses of configured names

    async def _next_candidate(self) -> Address:
        if not self._candidates:
            self._candidates = await self._resolve()
        return self._candidates.pop(0)

    async def _resolve(self) -> list[Address]:
        found: list[Address] = []
        problem: OSError | None = None
        for name in self._names:
            try:
                resolved = await self._transport.resolve(name)
            except OSError as error:
                problem = error
                continue
            found.extend(address for address in resolved if address not in found)
        if not found:
            names = ", ".join(f"{name.host}:{name.port}" for name in self._names)
            raise ControllerUnavailable(f"no address found for {names}: {problem}")
        return found


def _reported(requested: str, error: Exception) -> str:
    return f"{requested}: {str(error) or type(error).__name__}"
