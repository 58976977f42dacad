"""Read a Topic manifest as a typed value."""

from dataclasses import dataclass, field

from tidemark_protocol.ids import BrokerId, TopicId

from tidemark_operator.api.elect_annotation import LeaderChoice, annotated_choices, elect_fault
from tidemark_operator.api.kinds import Object


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """One Topic object; `uid` is its topic id unless it adopted retained slices."""

    namespace: str
    name: str
    uid: TopicId
    generation: int
    created: str  # RFC 3339, as the store stamped it
    topic_name: str
    pool_name: str
    partitions: int
    replication_factor: int
    commit_rule: str
    flush: str
    deletion_policy: str  # Retain | Delete
    config: dict[str, str] = field(default_factory=dict)  # effective: defaults filled in
    placement: dict[int, tuple[BrokerId, ...]] = field(default_factory=dict)  # by partition
    choices: tuple[LeaderChoice, ...] = ()  # leaders named by a human, where nobody may lead
    choices_fault: str = ""  # why what was said of them cannot be read, for the user

    @property
    def pool(self) -> str:
        return f"{self.namespace}/{self.pool_name}"

    @property
    def min_insync_replicas(self) -> int:
        return min(int(self.config["min.insync.replicas"]), self.replication_factor)


def topic_spec(topic: Object) -> TopicSpec:
    """Return the spec of a topic that has its defaults and passed validation."""
    metadata, spec = topic["metadata"], topic["spec"]
    return TopicSpec(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=TopicId(metadata.get("uid", "")),
        generation=int(metadata.get("generation", 0)),
        created=metadata.get("creationTimestamp", ""),
        topic_name=spec["topicName"],
        pool_name=spec["brokerPool"],
        partitions=spec["partitions"],
        replication_factor=spec["replicationFactor"],
        commit_rule=spec["commitRule"],
        flush=spec["flush"],
        deletion_policy=spec["deletionPolicy"],
        config=dict(spec["config"]),
        placement={
            entry["partition"]: tuple(BrokerId(number) for number in entry["replicas"])
            for entry in spec.get("placement", [])
        },
        choices=annotated_choices(metadata.get("annotations") or {}),
        choices_fault=elect_fault(metadata.get("annotations") or {}) or "",
    )
