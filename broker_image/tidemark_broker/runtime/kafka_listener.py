"""The Kafka listener: accepts connections, closes those that idle, ends them all at the end."""

import asyncio
from collections.abc import Mapping

from tidemark_broker.runtime.kafka.connection import KafkaConnection
from tidemark_broker.runtime.kafka.handlers import add_handlers
from tidemark_broker.runtime.kafka.requests import ApiHandler
from tidemark_broker.runtime.kafka.services import KafkaServices
from tidemark_broker.runtime.replica_fetches import ReplicaFetches

MAX_IDLE_SECONDS = 600.0  # Kafka's connections.max.idle.ms
IDLE_SWEEP_SECONDS = 30.0


class KafkaListener:
    """All connections of the listener."""

    def __init__(self, services: KafkaServices) -> None:
        self.services = services
        add_handlers(services)
        self.connections: dict[KafkaConnection, None] = {}  # by age
        self._server: asyncio.Server | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None

    @property
    def handlers(self) -> Mapping[int, ApiHandler]:
        return self.services.handlers

    @property
    def fetches(self) -> ReplicaFetches:
        return self.services.fetches

    async def start(self, host: str, port: int) -> int:
        """Returns the port (0 asks for a free one). Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: KafkaConnection(self), host, port, backlog=512
        )
        self._sweep_timer = loop.call_later(IDLE_SWEEP_SECONDS, self._sweep)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        if self._server is None:
            return
        self._server.close()
        for connection in tuple(self.connections):
            connection.close()
        await self._server.wait_closed()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        for connection in tuple(self.connections):
            connection.close_if_idle(loop.time() - MAX_IDLE_SECONDS)
        self._sweep_timer = loop.call_later(IDLE_SWEEP_SECONDS, self._sweep)
