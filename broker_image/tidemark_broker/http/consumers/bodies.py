"""Decode bodies of the consumer paths strictly: an unknown field is rejected by name."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from tidemark_broker.coordinator.core.consumer_protocol import TopicPartition
from tidemark_broker.http.consumers.positions import RESETS, Commit
from tidemark_broker.http.media_types import EmbeddedFormat
from tidemark_broker.http.problems import malformed

MAX_NAME = 249
MAX_TOPICS = 1_000
MAX_PARTITIONS = 2_000
MAX_REQUEST_TIMEOUT_MS = 30_000
FORMATS: Mapping[str, EmbeddedFormat] = {
    "binary": EmbeddedFormat.BINARY,
    "json": EmbeddedFormat.JSON,
}
MAX_OFFSET = 2**63 - 1

Flag = bool | str  # the REST Proxy's clients send "true"


class _Strict(msgspec.Struct, forbid_unknown_fields=True):
    pass


class NewConsumerBody(_Strict):
    """A consumer to create, with names of Kafka's consumer configs as the bridge has them."""

    name: str = ""
    format: str = "binary"
    reset: str = msgspec.field(default="latest", name="auto.offset.reset")
    auto_commit: Flag = msgspec.field(default=True, name="enable.auto.commit")
    rest_auto_commit: Flag | None = msgspec.field(default=None, name="auto.commit.enable")
    min_bytes: int | str = msgspec.field(default=1, name="fetch.min.bytes")
    timeout_ms: int | str = msgspec.field(default=1_000, name="consumer.request.timeout.ms")
    isolation: str = msgspec.field(default="read_uncommitted", name="isolation.level")

    def check(self) -> None:
        """Raise HttpProblem (400) for an invalid value."""
        if len(self.name) > MAX_NAME or "/" in self.name:
            raise malformed(f'body: $.name: expected at most {MAX_NAME} characters without "/"')
        _one_of("format", self.format, FORMATS)
        _one_of("auto.offset.reset", self.reset, (*RESETS, "none"))
        _one_of("isolation.level", self.isolation, ("read_uncommitted", "read_committed"))

    @property
    def commits_itself(self) -> bool:
        if self.rest_auto_commit is not None:
            return _flag("auto.commit.enable", self.rest_auto_commit)
        return _flag("enable.auto.commit", self.auto_commit)

    @property
    def smallest_fetch_bytes(self) -> int:
        return _number("fetch.min.bytes", self.min_bytes, 1, 1024 * 1024)

    @property
    def request_timeout_ms(self) -> int:
        name = "consumer.request.timeout.ms"
        return _number(name, self.timeout_ms, 0, MAX_REQUEST_TIMEOUT_MS)


class SubscriptionBody(_Strict):
    topics: list[str]


class _Place(_Strict):
    topic: str
    partition: int


class TopicPartitionsBody(_Strict):
    partitions: list[_Place]


class _Offset(_Strict):
    topic: str
    partition: int
    offset: int
    metadata: str | None = None


class OffsetsBody(_Strict):
    offsets: list[_Offset]


class CommitBody(_Strict):
    """Offsets to commit; without any, all that was polled."""

    offsets: list[_Offset] | None = None


Body = TypeVar("Body")


def decode(data: bytes, kind: type[Body]) -> Body:
    """Decode a body.

    Raises HttpProblem (400).
    """
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(f"body: {error}") from error


def topics_of(body: SubscriptionBody) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(body.topics))
    if not 0 < len(topics) <= MAX_TOPICS or not all(0 < len(t) <= MAX_NAME for t in topics):
        raise malformed(
            f"body: $.topics: expected 1 to {MAX_TOPICS} names of at most {MAX_NAME} characters"
        )
    return topics


def places_of(body: TopicPartitionsBody) -> tuple[TopicPartition, ...]:
    _check_count("partitions", len(body.partitions))
    return tuple(dict.fromkeys((place.topic, place.partition) for place in body.partitions))


def offsets_of(body: OffsetsBody) -> dict[TopicPartition, Commit]:
    return _commits(body.offsets)


def commits_of(body: CommitBody) -> dict[TopicPartition, Commit] | None:
    return _commits(body.offsets) if body.offsets else None


def _commits(offsets: list[_Offset]) -> dict[TopicPartition, Commit]:
    _check_count("offsets", len(offsets))
    for at, entry in enumerate(offsets):
        if not 0 <= entry.offset <= MAX_OFFSET:
            raise malformed(
                f"body: $.offsets[{at}].offset: expected 0 to 2^63 - 1, found {entry.offset}"
            )
    return {
        (entry.topic, entry.partition): Commit(entry.offset, entry.metadata or "")
        for entry in offsets
    }


def _check_count(name: str, count: int) -> None:
    if not 0 < count <= MAX_PARTITIONS:
        raise malformed(f"body: $.{name}: expected 1 to {MAX_PARTITIONS} entries, found {count}")


def _one_of(name: str, value: str, known: Any) -> None:
    if value not in known:
        raise malformed(f"body: {name}: expected one of {', '.join(known)}; found {value[:40]!r}")


def _flag(name: str, value: Flag) -> bool:
    if isinstance(value, str):
        _one_of(name, value, ("true", "false"))
        return value == "true"
    return value


def _number(name: str, value: int | str, least: int, most: int) -> int:
    is_number = isinstance(value, int) or (
        value.isascii() and value.isdecimal() and len(value) <= 19
    )
    if not is_number or not least <= int(value) <= most:
        raise malformed(f"body: {name}: expected {least} to {most}, found {str(value)[:40]!r}")
    return int(value)
