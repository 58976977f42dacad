"""Read a BrokerPool manifest that passed `schemas.validate` as a typed value.

Defaults and rules are applied in `schemas.py`, not here.
"""

from dataclasses import dataclass, field
from typing import Any

from tidemark_protocol.controller_messages import ClientQuota
from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.kinds import Object

DEFAULT_POOL = "default"


# Fields of spec.groups and what the broker calls them, as a flag.
GROUP_SETTINGS = {
    "offsetsRetentionMinutes": "offsets-retention-minutes",
    "initialRebalanceDelayMs": "group-initial-rebalance-delay-ms",
}


@dataclass(frozen=True, slots=True)
class ListenerSpec:
    """A listener for clients outside of the cluster."""

    name: str
    type: str  # NodePort | LoadBalancer
    port: int
    advertised_host: str = ""  # "": the address of each broker's node
    annotations: dict[str, str] = field(default_factory=dict)
    protocol: str = "Kafka"  # | HTTP


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """One BrokerPool object."""

    namespace: str
    name: str
    uid: str
    generation: int
    replicas: int
    image: str
    image_pull_policy: str
    storage_size: str
    storage_class: str | None
    deletion_policy: str  # of the claims: Retain | Delete
    storage_access_mode: str = "ReadWriteOnce"  # or ReadWriteOncePod
    drain: frozenset[BrokerId] = frozenset()  # to be emptied
    purge_retained: tuple[str, ...] = ()  # topicNames whose retained data is to be deleted
    move_bytes_per_second: int = 0  # per broker, for replicas that are being added; 0: unlimited
    resources: dict[str, Any] = field(default_factory=dict)
    pod_template: dict[str, Any] = field(default_factory=dict)
    metrics_profile: str = "audit"  # minimal | audit | full
    groups: dict[str, int] = field(default_factory=dict)  # those of GROUP_SETTINGS that are set
    creates_topics: bool = False  # that Kafka clients ask for and that there are not
    default_partitions: int = 1  # of topics that clients create without a number
    quotas: tuple[ClientQuota, ...] = ()
    listeners: tuple[ListenerSpec, ...] = ()
    rack_key: str = ""  # the node label that names the rack; "": brokers say it themselves

    @property
    def pool(self) -> str:
        return f"{self.namespace}/{self.name}"


def pool_spec(pool: Object) -> PoolSpec:
    """Return the spec of a pool that has its defaults and passed validation."""
    metadata, spec = pool["metadata"], pool["spec"]
    return PoolSpec(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        generation=int(metadata.get("generation", 0)),
        replicas=spec["replicas"],
        image=spec["image"],
        image_pull_policy=spec["imagePullPolicy"],
        storage_size=spec["storage"]["size"],
        storage_class=spec["storage"].get("className"),
        storage_access_mode=spec["storage"]["accessMode"],
        deletion_policy=spec["deletionPolicy"],
        drain=frozenset(BrokerId(number) for number in spec["drain"]),
        purge_retained=tuple(spec["purgeRetained"]),
        move_bytes_per_second=spec["moveBytesPerSecond"],
        metrics_profile=spec["metricsProfile"],
        groups={name: spec["groups"][name] for name in GROUP_SETTINGS if name in spec["groups"]},
        creates_topics=spec["autoCreateTopics"],
        default_partitions=spec["defaultPartitions"],
        resources=spec.get("resources", {}),
        pod_template=spec.get("podTemplate", {}),
        listeners=tuple(_listener(entry) for entry in spec["listeners"]),
        quotas=tuple(_quota(entry) for entry in spec["quotas"]),
        rack_key=spec.get("rackKey", ""),
    )


def _quota(entry: Object) -> ClientQuota:
    return ClientQuota(
        entry["clientId"],
        entry.get("produceBytesPerSecond"),
        entry.get("fetchBytesPerSecond"),
        entry.get("requestPercentage"),
    )


def _listener(entry: Object) -> ListenerSpec:
    return ListenerSpec(
        entry["name"],
        entry["type"],
        entry["port"],
        entry.get("advertisedHost", ""),
        dict(entry.get("annotations", {})),
        entry["protocol"],
    )
