"""Read a ReplicationAudit that passed `schemas.validate` as a typed value."""

from dataclasses import dataclass, field
from typing import Any

from tidemark_operator.api.kinds import Object


@dataclass(frozen=True, slots=True)
class PrometheusSource:
    url: str
    token_secret: tuple[str, str] | None = None  # name and key


@dataclass(frozen=True, slots=True)
class FilesSource:
    claim_name: str
    path: str  # below the claim's root


@dataclass(frozen=True, slots=True)
class Output:
    claim_name: str
    path: str


@dataclass(frozen=True, slots=True)
class SparkPodSize:
    cores: int
    memory: str  # of the JVM, as Spark writes it: 1g
    memory_overhead: str  # for all else in the pod, Python among it


@dataclass(frozen=True, slots=True)
class SparkSpec:
    """The settings of a Spark of several pods."""

    executors: int
    service_account_name: str  # the driver's, which may make executors
    driver: SparkPodSize
    executor: SparkPodSize


@dataclass(frozen=True, slots=True)
class AuditSpec:
    namespace: str
    name: str
    uid: str
    generation: int
    schedule: str | None  # None: once for every generation
    time_zone: str | None
    is_suspended: bool
    window: str
    source: PrometheusSource | FilesSource
    engine: str  # Spark | Local
    image: str
    image_pull_policy: str
    history_limit: int
    timeout_seconds: int
    slo: dict[str, Any] = field(default_factory=dict)
    output: Output | None = None
    resources: dict[str, Any] = field(default_factory=dict)
    spark: SparkSpec | None = None


def audit_spec(audit: Object) -> AuditSpec:
    """Return the spec of an audit that has its defaults and passed validation."""
    metadata, spec = audit["metadata"], audit["spec"]
    output = spec.get("output")
    return AuditSpec(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        generation=int(metadata.get("generation", 0)),
        schedule=spec.get("schedule"),
        time_zone=spec.get("timeZone"),
        is_suspended=spec["suspend"],
        window=spec["window"],
        source=_source(spec["source"]),
        engine=spec["engine"],
        image=spec["image"],
        image_pull_policy=spec["imagePullPolicy"],
        history_limit=spec["historyLimit"],
        timeout_seconds=spec["timeoutSeconds"],
        slo=dict(spec["slo"]),
        output=None if output is None else Output(output["claimName"], output["path"]),
        resources=spec.get("resources", {}),
        spark=None if "spark" not in spec else _spark(spec["spark"]),
    )


def _spark(spark: dict[str, Any]) -> SparkSpec:
    return SparkSpec(
        executors=spark["executors"],
        service_account_name=spark["serviceAccountName"],
        driver=_size(spark["driver"]),
        executor=_size(spark["executor"]),
    )


def _size(size: dict[str, Any]) -> SparkPodSize:
    return SparkPodSize(size["cores"], size["memory"], size["memoryOverhead"])


def _source(source: dict[str, Any]) -> PrometheusSource | FilesSource:
    if "files" in source:
        return FilesSource(source["files"]["claimName"], source["files"]["path"])
    prometheus = source["prometheus"]
    secret = prometheus.get("tokenSecret")
    return PrometheusSource(
        prometheus["url"], None if secret is None else (secret["name"], secret["key"])
    )
