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
    """The description of a route; its summary and its id are made of `name`."""

    name: str
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
_NAME = _parameter("name", str, min_length=1, max_length=MAX_NAME, description="of the consumer")
PATH_PARAMETERS = {each.name: each for each in (_TOPIC, _PARTITION, _GROUP, _NAME)}

_PRODUCE_QUERY = (
    _parameter(
        "acks",
        Literal["0", "1", "all", "-1"],
        "all",
        description="all (or -1): every in-sync replica has it",
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
        description="how long to wait for a record, ms",
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
    LINES_TYPE.decode(): _text("one FetchedDocument a line, without end"),
    RECORD_BATCH_TYPE.decode(): _text("batches as stored", format="binary"),
}
_CONSUMER_FORMATS: Content = {KAFKA_JSON: {}, BINARY_FORMAT: {}, JSON_FORMAT: {}}
_PRODUCE_ERRORS = (307, 400, 404, 408, 409, 413, 415, 422, 429, 500, 502, 503, 504)
_CONSUMER_ERRORS = (400, 404, 409, 413, 503)
_PRODUCED = Success("ProduceResponseSchema", also={KAFKA_JSON: {}})
_DONE = Success(status=204)

PRODUCE_TO_TOPIC = Operation(
    "produce_to_topic",
    """Append records, each to its `partition`, else by its key (murmur2), else to one partition.

    The one partition is chosen for the request. If one other broker leads them all: 307; else
    records led elsewhere are forwarded. One entry per record, in order.
    """,
    _PRODUCED,
    _PRODUCE_ERRORS,
    RequestBody("ProduceDocument", JSON_FORMAT, also=_SENT_RECORDS),
    _PRODUCE_QUERY,
)
PRODUCE_TO_PARTITION = Operation(
    "produce_to_partition",
    "Append records to one partition, as one batch.",
    _PRODUCED,
    _PRODUCE_ERRORS,
    RequestBody("ProduceDocument", JSON_FORMAT, also=_SENT_RECORDS | _SENT_BATCHES),
    _PRODUCE_QUERY,
)
READ_RECORDS = Operation(
    "read_records",
    """Return records from `offset` on, below the high watermark, at most 10,000.

    Continue at the response's Tidemark-Next-Offset; there are Tidemark-High-Watermark and
    Tidemark-Log-Start-Offset too.

    With `rack` the leader may answer 307 to an in-sync replica of that rack
    (Tidemark-Preferred-Read-Replica), which serves below its own high watermark, or redirects back
    to the leader. `current_leader_epoch`: 409 if a newer one is known here, 503 if not that one.
    """,
    Success("FetchedDocument", is_list=True, also=_READ_FORMATS),
    (307, 400, 404, 406, 409, 416, 429, 500, 503),
    query=_READ_QUERY,
)
HEALTHZ = Operation(
    "healthz", "Return who answers here, and in which incarnation.", Success("HealthDocument")
)
READYZ = Operation(
    "readyz",
    "Return whether this broker serves (200) or not (503), and why not.",
    Success("ReadyDocument"),
)


def _consumer_success(model: str, *, is_list: bool = False) -> Success:
    return Success(model, is_list=is_list, also=_CONSUMER_FORMATS)


MAKE_CONSUMER = Operation(
    "make_consumer",
    """Create a consumer of the group, kept by the broker that is asked; continue at `base_uri`.

    It ends with that broker, or when it was not used for five minutes.
    """,
    _consumer_success("consumers.ConsumerDocument"),
    (400, 409, 413, 503),
    RequestBody("consumers.NewConsumerDocument"),
)
END_CONSUMER = Operation(
    "end_consumer",
    """End the consumer, which leaves its group.

    With enable.auto.commit it commits what it was given.
    """,
    _DONE,
    (404,),
)
SUBSCRIPTION = Operation(
    "subscription",
    "Return its subscription, and the partitions that it has at the moment.",
    _consumer_success("consumers.HeldDocument"),
    (404,),
)
SUBSCRIBE = Operation(
    "subscribe",
    "Join the group, or change the subscription.",
    _DONE,
    _CONSUMER_ERRORS,
    RequestBody("consumers.SubscriptionDocument"),
)
UNSUBSCRIBE = Operation(
    "unsubscribe", "Leave the group, or give up the assigned partitions.", _DONE, (404,)
)
ASSIGNMENTS = Operation(
    "assignments",
    "Return the partitions that it has at the moment, assigned by its client or its group.",
    _consumer_success("consumers.AssignmentsDocument"),
    (404,),
)
ASSIGN = Operation(
    "assign",
    "Assign these partitions without a subscription, whatever others of the group read.",
    _DONE,
    _CONSUMER_ERRORS,
    RequestBody("consumers.TopicPartitionsSchema"),
)
POLL = Operation(
    "poll",
    """Return the next records of its partitions.

    None if there are none in time, or while the group is rebalancing. One poll of a consumer at a
    time.
    """,
    _consumer_success("FetchedDocument", is_list=True),
    (400, 404, 406, 409, 500, 503),
    query=_POLL_QUERY,
)
COMMITTED = Operation(
    "committed",
    """Return the group's committed offsets of these partitions, where it has some.

    Without a body, those of the partitions that the consumer has.
    """,
    _consumer_success("consumers.CommittedDocument"),
    (400, 404, 413, 503),
    RequestBody("consumers.TopicPartitionsSchema", is_required=False),
)
COMMIT = Operation(
    "commit",
    """Commit the offsets to be read next; without any, all that it was given.

    404: there is no such partition, and nothing is committed. 409: a partition is not its own any
    more, and nothing of that is committed.
    """,
    _DONE,
    _CONSUMER_ERRORS,
    RequestBody("consumers.CommitDocument", is_required=False),
)
SEEK = Operation(
    "seek",
    "Set where its next polls begin.",
    _DONE,
    _CONSUMER_ERRORS,
    RequestBody("consumers.OffsetsDocument"),
)
SEEK_TO_BEGINNING = Operation(
    "seek_to_beginning",
    "",
    _DONE,
    _CONSUMER_ERRORS,
    RequestBody("consumers.TopicPartitionsSchema"),
)
SEEK_TO_END = Operation(
    "seek_to_end", "", _DONE, _CONSUMER_ERRORS, RequestBody("consumers.TopicPartitionsSchema")
)
