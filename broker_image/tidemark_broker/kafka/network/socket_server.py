"""Listen for Kafka clients: accept connections, close idle ones, end all of them at the stop."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from tidemark_protocol.tls_accept import TlsListener, TlsServer

from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.apis.handler_table import add_handlers
from tidemark_broker.kafka.network.client_session import OPEN, ListenerRules
from tidemark_broker.kafka.network.connection import KafkaConnection
from tidemark_broker.kafka.network.connection_limit import OverLimitConnections
from tidemark_broker.kafka.network.replica_rights import ReplicaRights
from tidemark_broker.kafka.network.request import ApiHandler
from tidemark_broker.kafka.network.unauthenticated_connections import (
    UnauthenticatedConnections,
    new_pending,
)
from tidemark_broker.quota_manager import ClientQuotaManager
from tidemark_broker.replication.follower_fetch import FollowerFetchHandler
from tidemark_broker.security.client_certificate import CertifiedClient
from tidemark_broker.security.tls import BrokerTls, PeerIdentity, TlsMode

REPLICATION = "@replication"  # a name that no listener of clients can have: nothing is authorised
PLAIN_REPLICAS = ListenerRules(serves_clients=False)
CERTIFIED_REPLICAS = ListenerRules(replicas=ReplicaRights.CERTIFIED, serves_clients=False)


class SocketServer:
    """The connections of all listeners of the broker."""

    def __init__(self, context: HandlerContext, tls: BrokerTls | None = None) -> None:
        self.context = context
        self._tls = tls
        self.client_connections = context.client_connections
        self._ending: asyncio.Task[None] | None = None
        self.limits = context.limits
        self.memory = context.memory
        self.over_limit_connections = OverLimitConnections(context.limits, context.scheduler)
        self.unauthenticated_connections = UnauthenticatedConnections(context.limits)
        self.request_metrics = context.request_metrics
        self.processing_clock_s = context.processing_clock_s
        self.rejections = context.rejections
        add_handlers(context)
        self.connections: dict[KafkaConnection, None] = {}  # by age
        self.has_metadata = context.partitions.metadata.has_come
        context.partitions.metadata.on_image(self._on_metadata)
        self._servers: list[asyncio.Server | TlsServer] = []
        self._sweep_timer: asyncio.TimerHandle | None = None

    @property
    def handlers(self) -> Mapping[int, ApiHandler]:
        return self.context.handlers

    @property
    def fetches(self) -> FollowerFetchHandler:
        return self.context.fetches

    @property
    def quotas(self) -> ClientQuotaManager:
        return self.context.quotas

    def identify(self, certificate: Mapping[str, Any] | None) -> PeerIdentity | None:
        """Return the broker that a verified certificate names."""
        return None if self._tls is None else self._tls.peer_of(certificate)

    def client_of(self, certificate: Mapping[str, Any] | None) -> CertifiedClient | None:
        """Return the client that a verified certificate names, or None without one."""
        return None if self._tls is None else self._tls.client_of(certificate)

    def session_seconds(self, expires_at_ms: int) -> float:
        """Return for how long a client is authenticated whose certificate ends then."""
        assert self._tls is not None
        return self._tls.left_seconds(expires_at_ms / 1000)

    async def start(
        self,
        host: str,
        port: int,
        *,
        listener: str = "",
        rules: ListenerRules = OPEN,
        mode: TlsMode = TlsMode.DISABLED,
    ) -> int:
        """Listen on a port (0 asks for a free one) and return it.

        May be called for several ports, each with the name and rules of its listener. Raises
        OSError.
        """

        def connection() -> KafkaConnection:
            return KafkaConnection(self, listener, rules)

        loop = asyncio.get_running_loop()
        server: asyncio.Server | TlsServer
        if mode is TlsMode.DISABLED:
            server = await loop.create_server(connection, host, port, backlog=512)
        else:
            tls = self._must_have_tls()
            plain = connection if mode is TlsMode.OPTIONAL else None
            listening = _listen(host, port)
            server = self._serve_tls(lambda: tls.clients, listening, listener, connection, plain)
            if self._ending is None:
                ending = self._end_certified(tls)
                self._ending = loop.create_task(ending, name="authorities of clients")
        self._servers.append(server)
        if self._sweep_timer is None:
            self._sweep_timer = loop.call_later(self.limits.sweep_seconds, self._sweep)
        return int(server.sockets[0].getsockname()[1])

    async def start_replication(
        self, host: str, port: int, mode: TlsMode = TlsMode.REQUIRED
    ) -> int:
        """Listen for replicas of other brokers, by mutual TLS if there is TLS, and return the port.

        Where TLS is optional, replicas of brokers that have none yet fetch without it. Raises
        OSError.
        """
        if self._tls is None:
            return await self.start(host, port, listener=REPLICATION, rules=PLAIN_REPLICAS)
        tls = self._tls

        def certified() -> KafkaConnection:
            return KafkaConnection(self, REPLICATION, CERTIFIED_REPLICAS)

        def plain() -> KafkaConnection:
            return KafkaConnection(self, REPLICATION, PLAIN_REPLICAS)

        # Of each connection's time: a renewal makes another context, as trust cannot be taken
        # back from one.
        server = self._serve_tls(
            lambda: tls.peers_in,
            _listen(host, port),
            REPLICATION,
            certified,
            plain if mode is TlsMode.OPTIONAL else None,
        )
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def _serve_tls(
        self,
        context: Callable[[], ssl.SSLContext],
        listening: socket.socket,
        listener: str,
        secured: Callable[[], KafkaConnection],
        plain: Callable[[], KafkaConnection] | None,
    ) -> TlsServer:
        def on_rejected(address: str, reason: str, detail: str) -> None:
            self.rejections.note(address, reason, detail, protocol="kafka", listener=listener)

        shared = TlsListener(
            context, new_pending(self.limits), on_rejected, self.limits.authentication_seconds
        )
        return TlsServer(shared, secured, listening, plain)

    async def _end_certified(self, tls: BrokerTls) -> None:
        """End connections of certified clients whenever authorities change, until cancelled.

        They connect again, and are verified by the authorities of then.
        """
        context = tls.clients
        while True:
            context = await tls.next_clients(context)
            for connection in tuple(self.connections):
                connection.close_if_certified()

    def _must_have_tls(self) -> BrokerTls:
        assert self._tls is not None, "a listener with TLS needs a certificate"
        return self._tls

    async def stop(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self.memory.stop()
        self.context.leader_changes.stop()
        self.over_limit_connections.stop()
        self.rejections.log_counts()
        if self._ending is not None:
            self._ending.cancel()
        for server in self._servers:
            server.close()
        for connection in tuple(self.connections):
            connection.close()
        for server in self._servers:
            await server.wait_closed()

    def _on_metadata(self) -> None:
        if self.has_metadata:
            return
        self.has_metadata = True
        for connection in tuple(self.connections):
            connection.check_again()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        for connection in tuple(self.connections):
            connection.close_if_idle(loop.time() - self.limits.idle_seconds)
        self.rejections.sweep()
        self._sweep_timer = loop.call_later(self.limits.sweep_seconds, self._sweep)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(512)
    except OSError:
        listening.close()
        raise
    return listening
