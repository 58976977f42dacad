"""Define what the HTTP routes see of their broker."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemark_protocol.connection_rejections import ConnectionRejections
from tidemark_protocol.ids import BrokerId
from tidemark_protocol.loop_lag import LoopLag

from tidemark_broker.clock import monotonic_ms
from tidemark_broker.coordinator.core.requests import (
    GroupCounters,
    GroupGauges,
    GroupOffset,
    GroupsReport,
)
from tidemark_broker.http.consumers.group_consumer import ConsumerSettings, GroupConsumer
from tidemark_broker.http.route_access import HttpAccess, no_checks
from tidemark_broker.kafka.network.request_metrics import KafkaRequestMetrics
from tidemark_broker.metadata.producer_id_manager import ProducerIdManager
from tidemark_broker.metrics.broker_metrics import CrcFailures, MetricsProfile
from tidemark_broker.quota_manager import ClientQuotaManager
from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_broker.security.authenticator import Authenticator
from tidemark_broker.security.client_certificate import CertifiedClient
from tidemark_broker.security.client_connections import ClientConnections
from tidemark_broker.security.peer_addresses import PLAIN, PeerAddresses


@dataclass(frozen=True, slots=True)
class BrokerView:
    """The broker as its routes see it.

    `is_ready` returns (ready, reason); the reason is a sentence for `/readyz` when not ready. The
    controller's probe compares `incarnation` and `pool` (S19).
    """

    partitions: ReplicaManager
    broker_id: BrokerId
    pool: str
    incarnation: str
    is_ready: Callable[[], tuple[bool, str]]
    new_consumer: Callable[[ConsumerSettings], GroupConsumer]  # of an HTTP client
    quotas: ClientQuotaManager  # shared with the Kafka port
    producer_ids: ProducerIdManager  # shared too
    access: HttpAccess = field(default_factory=no_checks)
    groups: Callable[[], GroupsReport] = GroupsReport  # that this broker coordinates
    group_gauges: Callable[[], GroupGauges] = GroupGauges
    group_counts: GroupCounters = field(default_factory=GroupCounters)
    group_offsets: Callable[[int], tuple[GroupOffset, ...]] = lambda _: ()  # at most so many
    rejections: ConnectionRejections = field(
        default_factory=lambda: ConnectionRejections(monotonic_ms)
    )
    kafka_requests: KafkaRequestMetrics = field(default_factory=KafkaRequestMetrics)
    client_connections: ClientConnections = field(default_factory=ClientConnections)
    # Shared with all that check batches, so that /metrics counts every failure.
    crc_failures: CrcFailures = field(default_factory=CrcFailures)
    rack: str = ""
    metrics_profile: MetricsProfile = MetricsProfile.AUDIT
    fsyncs: Callable[[], int] = lambda: 0  # so far, of files and directories
    loop_lag: LoopLag = field(default_factory=LoopLag)
    addresses: PeerAddresses = PLAIN  # of other brokers
    authenticator: Authenticator | None = None  # None: no listener asks who its clients are
    requires_authentication: Callable[[str], bool] = lambda _: False  # of a listener, by its name
    may_authenticate: Callable[[str], bool] = lambda _: False
    # The client that a verified certificate names.
    client_of: Callable[[Mapping[str, Any] | None], CertifiedClient | None] = lambda _: None
    certificate_end_s: Callable[[], float] = lambda: 0.0  # of this broker, wall clock; 0: no TLS
    client_authorities_end_s: Callable[[], float] = lambda: 0.0  # the first end; 0: none
