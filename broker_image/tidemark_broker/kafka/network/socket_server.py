"""Listen for Kafka clients: accept connections, close idle ones, end all of them at the stop."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import replace
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
from tidemark_broker.security.tls import BrokerTls, PeerIdentity

REPLICATION = "@replication"  # a name that no listener of clients can have: nothing is authorised
CERTIFIED_REPLICAS = ListenerRules(replicas=ReplicaRights.CERTIFIED, serves_clients=False)


class SocketServer:
    """The connections of all listeners of the broker."""

    def __init__(self, context: HandlerContext, tls: BrokerTls | None = None) -> None:
        self.context = context
        self._tls = tls
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
        server: asyncio.Server | TlsServer
        if self._tls is not None and not is_plain:
            clients = self._tls.clients
            server = self._serve_tls(lambda: clients, host, port, listener, rules)
        else:
            server = await loop.create_server(
                lambda: KafkaConnection(self, listener, rules), host, port, backlog=512
            )
        self._servers.append(server)
        if self._sweep_timer is None:
            self._sweep_timer = loop.call_later(self.limits.sweep_seconds, self._sweep)
        return int(server.sockets[0].getsockname()[1])

    async def start_replication(self, host: str, port: int) -> int:
        """Listen for replicas of other brokers, by mutual TLS if there is TLS, and return the port.

        Raises OSError.
        """
        if self._tls is None:
            return await self.start(
                host, port, listener=REPLICATION, rules=ListenerRules(serves_clients=False)
            )
        tls = self._tls
        # Of each connection's time: a renewal makes another context, as trust cannot be taken
        # back from one.
        server = self._serve_tls(lambda: tls.peers_in, host, port, REPLICATION, CERTIFIED_REPLICAS)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def _serve_tls(
        self,
        context: Callable[[], ssl.SSLContext],
        host: str,
        port: int,
        listener: str,
        rules: ListenerRules,
    ) -> TlsServer:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            listening.listen(512)
        except OSError:
            listening.close()
            raise

        def on_rejected(address: str, reason: str, detail: str) -> None:
            self.rejections.note(address, reason, detail, protocol="kafka", listener=listener)

        shared = TlsListener(context, new_pending(self.limits), on_rejected)
        return TlsServer(shared, lambda: KafkaConnection(self, listener, rules), listening)

    async def stop(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self.memory.stop()
        self.context.leader_changes.stop()
        self.over_limit_connections.stop()
        self.rejections.log_counts()
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
