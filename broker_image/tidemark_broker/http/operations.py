"""Describe the hot routes for OpenAPI, as data: FastAPI, which renders it, is loaded later.

A model is named by its class in schemas.py, or in consumers/schemas.py with "consumers." before it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tidemark_broker.http.consumers.bodies import MAX_NAME
from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.http.media_types import LINES_TYPE, RECORD_BATCH_TYPE, EmbeddedFormat
from tidemark_broker.http.produce_results import PRODUCE_RESPONSE_TYPE
from tidemark_broker.http.queries import MAX_LEADER_EPOCH, MAX_RACK

REQUIRED = ...  # pydantic's mark of a value without a default
JSON = "application/json"
KAFKA_JSON = PRODUCE_RESPONSE_TYPE.decode()
BINARY_FORMAT, JSON_FORMAT = (each.value.decode() for each in EmbeddedFormat)

Content = Mapping[str, Any]  # OpenAPI's: the schema of each media type


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a path or a query; `limits` have pydantic's names."""

    name: str
    type: Any
    default: object
    limits: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RequestBody:
    """A request body; `also` holds its other media types."""

    model: str
    media_type: str = KAFKA_JSON
    is_required: bool = True
    also: Content = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Success:
    """A successful response; `also` holds its media types other than JSON."""

    model: str = ""  # "": there is no body
    status: int = 200
    is_list: bool = False
    also: Content = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operation:
    """The description of a route; its operation id is made of `name`."""

    name: str
    summary: str
    description: str
    success: Success
    errors: tuple[int, ...] = ()
    body: RequestBody | None = None
    query: tuple[Parameter, ...] = ()


def _parameter(name: str, kind: Any, default: object = REQUIRED, **limits: Any) -> Parameter:
    return Parameter(name, kind, default, limits)


_LIMITS = HttpLimits()
_TOPIC = _parameter("topic", str, min_length=1, max_length=249)
_PARTITION = _parameter("partition", int, ge=0, le=2**31 - 1)
_GROUP = _parameter("group", str, min_length=1, max_length=MAX_NAME)
_NAME = _parameter(
    "name", str, min_length=1, max_length=MAX_NAME, description="name of the consumer"
)
PATH_PARAMETERS = {each.name: each for each in (_TOPIC, _PARTITION, _GROUP, _NAME)}

_PRODUCE_QUERY = (
    _parameter(
        "acks",
        Literal["0", "1", "all", "-1"],
        "all",
        description="all or -1: all in-sync replicas; 1: the leader; 0: no acknowledgement",
    ),
    _parameter(
        "timeout_ms",
        int,
        _LIMITS.produce_timeout_default_ms,
        ge=0,
        le=_LIMITS.produce_timeout_max_ms,
    ),
)
_MAX_BYTES = _parameter(
    "max_bytes", int, _LIMITS.fetch_bytes_default, ge=0, le=_LIMITS.fetch_bytes_max
)
_READ_QUERY = (
    _parameter("offset", str, "earliest", pattern="^(earliest|latest|[0-9]{1,19})$"),
    _MAX_BYTES,
    _parameter("max_wait_ms", int, 0, ge=0, le=_LIMITS.fetch_wait_max_ms),
    _parameter("rack", str | None, None, max_length=MAX_RACK),
    _parameter("current_leader_epoch", int | None, None, ge=0, le=MAX_LEADER_EPOCH),
)
_POLL_QUERY = (
    _parameter(
        "timeout",
        int,
        1_000,
        ge=0,
        le=_LIMITS.fetch_wait_max_ms,
        description="longest wait for a record, in ms",
    ),
    _MAX_BYTES,
)


def _text(description: str, **more: str) -> Content:
    return {"schema": {"type": "string", "description": description, **more}}


_SENT: Content = {"schema": {"$ref": "#/components/schemas/ProduceDocument"}}
_SENT_RECORDS = {BINARY_FORMAT: _SENT, JSON: _SENT}
_SENT_BATCHES = {RECORD_BATCH_TYPE.decode(): _text("record batches (v2)", format="binary")}
_FETCHED: Content = {
    "schema": {"type": "array", "items": {"$ref": "#/components/schemas/FetchedDocument"}}
}
_READ_FORMATS = {
    BINARY_FORMAT: _FETCHED,
    JSON_FORMAT: _FETCHED,
    JSON: _FETCHED,
    LINES_TYPE.decode(): _text("one FetchedDocument per line; the stream does not end"),
    RECORD_BATCH_TYPE.decode(): _text("record batches as stored", format="binary"),
}
_CONSUMER_FORMATS: Content = {KAFKA_JSON: {}, BINARY_FORMAT: {}, JSON_FORMAT: {}}
_PRODUCE_ERRORS = (307, 400, 403, 404, 408, 409, 413, 415, 422, 429, 500, 502, 503, 504)
_CONSUMER_ERRORS = (400, 403, 404, 409, 413, 503)
_PRODUCED = Success("ProduceResponseSchema", also={KAFKA_JSON: {}})
_DONE = Success(status=204)

