"""Define JSON bodies of the consumer paths for OpenAPI. Consumers themselves use bodies.py."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from tidemark_broker.http.consumers.bodies import MAX_NAME, MAX_PARTITIONS, MAX_TOPICS


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class NewConsumerDocument(_Strict):
    name: str = Field(default="", max_length=MAX_NAME, pattern="^[^/]*$")
    format: Literal["binary", "json"] = "binary"
    reset: Literal["earliest", "latest", "none"] = Field(
        default="latest", alias="auto.offset.reset"
    )
    auto_commit: bool = Field(default=True, alias="enable.auto.commit")
    min_bytes: int = Field(default=1, ge=1, le=1024 * 1024, alias="fetch.min.bytes")
    timeout_ms: int = Field(default=1_000, ge=0, le=30_000, alias="consumer.request.timeout.ms")
    isolation: Literal["read_uncommitted", "read_committed"] = Field(
        default="read_uncommitted", alias="isolation.level"
    )


class ConsumerDocument(BaseModel):
    instance_id: str
    base_uri: str = Field(description="URL of this consumer, on its broker")


class SubscriptionDocument(_Strict):
    topics: list[str] = Field(min_length=1, max_length=MAX_TOPICS)


class HeldDocument(BaseModel):
    topics: list[str]
    partitions: list[dict[str, list[int]]]


class TopicPartitionSchema(_Strict):
    topic: str = Field(max_length=MAX_NAME)
    partition: int = Field(ge=0, le=2**31 - 1)


class TopicPartitionsSchema(_Strict):
    partitions: list[TopicPartitionSchema] = Field(min_length=1, max_length=MAX_PARTITIONS)


class OffsetDocument(_Strict):
    topic: str = Field(max_length=MAX_NAME)
    partition: int = Field(ge=0, le=2**31 - 1)
    offset: int = Field(ge=0, le=2**63 - 1)
    metadata: str | None = None


class OffsetsDocument(_Strict):
    offsets: list[OffsetDocument] = Field(min_length=1, max_length=MAX_PARTITIONS)


class CommitDocument(_Strict):
    offsets: list[OffsetDocument] = Field(default=[], max_length=MAX_PARTITIONS)


class AssignmentsDocument(BaseModel):
    partitions: list[TopicPartitionSchema]


class CommittedDocument(BaseModel):
    offsets: list[OffsetDocument]
