"""Listen for Kafka clients: accept connections, close idle ones, end all of them at the stop."""

import asyncio
import logging
import ssl
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.apis.handler_table import add_handlers
from tidemark_broker.kafka.network.client_session import OPEN, ListenerRules
from tidemark_broker.kafka.network.connection import KafkaConnection
from tidemark_broker.kafka.network.connection_limit import OverLimitConnections
from tidemark_broker.kafka.network.renewed_server import RenewedServer
from tidemark_broker.kafka.network.replica_rights import ReplicaRights
from tidemark_broker.kafka.network.request import ApiHandler
from tidemark_broker.kafka.network.unauthenticated_connections import UnauthenticatedConnections
from tidemark_broker.kafka.network.violations import ProtocolViolations
from tidemark_broker.quota_manager import ClientQuotaManager
from tidemark_broker.replication.follower_fetch import FollowerFetchHandler
from tidemark_broker.security.client_certificate import CertifiedClient
from tidemark_broker.security.tls import BrokerTls, PeerIdentity

_log = logging.getLogger(__name__)

REPLICATION = "@replication"  # a name that no listener of clients can have: nothing is authorised
CERTIFIED_REPLICAS = ListenerRules(replicas=ReplicaRights.CERTIFIED, serves_clients=False)


class SocketServer:
    """The connections of all listeners of the broker."""

    def __init__(self, context: HandlerContext, tls: BrokerTls | None = None) -> None:
        self.context = context
        self._tls = tls
        self._replication: RenewedServer | None = None
        self._tls_servers: list[RenewedServer] = []  # of clients
        self._renewing: asyncio.Task[None] | None = None
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
        self._servers: list[asyncio.Server] = []
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
        is_plain: bool = False,
    ) -> int:
        """Listen on a port (0 asks for a free one) and return it.

        May be called for several ports, each with the name and rules of its listener; one that
        `is_plain` has no TLS in a pool with it. Raises OSError.
        """
        loop = asyncio.get_running_loop()
        if self._tls is not None:  # followers have a port where certificates name them
            rules = replace(rules, replicas=ReplicaRights.NONE)
        if self._tls is not None and not is_plain:
            renewed = RenewedServer(host, port, lambda: KafkaConnection(self, listener, rules))
            self._tls_servers.append(renewed)
            if self._renewing is None:
                self._renewing = loop.create_task(
                    self._renew_clients(self._tls, self._tls.clients), name="client authorities"
                )
            await renewed.accept_with(self._tls.clients)
            self._begin_sweeps()
            return renewed.port
        server = await loop.create_server(
            lambda: KafkaConnection(self, listener, rules), host, port, backlog=512
        )
        self._servers.append(server)
        self._begin_sweeps()
        return int(server.sockets[0].getsockname()[1])

    def _begin_sweeps(self) -> None:
        if self._sweep_timer is None:
            loop = asyncio.get_running_loop()
            self._sweep_timer = loop.call_later(self.limits.sweep_seconds, self._sweep)

    async def start_replication(self, host: str, port: int) -> int:
        """Listen for replicas of other brokers, by mutual TLS if there is TLS, and return the port.

        Raises OSError.
        """
        if self._tls is None:
            return await self.start(
                host, port, listener=REPLICATION, rules=ListenerRules(serves_clients=False)
            )
        self._replication = RenewedServer(
            host, port, lambda: KafkaConnection(self, REPLICATION, CERTIFIED_REPLICAS)
        )
        await self.renew_replication()
        return self._replication.port

    async def renew_replication(self) -> None:
        """Accept connections of brokers with the certificate and the authorities of now."""
        assert self._tls is not None and self._replication is not None
        await self._replication.accept_with(self._tls.peers_in)

    async def _renew_clients(self, tls: BrokerTls, context: ssl.SSLContext) -> None:
        """Accept clients with the authorities of now, whenever these change, until cancelled.

        Clients that former ones let in connect again.
        """
        while True:
            context = await tls.next_clients(context)
            try:
                for server in self._tls_servers:
                    await server.accept_with(context)
            except OSError as error:  # no file to spare
                _log.error("listener not renewed", extra={"reason": str(error)})
            for connection in tuple(self.connections):
                connection.close_if_certified()

    async def stop(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self.memory.stop()
        self.context.leader_changes.stop()
        self.over_limit_connections.stop()
        self.violations.log_counts()
        if self._renewing is not None:
            self._renewing.cancel()
        renewed = [*self._tls_servers, *(() if self._replication is None else (self._replication,))]
        servers = [*self._servers, *(each.close() for each in renewed)]
        for server in self._servers:
            server.close()
        for connection in tuple(self.connections):
            connection.close()
        for server in servers:
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
