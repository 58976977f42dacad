"""Define a Topic as a typed value."""

from functools import cached_property
from typing import ClassVar

import msgspec
from msgspec import UNSET, UnsetType
from tidemark_protocol.ids import BrokerId, TopicId

from tidemark_operator.api.elect_annotation import LeaderChoice, annotated_choices, elect_fault
from tidemark_operator.api.kinds import TOPIC, ResourceKind
from tidemark_operator.api.objects import ApiObject, ObjectStatus


class PartitionPlacement(msgspec.Struct, frozen=True):
    partition: int
    replicas: tuple[BrokerId, ...]


class TopicSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", dict=True):
    topic_name: str
    pool_name: str = msgspec.field(name="brokerPool")
    partitions: int
    replication_factor: int
    commit_rule: str
    flush: str
    deletion_policy: str  # Retain | Delete
    config: dict[str, str]  # effective: defaults filled in
    placements: tuple[PartitionPlacement, ...] = msgspec.field(name="placement", default=())

    @cached_property
    def placement(self) -> dict[int, tuple[BrokerId, ...]]:
        """Return the requested brokers by partition."""
        return {each.partition: each.replicas for each in self.placements}

    @property
    def min_insync_replicas(self) -> int:
        return min(int(self.config["min.insync.replicas"]), self.replication_factor)


class TopicStatus(ObjectStatus, frozen=True, kw_only=True, rename="camel"):
    topic_id: TopicId | UnsetType = UNSET
    in_sync: str | UnsetType = UNSET
    under_replicated: int | UnsetType = UNSET
    led_partitions: int | UnsetType = UNSET
    leaderless: int | UnsetType = UNSET


class Topic(ApiObject, kw_only=True, rename="camel"):
    """A Topic; its UID is its topic id unless it adopted retained slices."""

    resource: ClassVar[ResourceKind] = TOPIC

    spec: TopicSpec
    status: TopicStatus = TopicStatus()

    @property
    def pool(self) -> str:
        return f"{self.namespace}/{self.spec.pool_name}"

    @property
    def recorded_topic_id(self) -> TopicId | None:
        """Return status.topicId: slices were made or adopted once."""
        return self.status.topic_id or None

    @property
    def topic_id(self) -> TopicId:
        return self.recorded_topic_id or TopicId(self.metadata.uid)

    def has_id(self, topic_id: TopicId) -> bool:
        return topic_id in (self.metadata.uid, self.recorded_topic_id)

    @property
    def choices(self) -> tuple[LeaderChoice, ...]:
        """Return leaders that a person named for partitions without one."""
        return annotated_choices(self.metadata.annotations or {})

    @property
    def choices_fault(self) -> str:
        """Return why the annotation cannot be read, for the user, or ""."""
        return elect_fault(self.metadata.annotations or {}) or ""
