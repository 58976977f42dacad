"""Define what a broker process uses of its machine, as one value that `main` makes.

Everything else of the outside comes through the running event loop: monotonic time, timers,
connections, worker threads, signals. So the same process runs on an operating system and in the
simulator, which has a loop and an environment of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from tidemark_protocol.connection_rejections import ConnectionRejections

from tidemark_broker.coordinator.group_coordinator_service import GroupCoordinatorService
from tidemark_broker.kafka.network.request_metrics import KafkaRequestMetrics
from tidemark_broker.log.disk import Disk
from tidemark_broker.metadata.controller_channel import ControllerTransport
from tidemark_broker.metadata.producer_id_manager import ProducerIdManager
from tidemark_broker.quota_manager import ClientQuotaManager
from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_broker.security.authenticator import Authenticator
from tidemark_broker.security.authorizer import Authorizer
from tidemark_broker.security.client_connections import ClientConnections
from tidemark_broker.security.tls import BrokerTls, TrustedFile
from tidemark_broker.server.config import BrokerConfig


class HttpBackend(Protocol):
    """The parts of a broker that HTTP serves; complete before its log directory is open."""

    settings: BrokerConfig
    incarnation: str
    partitions: ReplicaManager
    groups: GroupCoordinatorService
    quotas: ClientQuotaManager
    producer_ids: ProducerIdManager
    authorizer: Authorizer
    request_metrics: KafkaRequestMetrics
    client_connections: ClientConnections
    rejections: ConnectionRejections
    authenticator: Authenticator | None

    def is_ready(self) -> tuple[bool, str]:
        """Return whether the broker serves, and the reason if it does not."""
        ...


# Serves HTTP for the broker until the event is set; tells the port once it listens.
ServeHttp = Callable[[HttpBackend, asyncio.Event, Callable[[int], None]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class BrokerEnvironment:
    disk: Disk
    new_controller_transport: Callable[[], ControllerTransport]
    serve_http: ServeHttp  # HTTP knows the broker, not the other way round
    new_uuid: Callable[[], UUID]  # random: two lives of a broker never share one
    wall_clock_s: Callable[[], float]
    processing_clock_s: Callable[[], float]  # finer than the loop's, for quotas of time
    on_serving: Callable[[], None]  # once, when the broker begins to serve
    on_grown: Callable[[], None] = lambda: None  # by more replicas, which stay for long
    tls: BrokerTls | None = None
    controllers: TrustedFile | None = None  # the authorities of controllers
