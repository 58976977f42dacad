"""Define a BrokerPool as a typed value."""

from typing import ClassVar

import msgspec
from msgspec import UNSET, UnsetType
from tidemark_protocol.controller_messages import ClientQuota
from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.kinds import BROKER_POOL, Object, ResourceKind
from tidemark_operator.api.objects import ApiObject, ObjectStatus
from tidemark_operator.api.pool_security import SecuritySpec, SecurityStatus

DEFAULT_POOL = "default"


# Fields of spec.groups and what the broker calls them, as a flag.
GROUP_SETTINGS = {
    "offsetsRetentionMinutes": "offsets-retention-minutes",
    "initialRebalanceDelayMs": "group-initial-rebalance-delay-ms",
}


class ListenerSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A listener for clients outside of the cluster."""

    name: str
    type: str  # NodePort | LoadBalancer
    port: int
    advertised_host: str = ""  # "": the address of each broker's node
    annotations: dict[str, str] = {}
    protocol: str = "Kafka"  # | HTTP
    authentication: str = ""  # none | optional | kubernetes; "": the pool's
    tls: bool | None = None  # in a pool with TLS: True, TLS only; False, plain; None, as the pool


class QuotaSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    client_id: str
    produce_bytes_per_second: int | None = None
    fetch_bytes_per_second: int | None = None
    request_percentage: int | None = None

    @property
    def client_quota(self) -> ClientQuota:
        return ClientQuota(
            self.client_id,
            self.produce_bytes_per_second,
            self.fetch_bytes_per_second,
            self.request_percentage,
        )


class PoolStorage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The claims of the brokers."""

    size: str
    access_mode: str  # ReadWriteOnce | ReadWriteOncePod
    class_name: str | None = None


class PoolLimits(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    max_partitions: int


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    offsets_retention_minutes: int | UnsetType = UNSET
    initial_rebalance_delay_ms: int | UnsetType = UNSET


class PoolSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    replicas: int
    image: str
    image_pull_policy: str
    storage: PoolStorage
    deletion_policy: str  # of the claims: Retain | Delete
    drain: frozenset[BrokerId]  # to be emptied
    purge_retained: tuple[str, ...]  # topicNames whose retained data is to be deleted
    move_bytes_per_second: int  # per broker, for replicas that are being added; 0: unlimited
    limits: PoolLimits
    metrics_profile: str  # minimal | audit | full
    group_settings: GroupSettings = msgspec.field(name="groups")
    creates_topics: bool = msgspec.field(name="autoCreateTopics")  # that clients ask for
    default_partitions: int  # of topics that clients create without a number
    client_quotas: tuple[QuotaSpec, ...] = msgspec.field(name="quotas")
    listeners: tuple[ListenerSpec, ...]
    security: SecuritySpec = SecuritySpec()
    image_pull_secrets: tuple[Object, ...]  # as in a Pod
    rack_key: str = ""  # the node label that names the rack; "": brokers say it themselves
    resources: Object = {}  # as in a container
    pod_template: Object = {}

    @property
    def groups(self) -> dict[str, int]:
        """Return those of GROUP_SETTINGS that are set."""
        found: dict[str, int] = msgspec.to_builtins(self.group_settings)
        return found

    @property
    def quotas(self) -> tuple[ClientQuota, ...]:
        return tuple(each.client_quota for each in self.client_quotas)


class ListenerStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    bootstrap: str


class PurgeStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a name of spec.purgeRetained."""

    topic_name: str
    result: str


class CertificatesStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The authorities of a pool with TLS."""

    authority: str
    authority_expires: str
    trusted_authorities: int
    secret_name: str | UnsetType = UNSET
    next_authority: str | UnsetType = UNSET


class PoolStatus(ObjectStatus, frozen=True, kw_only=True, rename="camel"):
    replicas: int | UnsetType = UNSET
    active_brokers: int | UnsetType = UNSET
    updated_brokers: int | UnsetType = UNSET
    listeners: tuple[ListenerStatus, ...] | UnsetType = UNSET
    selector: str | UnsetType = UNSET
    purge_retained: tuple[PurgeStatus, ...] | UnsetType = UNSET
    security: SecurityStatus | UnsetType = UNSET  # that brokers have, or are being replaced to have
    certificates: CertificatesStatus | UnsetType = UNSET


class BrokerPool(ApiObject, kw_only=True, rename="camel"):
    resource: ClassVar[ResourceKind] = BROKER_POOL

    spec: PoolSpec
    status: PoolStatus = PoolStatus()

    @property
    def pool(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def has_tls(self) -> bool:
        """Return whether brokers need certificates: those of the spec, or those of now."""
        in_force = self.status.security
        is_in_force = in_force is not UNSET and in_force.steps.has_tls
        return self.spec.security.has_tls or is_in_force

    def with_security(self, security: SecuritySpec) -> "BrokerPool":
        """Return the pool as if its spec had these steps."""
        of_pool = self.spec.security.with_steps_of(security)
        return msgspec.structs.replace(
            self, spec=msgspec.structs.replace(self.spec, security=of_pool)
        )
