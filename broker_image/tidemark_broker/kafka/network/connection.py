"""Serve one connection: frames in, answers out in the order of their requests.

Requests are processed one at a time, except those that may overlap (Produce, so that acks=all of
one does not delay the next). The socket is not read while a bound is reached: requests that wait or
are processed, their bytes, answers that the client does not read, the memory of all connections
(memory_pool.py), a client above its quota. Bytes that are not Kafka's protocol end the connection.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from tidemark_protocol.connection_rejections import ConnectionRejections
from tidemark_protocol.ids import NO_BROKER

from tidemark_broker.clock import Timer
from tidemark_broker.kafka.network.client_session import OPEN, ClientSession, ListenerRules
from tidemark_broker.kafka.network.connection_limit import OverLimitConnections
from tidemark_broker.kafka.network.limits import ListenerLimits
from tidemark_broker.kafka.network.memory_pool import (
    LARGE_FRAME_BYTES,
    SMALL_FRAME_BYTES,
    MemoryPool,
)
from tidemark_broker.kafka.network.replica_rights import ReplicaRights
from tidemark_broker.kafka.network.request import ApiHandler, KafkaRequest
from tidemark_broker.kafka.network.request_metrics import FETCH_OF_FOLLOWER, KafkaRequestMetrics
from tidemark_broker.kafka.network.unauthenticated_connections import UnauthenticatedConnections
from tidemark_broker.kafka_wire.messages.frames import (
    API_VERSIONS,
    FETCH,
    OFFSET_FOR_LEADER_EPOCH,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Buffers,
    Frame,
    FrameSplitter,
    RequestHeader,
    foreign_protocol,
    read_request_header,
)
from tidemark_broker.kafka_wire.messages.primitives import MalformedFrame, Reader
from tidemark_broker.kafka_wire.messages.sasl import BARE_VERSION
from tidemark_broker.quota_manager import ClientQuotaManager, QuotaType
from tidemark_broker.replication.follower_fetch import FollowerFetchHandler, FollowerSession
from tidemark_broker.security.client_certificate import CertifiedClient
from tidemark_broker.security.client_connections import ClientConnections, CountedConnection
from tidemark_broker.security.tls import PeerIdentity

# What a decoded request may hold more than its frame while its answer waits: many small fields of
# a Fetch become objects, of which a frame has at most MAX_ELEMENTS (kafka_wire/messages/schema.py).
DECODED_FACTOR = 16
MAX_DECODED_BYTES = 48 * 1024 * 1024
KAFKA_LISTENER = "kafka"  # the name of the pool's own, which no other listener can have
_NOTHING = Reader(b"")
_NO_ERRORS: list[int] = []
# All else waits, unread, for this broker's first metadata, as without it no topic is known (0058).
# Whoever follows this broker, or reads from it, is told at once to look elsewhere.
_BEFORE_METADATA = frozenset(
    {API_VERSIONS, FETCH, OFFSET_FOR_LEADER_EPOCH, SASL_HANDSHAKE, SASL_AUTHENTICATE}
)
_BEFORE_AUTHENTICATION = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE})
_OF_FOLLOWERS = frozenset({API_VERSIONS, FETCH, OFFSET_FOR_LEADER_EPOCH})
_BARE_AUTHENTICATION = RequestHeader(SASL_AUTHENTICATE, BARE_VERSION, 0, None)

_log = logging.getLogger(__name__)


class ConnectionOwner(Protocol):
    client_connections: ClientConnections
    connections: "dict[KafkaConnection, None]"
    has_metadata: bool
    limits: ListenerLimits
    memory: MemoryPool
    over_limit_connections: OverLimitConnections
    request_metrics: KafkaRequestMetrics
    unauthenticated_connections: UnauthenticatedConnections
    rejections: ConnectionRejections

    @property
    def handlers(self) -> Mapping[int, ApiHandler]: ...
    @property
    def fetches(self) -> FollowerFetchHandler: ...
    @property
    def quotas(self) -> ClientQuotaManager: ...
    def processing_clock_s(self) -> float: ...
    def identify(self, certificate: Mapping[str, Any] | None) -> PeerIdentity | None: ...
    def client_of(self, certificate: Mapping[str, Any] | None) -> CertifiedClient | None: ...
    def session_seconds(self, expires_at_ms: int) -> float: ...


class _Waiting:
    """A whole request that waits.

    Its bytes count in the pool of requests, `large_bytes` in the pool of large ones. `arrived_s`
    is by the processing clock.
    """

    __slots__ = ("arrived_s", "frame", "large_bytes")

    def __init__(self, frame: Frame, large_bytes: int, arrived_s: float) -> None:
        self.arrived_s = arrived_s
        self.frame = frame
        self.large_bytes = large_bytes

    @property
    def counted_bytes(self) -> int:
        return 0 if self.large_bytes else len(self.frame)


class RunningRequest:
    """A request from its start until its answer is written; `buffers` is None before it."""

    __slots__ = (
        "api_key",
        "arrived_s",
        "begun_s",
        "buffers",
        "counted_bytes",
        "errors",
        "frame_bytes",
        "large_bytes",
        "overlaps",
        "request",
        "throttle_ms",
    )

    def __init__(self, waiting: _Waiting) -> None:
        self.overlaps = False  # the next may begin
        self.api_key = -1
        self.arrived_s = waiting.arrived_s
        self.frame_bytes = len(waiting.frame)
        self.errors: list[int] = _NO_ERRORS
        self.begun_s = 0.0  # loop time, of one that is not small
        self.counted_bytes = waiting.counted_bytes
        self.large_bytes = waiting.large_bytes
        self.buffers: Buffers | None = None
        self.request: KafkaRequest | None = None
        self.throttle_ms = 0


class KafkaConnection(asyncio.Protocol):
    def __init__(
        self, owner: ConnectionOwner, listener: str = "", rules: ListenerRules = OPEN
    ) -> None:
        """Create a connection of the listener with this name and these rules."""
        self._owner = owner
        self._listener = listener
        self._limits = owner.limits
        self._memory = owner.memory
        self._transport: asyncio.Transport | None = None
        self._session = ClientSession(rules, on_authenticated=self._on_authenticated)
        self._splitter = FrameSplitter(
            max_frame_bytes=owner.limits.unauthenticated_bytes
            if self._session.must_authenticate
            else owner.limits.request_bytes
        )
        self._is_guarded = rules != OPEN
        self._session_timer: Timer | None = None  # until authentication, then of its expiry
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._partial_counted = 0
        self._in_work: deque[RunningRequest] = deque()
        self._link = FollowerSession()
        self._is_write_paused = False
        self._is_beginning = False
        self._unread_counted = 0
        self._throttle_timer: Timer | None = None
        self._identity_timer: Timer | None = None  # until the client's certificate ends
        self._is_over_limit = False  # above the limit of connections
        self._is_known = False  # something whole has come
        self._counted = CountedConnection(listener or KAFKA_LISTENER, has_tls=False)
        self._client_host = ""
        self._loop = asyncio.get_running_loop()
        self._clock_s = owner.processing_clock_s
        self._observe = owner.request_metrics.observe
        self.active_s = 0.0  # loop time of the last whole request or answer

    @property
    def is_peer(self) -> bool:
        """Return whether the client is another broker of the pool; clients must not delay it."""
        return self._link.is_peer

    # ---- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio's by class, only by what they do.
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._client_host = str(peer[0]) if peer else ""
        self._counted.has_tls = transport.get_extra_info("ssl_object") is not None
        certified = self._certify(transport) if self._session.can_authenticate else None
        if self._session.must_authenticate:
            self._owner.unauthenticated_connections.join(self, self._listener, self._client_host)
            self._session_timer = self._loop.call_later(
                self._limits.authentication_seconds, self._end_if_unauthenticated
            )
        elif certified is None and self._is_full():
            self._is_over_limit = True
            self._owner.over_limit_connections.join(self)
        stream = transport.get_extra_info("socket")
        if stream is not None:  # a lost machine closes no connection
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._record_activity()
        self._owner.connections[self] = None
        self._memory.join(self)
        if self._session.rules.replicas is not ReplicaRights.ANY:
            self._identify(transport, self._session.rules.replicas)
        if certified is None:
            return
        if certified.identity is None:
            self.reject("client certificate", certified.reason)
        else:
            self._on_authenticated()

    def _certify(self, transport: asyncio.BaseTransport) -> CertifiedClient | None:
        """Authenticate a client that has a certificate, and return who it is."""
        found = self._owner.client_of(transport.get_extra_info("peercert"))
        if found is not None and found.identity is not None:
            left_s = self._owner.session_seconds(found.identity.expires_at_ms)
            self._session.certify(found.identity.principal, self._loop.time() + left_s)
        return found

    def _identify(self, transport: asyncio.BaseTransport, rights: ReplicaRights) -> None:
        """Let the client fetch as the broker that its certificate names, while that is valid."""
        self._link.restrict_to(NO_BROKER)
        if rights is ReplicaRights.NONE:
            return
        identity = self._owner.identify(transport.get_extra_info("peercert"))
        if identity is None:
            self.reject("foreign certificate", "the certificate names no broker of this pool")
            return
        self._link.restrict_to(identity.broker_id)
        self._identity_timer = self._loop.call_later(identity.left_s, self.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._session.rejection:  # known to the client, which left without ending the exchange
            self._note("authentication failed", self._session.rejection)
        self._owner.connections.pop(self, None)
        self._forget_waiting()
        self._memory.requests.give_back(self._partial_counted)
        self._memory.answers.give_back(self._unread_counted)
        self._partial_counted = self._unread_counted = 0
        self._memory.forget(self)
        self._owner.over_limit_connections.forget(self)
        self._owner.unauthenticated_connections.forget(self, self._listener)
        self._counted.end()
        for timer in (self._throttle_timer, self._session_timer, self._identity_timer):
            if timer is not None:
                timer.cancel()
        self._owner.fetches.cancel(self._link)
        self._drop_work()

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._splitter.feed(data)
        except MalformedFrame as error:
            self._reject_stream(data, str(error))
            return
        self._count(frames)
        if frames:
            self._is_known = True
            self._record_activity()
            self._owner.fetches.end_now(self._link)
        self._work()

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        unread, self._unread_counted = self._unread_counted, 0
        self._memory.answers.give_back(unread)
        self._work()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def close_if_certified(self) -> None:
        """Close the connection if its client is known by a certificate only.

        It connects again, and is verified by the authorities of then.
        """
        if self._session.is_certified:
            self._end()

    def close_if_idle(self, since_s: float) -> None:
        """Close the connection if it has been idle since `since_s`.

        It is idle if no whole frame came or went and it waits for no answer of ours.
        """
        if self.active_s < since_s and (not self._in_work or self._is_write_paused):
            self._abort()

    # ---- what the memory of all connections calls

    def check_again(self) -> None:
        if self._memory.is_reserved(self):
            counted, self._partial_counted = self._partial_counted, 0
            self._memory.requests.give_back(counted)
        self._set_reading()
        self._hurry()
        if self._waiting:  # not from here: this may be the middle of an append
            asyncio.get_running_loop().call_soon(self._work)

    def partial_bytes(self) -> int:
        return self._splitter.partial_bytes

    def unanswered_bytes(self, patience_s: float) -> int:
        before_s = self._loop.time() - patience_s
        return sum(
            work.counted_bytes
            for work in self._in_work
            if 0 < work.begun_s <= before_s
            # One that ends when it is hurried waits only for this broker, which is slow.
            and not (work.request is not None and work.request.ends_when_hurried)
        )

    def unread_bytes(self) -> int:
        transport = self._transport
        if transport is None or not self._unread_counted:
            return 0
        return max(1, transport.get_write_buffer_size())

    def reject(self, kind: str, reason: str) -> None:
        """Close the connection at once.

        What is being sent to the client is not worth its memory.
        """
        self._note(kind, reason)
        self._abort()

    # ---- authentication

    def _refusal(self, api_key: int) -> str:
        """Return why this connection may not send such a request now, or ""."""
        session = self._session
        if not session.rules.serves_clients and api_key not in _OF_FOLLOWERS:
            return f"API key {api_key}: this port serves only replicas"
        if api_key in _BEFORE_AUTHENTICATION:
            return ""
        if session.must_authenticate:
            return f"API key {api_key}: this port requires authentication (SASL) first"
        if session.is_over(self._loop.time()):
            return f"API key {api_key}: the authentication has expired"
        return ""

    def _is_use(self, api_key: int) -> bool:
        """Return whether such a request is a client's use of the connection."""
        return self._session.rules.serves_clients and api_key not in _BEFORE_AUTHENTICATION

    def _is_full(self) -> bool:
        """Return whether there are as many connections as allowed, unauthenticated ones aside."""
        count = len(self._owner.connections) - len(self._owner.unauthenticated_connections)
        return count >= self._limits.connections

    def _on_authenticated(self) -> None:
        """Serve the client from now on, until its authentication is over."""
        self._owner.unauthenticated_connections.forget(self, self._listener)
        self._counted.used(self._owner.client_connections, is_authenticated=True)
        count = len(self._owner.connections) - len(self._owner.unauthenticated_connections)
        if count > self._limits.connections:
            self.reject("too many connections", f"{self._limits.connections} connections are open")
            return
        self._splitter.allow(self._limits.request_bytes)
        if self._session_timer is not None:
            self._session_timer.cancel()
            self._session_timer = None
        if self._session.expires_at_s is not None:
            left_s = max(0.0, self._session.expires_at_s - self._loop.time())
            self._session_timer = self._loop.call_later(left_s, self._end_session)

    def _end_if_unauthenticated(self) -> None:
        if self._session.must_authenticate:
            seconds = self._limits.authentication_seconds
            self.reject("no authentication", f"none within {seconds:g} s")

    def _end_session(self) -> None:
        """Close a connection whose client did not authenticate again in time (KIP-368)."""
        expires_at_s = self._session.expires_at_s
        assert expires_at_s is not None
        left_s = expires_at_s + self._limits.authentication_seconds - self._loop.time()
        if self._session.exchange is not None and left_s > 0:  # it is about to
            self._session_timer = self._loop.call_later(left_s, self._end_session)
            return
        self._end()

    # ---- inside

    def _next_api_key(self) -> int:
        if self._session.takes_bare_bytes:
            return SASL_AUTHENTICATE
        return int.from_bytes(self._waiting[0].frame[:2], "big", signed=True)

    def _count(self, frames: list[Frame]) -> None:
        """Count what has arrived, in the pool that it belongs to."""
        memory, splitter = self._memory, self._splitter
        previous, self._partial_counted = self._partial_counted, 0
        counted_bytes = 0
        arrived_s = self._clock_s()
        for frame in frames:
            size_bytes = len(frame)
            large_bytes = memory.keep_reserved(self) if size_bytes > LARGE_FRAME_BYTES else 0
            self._waiting.append(_Waiting(frame, large_bytes, arrived_s))
            self._waiting_bytes += size_bytes
            counted_bytes += 0 if large_bytes else size_bytes
        if splitter.partial_bytes:
            claimed = splitter.claimed_bytes
            is_large = claimed > LARGE_FRAME_BYTES
            if not (is_large and memory.reserve(self, claimed)):
                self._partial_counted = splitter.partial_bytes
                counted_bytes += self._partial_counted
        memory.requests.take(counted_bytes)
        if previous:
            memory.requests.give_back(previous)

    def _work(self) -> None:
        while self._waiting and self._transport is not None and self._may_begin():
            if self._is_over_limit and not self._may_stay():
                return
            waiting = self._waiting.popleft()
            self._waiting_bytes -= len(waiting.frame)
            self._is_beginning = True
            try:
                self._begin(waiting)
            except MalformedFrame as error:
                self._fail(error)
                return
            except Exception as error:
                _log.exception("request failed")
                self._fail(f"{type(error).__name__}: {error}")
                return
            finally:
                self._is_beginning = False
        self._set_reading()

    def _set_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        may_read = self._may_read()
        if may_read == transport.is_reading():
            return
        if may_read:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def _may_read(self) -> bool:
        limits = self._limits
        is_full = (
            len(self._waiting) >= limits.waiting_requests
            or self._waiting_bytes >= limits.waiting_bytes
        )
        if is_full or self._throttle_timer is not None:
            return False
        is_small = self._splitter.claimed_bytes <= LARGE_FRAME_BYTES
        if is_small and not self._memory.requests.is_full:
            return True
        return self.is_peer or self._memory.is_reserved(self)

    def _may_begin(self) -> bool:
        if self._is_write_paused or self._throttle_timer is not None:
            return False
        if len(self._in_work) >= self._limits.requests_in_work:
            return False
        key = self._next_api_key()
        handler = self._owner.handlers.get(key)
        if handler is None or (self._is_guarded and self._refusal(key)):
            return not self._in_work  # refused in its turn
        if not self._owner.has_metadata and key not in _BEFORE_METADATA:
            return False
        if self._memory.answers.is_full and not self.is_peer and not self._may_response(handler):
            return False
        if not self._in_work:
            return True
        return handler.overlaps and all(work.overlaps for work in self._in_work)

    def _may_stay(self) -> bool:
        """Return whether a connection above the limit stays.

        A client's request is not begun, because its answer would be lost.
        """
        if self._next_api_key() == FETCH:
            return True
        self._is_over_limit = False
        return self._owner.over_limit_connections.judge(self)

    def _may_response(self, handler: ApiHandler) -> bool:
        """Return whether a request may begin while clients leave too much unread.

        No answers with records then, and other answers up to one and a half times the limit, so
        that producers can still find leaders and coordinators.
        """
        responses = self._memory.answers
        is_within = responses.used_bytes * 2 < responses.limit_bytes * 3
        return handler.overlaps or (is_within and not handler.has_large_response)

    def _begin(self, waiting: _Waiting) -> None:
        work = RunningRequest(waiting)
        # From here on it is the deque that knows what has to be given back.
        self._in_work.append(work)
        reader = Reader(waiting.frame)
        is_bare = self._session.takes_bare_bytes
        header = _BARE_AUTHENTICATION if is_bare else read_request_header(reader)
        if self._is_guarded and (refusal := self._refusal(header.api_key)):
            raise MalformedFrame(refusal)
        handler = self._owner.handlers.get(header.api_key)
        if handler is None:
            raise MalformedFrame(
                f"API key {header.api_key} version {header.api_version}: not supported"
            )
        work.api_key = header.api_key
        if not self._counted.is_counted and self._is_use(header.api_key):
            self._counted.used(self._owner.client_connections, is_authenticated=False)
        supported = handler.supported
        is_known = supported.min_version <= header.api_version <= supported.max_version
        if not is_known and not is_bare and header.api_key != API_VERSIONS:
            raise MalformedFrame(
                f"API key {header.api_key}: expected version {supported.min_version} to"
                f" {supported.max_version}, found {header.api_version}"
            )
        frame_bytes = len(waiting.frame)
        if frame_bytes > SMALL_FRAME_BYTES and not handler.overlaps and not self.is_peer:
            work.begun_s = self._loop.time()
            more_bytes = min(DECODED_FACTOR * frame_bytes, MAX_DECODED_BYTES)
            work.counted_bytes += more_bytes
            self._memory.requests.take(more_bytes)
        request = work.request = KafkaRequest(
            header,
            reader,
            self._link,
            lambda buffers: self._answer(work, buffers),
            self._fail,
            self._client_host,
            listener=self._listener,
            principal=self._session.principal,
            release=lambda kept: self._release_begun(work, kept, overlaps=handler.overlaps),
            session=self._session,
        )
        self._handle(handler, request)
        self._hurry()

    def _hurry(self) -> None:
        """End the waits of requests that hold much memory, while memory is short."""
        if not self._memory.requests.is_full:
            return
        for work in self._in_work:
            if work.request is not None and work.counted_bytes > SMALL_FRAME_BYTES:
                work.request.hurry()

    def _handle(self, handler: ApiHandler, request: KafkaRequest) -> None:
        quotas = self._owner.quotas
        if self.is_peer or not quotas.limits_time:
            handler.handle(request)
            return
        client_id = request.header.client_id
        # Of this request's time its own answer knows nothing yet, the next one does.
        request.throttle_ms = quotas.throttle_ms(client_id, QuotaType.LOOP_SECONDS, 0)
        clock_s = self._clock_s

        def measured(part: Callable[[], None]) -> None:
            began_s = clock_s()
            part()
            quotas.throttle_ms(client_id, QuotaType.LOOP_SECONDS, clock_s() - began_s)

        request.measured = measured
        measured(lambda: handler.handle(request))

    def _answer(self, work: RunningRequest, buffers: Buffers) -> None:
        assert work.buffers is None, "a request is answered once"
        assert work.request is not None
        work.buffers = buffers
        work.throttle_ms = work.request.throttle_ms
        work.errors = work.request.errors
        work.request.end()
        work.request = None
        self._release(work)
        while self._in_work and (ready := self._in_work[0].buffers) is not None:
            done = self._in_work.popleft()
            self._write(ready)
            api_key = done.api_key
            if api_key == FETCH and self._link.is_peer:
                api_key = FETCH_OF_FOLLOWER
            seconds = self._clock_s() - done.arrived_s
            self._observe(api_key, seconds, done.frame_bytes, ready)
            if done.errors:
                self._owner.request_metrics.observe_errors(api_key, done.errors)
            if done.throttle_ms:
                self._throttle(done.throttle_ms)
        if self._session.failure and not self._in_work:
            self._reject("authentication failed", self._session.failure)
        self._record_activity()
        if self._waiting:  # not from here: answers may come in the middle of an append
            self._loop.call_soon(self._work)

    def _write(self, buffers: Buffers) -> None:
        transport = self._transport
        # uvloop raises on a closed handle.
        if not buffers or transport is None or transport.is_closing():
            return
        transport.writelines(buffers)
        if self._is_write_paused and not self.is_peer:
            size_bytes = sum(len(buffer) for buffer in buffers)
            self._unread_counted += size_bytes
            self._memory.answers.take(size_bytes)

    def _release_begun(self, work: RunningRequest, retained_bytes: int, *, overlaps: bool) -> None:
        """Release a request that has begun completely.

        A request that may overlap it keeps its order from here on.
        """
        work.overlaps = overlaps
        self._release(work)
        if retained_bytes:
            work.counted_bytes = retained_bytes
            self._memory.requests.take(retained_bytes)
        if self._waiting and not self._is_beginning:
            self._loop.call_soon(self._work)

    def _release(self, work: RunningRequest) -> None:
        """Give back the memory of a request whose frame is no longer needed."""
        counted, large = work.counted_bytes, work.large_bytes
        work.counted_bytes = work.large_bytes = 0
        if work.request is not None:
            work.request.reader = _NOTHING
        if counted:
            self._memory.requests.give_back(counted)
        if large:
            self._memory.release_large(large)

    def _throttle(self, throttle_ms: int) -> None:
        """Stop reading for as long as the client was told to wait (KIP-219)."""
        loop = asyncio.get_running_loop()
        if self._transport is None:
            return
        if self._throttle_timer is not None:
            self._throttle_timer.cancel()
        self._throttle_timer = loop.call_later(throttle_ms / 1000, self._end_throttle)
        self._set_reading()

    def _end_throttle(self) -> None:
        self._throttle_timer = None
        self._work()

    def _record_activity(self) -> None:
        self.active_s = self._loop.time()

    def _drop_work(self) -> None:
        """Drop all requests: the client is gone."""
        in_work, self._in_work = self._in_work, deque()
        for work in in_work:
            self._release(work)
            if work.buffers is None and work.request is not None:
                work.request.cancel()

    def _forget_waiting(self) -> None:
        dropped, self._waiting = self._waiting, deque()
        self._waiting_bytes = 0
        for waiting in dropped:
            self._memory.requests.give_back(waiting.counted_bytes)
            if waiting.large_bytes:
                self._memory.release_large(waiting.large_bytes)

    def _reject_stream(self, data: bytes, reason: str) -> None:
        foreign = "" if self._is_known else foreign_protocol(data)
        if foreign:
            self._reject(foreign, f"a client sent {foreign} to the Kafka port")
        else:
            self._reject("malformed frame", reason)

    def _note(self, kind: str, reason: str) -> None:
        self._owner.rejections.note(
            self._client_host, kind, reason, protocol="kafka", listener=self._listener
        )

    def _fail(self, reason: str | MalformedFrame) -> None:
        is_malformed = isinstance(reason, MalformedFrame)
        self._reject("malformed request" if is_malformed else "failed request", str(reason))

    def _reject(self, kind: str, reason: str) -> None:
        """End the connection: what follows in the stream has no meaning."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._note(kind, reason)
        self._end()

    def _end(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._forget_waiting()
        self._drop_work()
        transport.close()  # answers on their way are still sent, but not for ever
        self._loop.call_later(self._limits.closing_seconds, self._abort)

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
