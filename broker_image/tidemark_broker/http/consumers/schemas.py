"""Describe the consumer paths for OpenAPI; routes.py serves them before FastAPI sees them."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Body, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from tidemark_broker.http import schemas
from tidemark_broker.http.consumers.bodies import MAX_NAME, MAX_PARTITIONS, MAX_TOPICS

BODY_TYPE = "application/vnd.kafka.v2+json"
_SERVED_BEFORE = "the dispatcher in app.py serves this route before FastAPI sees it"

Group = Annotated[str, Path(min_length=1, max_length=MAX_NAME)]
Name = Annotated[str, Path(min_length=1, max_length=MAX_NAME, description="of the consumer")]
TimeoutMs = Annotated[int, Query(ge=0, le=30_000, description="how long to wait for a record, ms")]
MaxBytes = Annotated[int, Query(ge=0, le=8 * 1024 * 1024)]


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
    base_uri: str = Field(description="of this consumer, at the broker that keeps it")


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


NewConsumer = Annotated[NewConsumerDocument, Body(media_type=BODY_TYPE)]
Subscription = Annotated[SubscriptionDocument, Body(media_type=BODY_TYPE)]
BrokerPlacement = Annotated[TopicPartitionsSchema, Body(media_type=BODY_TYPE)]
Offsets = Annotated[OffsetsDocument, Body(media_type=BODY_TYPE)]
Commits = Annotated[CommitDocument, Body(media_type=BODY_TYPE)]


async def make_consumer(group: Group, body: NewConsumer) -> ConsumerDocument:
    """Create a consumer of the group, kept by the broker that is asked; continue at `base_uri`.

    It ends with that broker, or when it was not used for five minutes.
    """
    raise AssertionError(_SERVED_BEFORE)


async def end_consumer(group: Group, name: Name) -> None:
    """End the consumer, which leaves its group.

    With enable.auto.commit it commits what it was given.
    """
    raise AssertionError(_SERVED_BEFORE)


async def subscription(group: Group, name: Name) -> HeldDocument:
    """Return its subscription, and the partitions that it has at the moment."""
    raise AssertionError(_SERVED_BEFORE)


async def subscribe(group: Group, name: Name, body: Subscription) -> None:
    """Join the group, or change the subscription."""
    raise AssertionError(_SERVED_BEFORE)


async def unsubscribe(group: Group, name: Name) -> None:
    """Leave the group, or give up the assigned partitions."""
    raise AssertionError(_SERVED_BEFORE)


async def assignments(group: Group, name: Name) -> AssignmentsDocument:
    """Return the partitions that it has at the moment, assigned by its client or its group."""
    raise AssertionError(_SERVED_BEFORE)


async def assign(group: Group, name: Name, body: BrokerPlacement) -> None:
    """Assign these partitions without a subscription, whatever others of the group read."""
    raise AssertionError(_SERVED_BEFORE)


async def poll(
    group: Group, name: Name, timeout: TimeoutMs = 1_000, max_bytes: MaxBytes = 1024 * 1024
) -> list[schemas.FetchedDocument]:
    """Return the next records of its partitions.

    None if there are none in time, or while the group is rebalancing. One poll of a consumer at a
    time.
    """
    raise AssertionError(_SERVED_BEFORE)


async def committed(
    group: Group, name: Name, body: BrokerPlacement | None = None
) -> CommittedDocument:
    """Return the group's committed offsets of these partitions, where it has some.

    Without a body, those of the partitions that the consumer has.
    """
    raise AssertionError(_SERVED_BEFORE)


async def commit(group: Group, name: Name, body: Commits | None = None) -> None:
    """Commit the offsets to be read next; without any, all that it was given.

    404: there is no such partition, and nothing is committed. 409: a partition is not its own any
    more, and nothing of that is committed.
    """
    raise AssertionError(_SERVED_BEFORE)


async def seek(group: Group, name: Name, body: Offsets) -> None:
    """Set where its next polls begin."""
    raise AssertionError(_SERVED_BEFORE)


async def seek_to_beginning(group: Group, name: Name, body: BrokerPlacement) -> None:
    raise AssertionError(_SERVED_BEFORE)


async def seek_to_end(group: Group, name: Name, body: BrokerPlacement) -> None:
    raise AssertionError(_SERVED_BEFORE)


@dataclass(frozen=True, slots=True)
class ConsumerRoute:
    method: str
    path: str  # below that of the consumer
    endpoint: Any
    status: int = 204
    refusals: tuple[int, ...] = (400, 404, 409, 413, 503)


CONSUMERS_PATH = "/consumers/{group}"
CONSUMER_PATH = CONSUMERS_PATH + "/instances/{name}"
ROUTES = (
    ConsumerRoute("DELETE", "", end_consumer, refusals=(404,)),
    ConsumerRoute("GET", "/subscription", subscription, 200, (404,)),
    ConsumerRoute("POST", "/subscription", subscribe),
    ConsumerRoute("DELETE", "/subscription", unsubscribe, refusals=(404,)),
    ConsumerRoute("GET", "/assignments", assignments, 200, (404,)),
    ConsumerRoute("POST", "/assignments", assign),
    ConsumerRoute("GET", "/records", poll, 200, (400, 404, 406, 409, 500, 503)),
    ConsumerRoute("GET", "/offsets", committed, 200, (400, 404, 413, 503)),
    ConsumerRoute("POST", "/offsets", commit),
    ConsumerRoute("POST", "/positions", seek),
    ConsumerRoute("POST", "/positions/beginning", seek_to_beginning),
    ConsumerRoute("POST", "/positions/end", seek_to_end),
)
