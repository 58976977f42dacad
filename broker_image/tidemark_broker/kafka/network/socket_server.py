"""Listen for Kafka clients: accept connections, close idle ones, end all of them at the stop."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.apis.handler_table import add_handlers
from tidemark_broker.kafka.network.client_session import OPEN, ListenerRules
from tidemark_broker.kafka.network.connection import KafkaConnection
from tidemark_broker.kafka.network.connection_limit import OverLimitConnections
from tidemark_broker.kafka.network.replica_rights import ReplicaRights
from tidemark_broker.kafka.network.request import ApiHandler
from tidemark_broker.kafka.network.unauthenticated_connections import UnauthenticatedConnections
from tidemark_broker.kafka.network.violations import ProtocolViolations
from tidemark_broker.quota_manager import ClientQuotaManager
from tidemark_broker.replication.follower_fetch import FollowerFetchHandler
from tidemark_broker.security.tls import (
    HANDSHAKE_TIMEOUT_SECONDS,
    SHUTDOWN_TIMEOUT_SECONDS,
    BrokerTls,
    PeerIdentity,
    TlsMode,
)
from tidemark_broker.security.tls_detection import ClosableServer, TlsDetectingServer

REPLICATION = "@replication"  # a name that no listener of clients can have: nothing is authorised
PLAIN_REPLICAS = ListenerRules(serves_clients=False)
CERTIFIED_REPLICAS = ListenerRules(replicas=ReplicaRights.CERTIFIED, serves_clients=False)


class SocketServer:
    """The connections of all listeners of the broker."""

    def __init__(self, context: HandlerContext, tls: BrokerTls | None = None) -> None:
        self.context = context
        self._tls = tls
        self._replication_socket: socket.socket | None = None
        self._replication_server: asyncio.Server | None = None
        self.client_connections = context.client_connections
        self.limits = context.limits
        self.memory = context.memory
        self.over_limit_connections = OverLimitConnections(context.limits, context.scheduler)
        self.unauthenticated_connections = UnauthenticatedConnections(context.limits)
        self.request_metrics = context.request_metrics
        self.processing_clock_s = context.processing_clock_s
        self.violations = ProtocolViolations(context.clock)
        add_handlers(context)
        self.connections: dict[KafkaConnection, None] = {}  # by age
        self.has_metadata = context.partitions.metadata.has_come
        context.partitions.metadata.on_image(self._on_metadata)
        self._servers: list[ClosableServer] = []
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
        loop = asyncio.get_running_loop()
        if self._sweep_timer is None:
            self._sweep_timer = loop.call_later(self.limits.sweep_seconds, self._sweep)

        def connection() -> KafkaConnection:
            return KafkaConnection(self, listener, rules)

        if mode is TlsMode.OPTIONAL:
            tls = self._must_have_tls()
            listening = _listen(host, port)
            self._detect(listening, connection, connection, lambda: tls.clients)
            return int(listening.getsockname()[1])
        options: dict[str, Any] = {}
        if mode is TlsMode.REQUIRED:
            options = _tls_options(self._must_have_tls().clients)
        server = await loop.create_server(connection, host, port, backlog=512, **options)
        self._servers.append(server)
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
        listening = _listen(host, port)
        if mode is TlsMode.OPTIONAL:
            tls = self._tls
            self._detect(
                listening,
                lambda: KafkaConnection(self, REPLICATION, PLAIN_REPLICAS),
                lambda: KafkaConnection(self, REPLICATION, CERTIFIED_REPLICAS),
                lambda: tls.peers_in,
            )
        else:
            self._replication_socket = listening
            await self.renew_replication()
        return int(listening.getsockname()[1])

    async def renew_replication(self) -> None:
        """Accept connections of brokers with the certificate and the authorities of now.

        Trust cannot be taken back from a context, so another server accepts at the same socket.
        """
        if self._replication_socket is None:  # each connection asks for the context
            return
        assert self._tls is not None
        former = self._replication_server
        self._replication_server = await asyncio.get_running_loop().create_server(
            lambda: KafkaConnection(self, REPLICATION, CERTIFIED_REPLICAS),
            sock=self._replication_socket.dup(),
            backlog=512,
            **_tls_options(self._tls.peers_in),
        )
        if former is not None:
            former.close()

    def _detect(
        self,
        listening: socket.socket,
        plain: Callable[[], KafkaConnection],
        tls: Callable[[], KafkaConnection],
        context: Callable[[], ssl.SSLContext],
    ) -> None:
        self._servers.append(
            TlsDetectingServer(
                listening,
                plain=plain,
                tls=tls,
                context=context,
                bound=self.unauthenticated_connections,
                first_byte_seconds=self.limits.authentication_seconds,
            )
        )

    def _must_have_tls(self) -> BrokerTls:
        assert self._tls is not None, "a listener with TLS needs a certificate"
        return self._tls

    async def stop(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self.memory.stop()
        self.context.leader_changes.stop()
        self.over_limit_connections.stop()
        self.violations.log_counts()
        if self._replication_server is not None:
            self._servers.append(self._replication_server)
        if self._replication_socket is not None:
            self._replication_socket.close()
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
        self.violations.sweep()
        self._sweep_timer = loop.call_later(self.limits.sweep_seconds, self._sweep)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setblocking(False)
        listening.bind((host, port))
        listening.listen(512)
    except OSError:
        listening.close()
        raise
    return listening


def _tls_options(context: ssl.SSLContext) -> dict[str, Any]:
    return {
        "ssl": context,
        "ssl_handshake_timeout": HANDSHAKE_TIMEOUT_SECONDS,
        "ssl_shutdown_timeout": SHUTDOWN_TIMEOUT_SECONDS,
    }
