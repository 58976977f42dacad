"""Define a ReplicationAudit as a typed value."""

from typing import ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from tidemark_operator.api import schemas
from tidemark_operator.api.kinds import REPLICATION_AUDIT, Object, ResourceKind
from tidemark_operator.api.objects import ApiObject, ObjectStatus


class SecretKey(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    key: str


class PrometheusSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    url: str
    token_secret: SecretKey | None = None


class ClaimPath(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A directory in a PersistentVolumeClaim."""

    claim_name: str
    path: str  # below the claim's root


class AuditSource(msgspec.Struct, frozen=True, kw_only=True):
    """The source of the samples: one of the two."""

    prometheus: PrometheusSource | None = None
    files: ClaimPath | None = None


class SparkPodSize(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    cores: int
    memory: str  # of the JVM, as Spark writes it: 1g
    memory_overhead: str  # for all else in the pod, Python among it


class SparkSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The settings of a Spark of several pods."""

    executors: int
    service_account_name: str  # the driver's, which may make executors
    driver: SparkPodSize
    executor: SparkPodSize


class AuditSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    schedule: str | None = None  # None: once for every generation
    time_zone: str | None = None
    is_suspended: bool = msgspec.field(name="suspend")
    window: str
    source: AuditSource
    engine: str  # Spark | Local
    image: str
    image_pull_policy: str
    history_limit: int
    timeout_seconds: int
    slo: Object  # as the audit reads it
    output: ClaimPath | None = None
    image_pull_secrets: tuple[Object, ...]  # as in a Pod
    resources: Object = {}  # as in a container
    spark: SparkSpec | None = None


class RuleStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the last verdict says of one rule."""

    rule: str
    outcome: str
    value: float | UnsetType = UNSET
    limit: float | UnsetType = UNSET
    budget_left: float | UnsetType = UNSET


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A run that ended."""

    run: str
    verdict: str
    sentence: str | UnsetType = UNSET
    finished_time: str  # RFC 3339
    window_start: str | UnsetType = UNSET
    window_end: str | UnsetType = UNSET
    coverage: str | UnsetType = UNSET
    lost_records: int | UnsetType = UNSET
    findings: str | UnsetType = UNSET


class AuditStatus(ObjectStatus, frozen=True, kw_only=True, rename="camel"):
    started_generation: int | UnsetType = UNSET
    verdict: str | UnsetType = UNSET
    sentence: str | UnsetType = UNSET
    coverage: str | UnsetType = UNSET
    lost_records: int | UnsetType = UNSET
    findings: str | UnsetType = UNSET
    last_run_time: str | UnsetType = UNSET
    last_success_time: str | UnsetType = UNSET
    rules: tuple[RuleStatus, ...] | UnsetType = UNSET
    reported_incidents: tuple[str, ...] | UnsetType = UNSET
    history: tuple[HistoryEntry, ...] | UnsetType = UNSET  # newest first


class ReplicationAudit(ApiObject, kw_only=True, rename="camel"):
    resource: ClassVar[ResourceKind] = REPLICATION_AUDIT

    spec: AuditSpec
    status: AuditStatus = AuditStatus()

    @classmethod
    def faults(cls, item: Object) -> list[str]:
        return schemas.validate(item)
