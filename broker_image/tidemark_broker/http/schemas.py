"""Define JSON bodies for OpenAPI. The hot routes do not build these; tests compare them."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class ProblemDocument(BaseModel):
    """RFC 9457 problem details with Kafka's error."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    error: str = Field(description="Kafka's name of the error")
    error_code: int = Field(description="Kafka's number of the error")
    errorCode: int = Field(
        deprecated=True, description="as error_code, until the next minor release"
    )
    retriable: bool = Field(description="Kafka's class: worth another try after looking up leaders")
    outcome: str | None = Field(
        default=None,
        description="produce only: `not_written` (send again freely) or `unknown` (may be written)",
    )


class HeaderDocument(BaseModel):
    model_config = ConfigDict(extra="forbid")
    key: str
    value: str | None = Field(default=None, description="base64")


class RecordDocument(BaseModel):
    model_config = ConfigDict(extra="forbid")
    value: Any = Field(description="base64 (binary format) or any JSON (json format); null: absent")
    key: Any = None
    partition: int | None = Field(default=None, ge=0)
    headers: list[HeaderDocument] = []
    timestamp: int | None = Field(default=None, ge=0, description="ms since 1970")


class ProduceDocument(BaseModel):
    """With the three producer members a request that is sent again is written once."""

    model_config = ConfigDict(extra="forbid")
    records: list[RecordDocument] = Field(min_length=1, max_length=10_000)
    producer_id: int | None = Field(default=None, ge=0, description="from POST /producers")
    producer_epoch: int | None = Field(default=None, ge=0, le=2**15 - 1)
    base_sequence: int | None = Field(
        default=None,
        ge=0,
        le=2**31 - 1,
        description="records this producer sent to this partition before, in this epoch",
    )


class ProducerDocument(BaseModel):
    model_config = ConfigDict(extra="forbid")
    producer_id: int = Field(ge=0)
    producer_epoch: int = Field(ge=0, le=2**15 - 1)


class ProducedDocument(BaseModel):
    """Either partition and offset (-1: not acknowledged, acks=0), or the error of this record."""

    partition: int
    offset: int | None = None
    last_offset: int | None = Field(default=None, description="of record batches sent as they are")
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
    end_offset: int = Field(description="the high watermark: what consumers may read is below it")
    log_end_offset: int
    leader_epoch: int


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
    sha256: str | None = Field(default=None, description="of the batches that end below to_offset")


class PartitionDocument(BaseModel):
    partition: int
    leader: int = Field(description="broker id; -1: none")
    leader_epoch: int = Field(
        description="-1: the state is not known now; then replicas are empty, other numbers -1"
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
    leader: int = Field(description="broker id; -1: none, or not known now")
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
    http_url: str = Field(description="by the listener that the client came in by")
    host: str = Field(description="with the ports below: where other brokers dial it")
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
