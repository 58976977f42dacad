"""Define what all handlers use, and the table of handlers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from tidemark_protocol.connection_rejections import ConnectionRejections

from tidemark_broker.clock import Clock, Scheduler, monotonic_ms
from tidemark_broker.coordinator.group_coordinator_service import GroupCoordinatorService
from tidemark_broker.kafka.apis.access_check import KafkaAccess
from tidemark_broker.kafka.network.limits import ListenerLimits
from tidemark_broker.kafka.network.memory_pool import MemoryPool
from tidemark_broker.kafka.network.request import ApiHandler
from tidemark_broker.kafka.network.request_metrics import KafkaRequestMetrics
from tidemark_broker.kafka.network.response_writer import ResponseWriter
from tidemark_broker.log.disk import DiskSpace
from tidemark_broker.metadata.controller_channel import Address
from tidemark_broker.metadata.leader_changes import LeaderChanges
from tidemark_broker.metadata.producer_id_manager import ProducerIdManager
from tidemark_broker.metadata.topic_admin_client import TopicAdminClient
from tidemark_broker.quota_manager import ClientQuotaManager
from tidemark_broker.replication.follower_fetch import FollowerFetchHandler
from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_broker.security.authenticator import Authenticator
from tidemark_broker.security.authorizer import Authorizer
from tidemark_broker.security.client_connections import ClientConnections


def no_time() -> float:
    return 0.0


def no_address() -> Address | None:
    return None


@dataclass(slots=True)
class HandlerContext:
    """The parts of the broker that handlers use.

    `first_session_id` differs in each process, so that a client's fetch session of an earlier
    process is not taken for one of this process. `handlers` is keyed by API key.
    `processing_clock_s` measures a request's time on the loop.
    """

    partitions: ReplicaManager
    fetches: FollowerFetchHandler
    groups: GroupCoordinatorService
    scheduler: Scheduler
    new_uuid: Callable[[], UUID]
    quotas: ClientQuotaManager
    leader_changes: LeaderChanges
    producer_ids: ProducerIdManager
    topic_admin: TopicAdminClient
    cluster_id: Callable[[], str] = str  # "" before the first registration
    log_directory: str = ""
    space: Callable[[], DiskSpace] = lambda: DiskSpace(-1, -1)  # of its volume; in a worker
    controller_address: Callable[[], Address | None] = no_address  # of the operator that leads
    creates_topics: bool = False  # that clients ask for and that there are not
    broker_configs: Mapping[str, str] = field(default_factory=dict)  # by Kafka's names
    first_session_id: int = 1
    clock: Clock = monotonic_ms
    processing_clock_s: Callable[[], float] = no_time
    limits: ListenerLimits = field(default_factory=ListenerLimits)
    authorizer: Authorizer = field(default_factory=Authorizer)
    authenticated: frozenset[str] = frozenset()  # the listeners whose clients have names
    optional: frozenset[str] = frozenset()  # those of them where clients need none
    handlers: dict[int, ApiHandler] = field(default_factory=dict)
    request_metrics: KafkaRequestMetrics = field(default_factory=KafkaRequestMetrics)
    client_connections: ClientConnections = field(default_factory=ClientConnections)
    rejections: ConnectionRejections = field(
        default_factory=lambda: ConnectionRejections(monotonic_ms)
    )
    authenticator: Authenticator | None = None  # None: no listener asks who its clients are
    access: KafkaAccess = field(init=False)
    answering: ResponseWriter = field(init=False)
    memory: MemoryPool = field(init=False)

    def __post_init__(self) -> None:
        self.access = KafkaAccess(
            self.authorizer,
            self.partitions.metadata,
            checked=self.authenticated,
            optional=self.optional,
            creates_topics=self.creates_topics,
        )
        self.answering = ResponseWriter(self.access)
        self.memory = MemoryPool(self.limits.memory, self.scheduler, self.clock)

    def add(self, *handlers: ApiHandler) -> None:
        for handler in handlers:
            self.handlers[handler.supported.api_key] = handler
