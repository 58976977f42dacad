"""Define the JSON bodies for OpenAPI. Hot routes do not use them; tests compare their bodies."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class ProblemDocument(BaseModel):
    """Problem details (RFC 9457) with the error of Kafka."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    error: str = Field(description="name of the error in Kafka")
    error_code: int = Field(description="number of the error in Kafka")
    errorCode: int = Field(
        deprecated=True, description="as error_code, until the next minor release"
    )
    retriable: bool = Field(description="whether a retry may succeed, after a lookup of the leader")
    outcome: str | None = Field(
        default=None,
        description="produce only: `not_written` (a retry cannot duplicate) or `unknown` (it may)",
    )


class HeaderDocument(BaseModel):
    model_config = ConfigDict(extra="forbid")
    key: str
    value: str | None = Field(default=None, description="base64")


class RecordDocument(BaseModel):
    model_config = ConfigDict(extra="forbid")
    value: Any = Field(
        description="base64 (binary format) or any JSON (json format); null: no value"
    )
    key: Any = None
    partition: int | None = Field(default=None, ge=0)
    headers: list[HeaderDocument] = []
    timestamp: int | None = Field(default=None, ge=0, description="ms since 1970")


class ProduceDocument(BaseModel):
    """Records. With the three members of a producer a repeated request is written once."""

    model_config = ConfigDict(extra="forbid")
    records: list[RecordDocument] = Field(min_length=1, max_length=10_000)
    producer_id: int | None = Field(default=None, ge=0, description="from POST /producers")
    producer_epoch: int | None = Field(default=None, ge=0, le=2**15 - 1)
    base_sequence: int | None = Field(
        default=None,
        ge=0,
        le=2**31 - 1,
        description="number of records that this producer has sent to the partition in this epoch",
    )


class ProducerDocument(BaseModel):
    model_config = ConfigDict(extra="forbid")
    producer_id: int = Field(ge=0)
    producer_epoch: int = Field(ge=0, le=2**15 - 1)


class ProducedDocument(BaseModel):
    """The partition and the offset (-1: acks=0, not acknowledged), or the error of this record."""

    partition: int
    offset: int | None = None
    last_offset: int | None = Field(default=None, description="only of record batches")
    error_code: int | None = None
    error: str | None = None
    message: str | None = None
    outcome: str | None = None


class ProduceResponseSchema(BaseModel):
    offsets: list[ProducedDocument]


class FetchedDocument(BaseModel):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: list[HeaderDocument]


class OffsetsDocument(BaseModel):
    beginning_offset: int
    end_offset: int = Field(description="high watermark: consumers read records below it")
    log_end_offset: int
    leader_epoch: int


class FollowerSchema(BaseModel):
    broker_id: int
    log_end_offset: int = Field(description="-1: no fetch from it yet")


class ReplicaDocument(BaseModel):
    topic: str
    partition: int
    broker_id: int
    role: str = Field(description="leader, follower or idle")
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    leader_epoch: int
    to_offset: int | None = None
    sha256: str | None = Field(
        default=None, description="digest of the batches that end below to_offset"
    )
    followers: list[FollowerSchema] = Field(
        default=[], description="on the leader: the followers by their last fetches"
    )


class PartitionDocument(BaseModel):
    partition: int
    leader: int = Field(description="broker id; -1: no leader")
    leader_epoch: int = Field(
        description="-1: the state is unknown; then lists are empty and other numbers are -1"
    )
    partition_epoch: int
    replicas: list[int]
    in_sync_replicas: list[int]
    eligible_leaders: list[int]
    min_insync_replicas: int


class PlacedReplicaSchema(BaseModel):
    broker: int
    leader: bool
    in_sync: bool


class PlacedPartitionSchema(BaseModel):
    partition: int
    leader: int = Field(description="broker id; -1: no leader, or unknown")
    replicas: list[PlacedReplicaSchema]


class TopicDocument(BaseModel):
    name: str
    topic_id: str
    partition_count: int
    replication_factor: int
    commit_rule: str
    flush: str
    config: dict[str, str]
    partitions: list[PartitionDocument]


class TopicsDocument(BaseModel):
    topics: list[str]


class BrokerDocument(BaseModel):
    broker_id: int
    broker_epoch: int
    http_url: str = Field(description="address at the listener of this request")
    host: str = Field(description="host that other brokers connect to, with the ports below")
    kafka_port: int
    http_port: int
    rack: str
    is_fenced: bool
    is_stopping: bool


class BrokersDocument(BaseModel):
    pool: str
    controller_epoch: int
    brokers: list[BrokerDocument]


class HealthDocument(BaseModel):
    broker_id: int
    brokerId: int = Field(deprecated=True, description="as broker_id, until the next minor release")
    incarnation: str
    pool: str


class ReadyDocument(BaseModel):
    ready: bool
    reason: str