PRODUCE_TO_TOPIC = Operation(
    "produce_to_topic",
    "Append records to a topic",
    """A record goes to its `partition`, else to that of its key (murmur2 of Kafka).

    All other records of the request go to one partition. If one other broker leads all partitions,
    the response is 307. Else records of other leaders are forwarded. The response has one entry per
    record, in order.
    """,
    _PRODUCED,
    _PRODUCE_ERRORS,
    RequestBody("ProduceDocument", JSON_FORMAT, also=_SENT_RECORDS),
    _PRODUCE_QUERY,
)
PRODUCE_TO_PARTITION = Operation(
    "produce_to_partition",
    "Append records to a partition",
    "The records are one record batch. Record batches are appended as they are.",
    _PRODUCED,
    _PRODUCE_ERRORS,
    RequestBody("ProduceDocument", JSON_FORMAT, also=_SENT_RECORDS | _SENT_BATCHES),
    _PRODUCE_QUERY,
)
READ_RECORDS = Operation(
    "read_records",
    "Read records of a partition",
    """Return at most 10,000 records from `offset` on, below the high watermark.

    Continue at the offset of the header Tidemark-Next-Offset. Tidemark-High-Watermark and
    Tidemark-Log-Start-Offset are headers too.

    With `rack` the leader may respond 307 to an in-sync replica of that rack, which
    Tidemark-Preferred-Read-Replica names. That replica serves records below its own high watermark,
    or redirects to the leader. With `current_leader_epoch` the response is 409 if the broker knows
    a newer epoch, and 503 if it does not know this epoch yet.
    """,
    Success("FetchedDocument", is_list=True, also=_READ_FORMATS),
    (307, 400, 403, 404, 406, 409, 416, 429, 500, 503),
    query=_READ_QUERY,
)
HEALTHZ = Operation(
    "healthz",
    "Identify the broker",
    "Return the id, the incarnation and the pool of this broker.",
    Success("HealthDocument"),
)
READYZ = Operation(
    "readyz",
    "Check readiness",
    "Return 200 if this broker serves partitions, else 503 with the reason.",
    Success("ReadyDocument"),
)


def _consumer_success(model: str, *, is_list: bool = False) -> Success:
    return Success(model, is_list=is_list, also=_CONSUMER_FORMATS)


MAKE_CONSUMER = Operation(
    "make_consumer",
    "Create a consumer",
    """Create a consumer of the group on this broker. Send its requests to `base_uri`.

    The consumer ends when its broker stops, or after five minutes without a request.
    """,
    _consumer_success("consumers.ConsumerDocument"),
    (400, 403, 409, 413, 503),
    RequestBody("consumers.NewConsumerDocument"),
)
END_CONSUMER = Operation(
    "end_consumer",
    "Delete a consumer",
    """The consumer leaves its group.

    With enable.auto.commit it first commits the offsets of the records that were polled.
    """,
    _DONE,
    (403, 404),
)
SUBSCRIPTION = Operation(
    "subscription",
    "Get the subscription of a consumer",
    "Return the topics of the subscription, and the partitions that are assigned at the moment.",
    _consumer_success("consumers.HeldDocument"),
    (403, 404),
)
SUBSCRIBE = Operation(
    "subscribe",
    "Subscribe a consumer to topics",
    "The consumer joins its group. A later subscription replaces an earlier one.",
    _DONE,
    _CONSUMER_ERRORS,
    RequestBody("consumers.SubscriptionDocument"),
)
UNSUBSCRIBE = Operation(
    "unsubscribe",
    "Delete the subscription of a consumer",
    "The consumer leaves its group. Without a subscription, its assignments are deleted.",
    _DONE,
    (403, 404),
)
ASSIGNMENTS = Operation(
    "assignments",
    "Get the assignments of a consumer",
    "Return the partitions that are assigned at the moment, by the client or by the group.",
    _consumer_success("consumers.AssignmentsDocument"),
    (403, 404),
)
ASSIGN = Operation(
    "assign",
    "Assign partitions to a consumer",
    "Assign partitions without a subscription. Other members of the group may read them too.",
    _DONE,
    _CONSUMER_ERRORS,
    RequestBody("consumers.TopicPartitionsSchema"),
)
POLL = Operation(
    "poll",
    "Poll records",
    """Return the next records of the assigned partitions.

    The list is empty if no record arrives within the timeout, and while the group is rebalancing.
    A consumer serves one poll at a time.
    """,
    _consumer_success("FetchedDocument", is_list=True),
    (400, 403, 404, 406, 409, 500, 503),
    query=_POLL_QUERY,
)
COMMITTED = Operation(
    "committed",
    "Get committed offsets",
    """Return the committed offsets of the group for the partitions in the body.

    Without a body, return those of the assigned partitions. A partition without a committed offset
    is not in the response.
    """,
    _consumer_success("consumers.CommittedDocument"),
    (400, 403, 404, 413, 503),
    RequestBody("consumers.TopicPartitionsSchema", is_required=False),
)
COMMIT = Operation(
    "commit",
    "Commit offsets",
    """Commit the offset of the next record to read, for each partition in the body.

    Without offsets, commit those after the records that were polled. 404: a partition is unknown,
    and no offset is committed. 409: a partition is no longer assigned to this consumer, and its
    offset is not committed.
    """,
    _DONE,
    _CONSUMER_ERRORS,
    RequestBody("consumers.CommitDocument", is_required=False),
)
SEEK = Operation(
    "seek",
    "Set positions",
    "Set the offset of the next record to poll, for each partition in the body.",
    _DONE,
    _CONSUMER_ERRORS,
    RequestBody("consumers.OffsetsDocument"),
)
SEEK_TO_BEGINNING = Operation(
    "seek_to_beginning",
    "Set positions to the beginning",
    "The next poll of these partitions begins at their log start offsets.",
    _DONE,
    _CONSUMER_ERRORS,
    RequestBody("consumers.TopicPartitionsSchema"),
)
SEEK_TO_END = Operation(
    "seek_to_end",
    "Set positions to the end",
    "The next poll of these partitions begins at their high watermarks.",
    _DONE,
    _CONSUMER_ERRORS,
    RequestBody("consumers.TopicPartitionsSchema"),
)
