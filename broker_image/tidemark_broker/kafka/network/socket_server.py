"""Listen for Kafka clients: accept connections, close idle ones, end all of them at the stop."""

import asyncio
from collections.abc import Mapping

from tidemark_broker.kafka.apis.handler_context import HandlerContext
from tidemark_broker.kafka.apis.handler_table import add_handlers
from tidemark_broker.kafka.network.client_session import OPEN, ListenerRules
from tidemark_broker.kafka.network.connection import KafkaConnection
from tidemark_broker.kafka.network.connection_limit import OverLimitConnections
from tidemark_broker.kafka.network.request import ApiHandler
from tidemark_broker.kafka.network.unauthenticated_connections import UnauthenticatedConnections
from tidemark_broker.kafka.network.violations import ProtocolViolations
from tidemark_broker.quota_manager import ClientQuotaManager
from tidemark_broker.replication.follower_fetch import FollowerFetchHandler


class SocketServer:
    """The connections of all listeners of the broker."""

    def __init__(self, context: HandlerContext) -> None:
        self.context = context
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

    async def start(
        self, host: str, port: int, *, listener: str = "", rules: ListenerRules = OPEN
    ) -> int:
        """Listen on a port (0 asks for a free one) and return it.

        May be called for several ports, each with the name and rules of its listener. Raises
        OSError.
        """
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: KafkaConnection(self, listener, rules), host, port, backlog=512
        )
        self._servers.append(server)
        if self._sweep_timer is None:
            self._sweep_timer = loop.call_later(self.limits.sweep_seconds, self._sweep)
        return int(server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self.memory.stop()
        self.context.leader_changes.stop()
        self.over_limit_connections.stop()
        self.violations.log_counts()
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
