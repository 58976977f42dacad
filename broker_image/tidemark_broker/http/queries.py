"""Decode query strings of the hot routes strictly, and cache them (clients repeat them).

An unknown or repeated name is rejected: `ack=all` must not silently become a default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import parse_qsl

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_EPOCH, LeaderEpoch

from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.http.problems import HttpProblem, malformed
from tidemark_broker.replication.results import LEADER_ONLY, Consumer

MAX_QUERY_BYTES = 2048
MAX_OFFSET = 2**63 - 1
EARLIEST = -2  # as in Kafka's ListOffsets
LATEST = -1
MAX_RACK = 253  # what a broker may register
MAX_LEADER_EPOCH = 2**31 - 1
_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}


@dataclass(frozen=True, slots=True)
class ProduceQuery:
    acks: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class FetchQuery:
    offset: int  # EARLIEST, LATEST or >= 0
    max_bytes: int
    max_wait_ms: int
    consumer: Consumer = LEADER_ONLY
    ends: bool = True  # a wait was named: a stream without one goes on for ever


def _parameters(query_string: bytes, known: tuple[str, ...]) -> Mapping[str, str]:
    if len(query_string) > MAX_QUERY_BYTES:
        raise malformed(
            f"query string: expected at most {MAX_QUERY_BYTES} bytes, found {len(query_string)}"
        )
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"), keep_blank_values=True, strict_parsing=bool(query_string)
        )
    except ValueError as error:
        raise malformed(
            f"query string: expected name=value, joined by &, in ASCII: {error}"
        ) from error
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            raise malformed(f"query: expected only {', '.join(known)}; found {name[:40]!r}")
        if name in found:
            raise malformed(f"query: {name}: expected one value, found two")
        found[name] = value
    return found


def _number(found: Mapping[str, str], name: str, *, default: int, most: int) -> int:
    text = found.get(name)
    if text is None:
        return default
    # isdecimal alone would let other scripts' digits in; the length bounds int()'s work
    if not (text.isascii() and text.isdecimal() and len(text) <= 19) or int(text) > most:
        raise malformed(f"query: {name}: expected a number from 0 to {most}, found {text[:40]!r}")
    return int(text)


@lru_cache(maxsize=1024)
def produce_query(query_string: bytes, limits: HttpLimits) -> ProduceQuery:
    found = _parameters(query_string, ("acks", "timeout_ms"))
    acks = _ACKS.get(found.get("acks", "all"))
    if acks is None:
        raise HttpProblem(
            ErrorCode.INVALID_REQUIRED_ACKS,
            f"query: acks: expected 0, 1 or all (-1), found {found['acks'][:40]!r}",
        )
    timeout_ms = _number(
        found,
        "timeout_ms",
        default=limits.produce_timeout_default_ms,
        most=limits.produce_timeout_max_ms,
    )
    return ProduceQuery(acks, timeout_ms)


@lru_cache(maxsize=256)
def fetch_query(query_string: bytes, limits: HttpLimits) -> FetchQuery:
    found = _parameters(
        query_string, ("offset", "max_bytes", "max_wait_ms", "rack", "current_leader_epoch")
    )
    named = {"earliest": EARLIEST, "latest": LATEST}.get(found.get("offset", "earliest"))
    return FetchQuery(
        offset=_number(found, "offset", default=0, most=MAX_OFFSET) if named is None else named,
        max_bytes=_number(
            found, "max_bytes", default=limits.fetch_bytes_default, most=limits.fetch_bytes_max
        ),
        max_wait_ms=_number(found, "max_wait_ms", default=0, most=limits.fetch_wait_max_ms),
        consumer=_consumer(found),
        ends="max_wait_ms" in found,
    )


def _consumer(found: Mapping[str, str]) -> Consumer:
    rack = found.get("rack")
    if rack is not None and len(rack) > MAX_RACK:
        raise malformed(f"query: rack: expected at most {MAX_RACK} characters, found {len(rack)}")
    epoch = _number(found, "current_leader_epoch", default=NO_EPOCH, most=MAX_LEADER_EPOCH)
    return Consumer(rack, LeaderEpoch(epoch))


@dataclass(frozen=True, slots=True)
class PollQuery:
    """The query of a poll; `wait_ms` of None is as the consumer was created."""

    wait_ms: int | None
    max_bytes: int


@lru_cache(maxsize=1024)
def poll_query(query_string: bytes, limits: HttpLimits) -> PollQuery:
    """Decode the query of a poll: `timeout` (ms) and `max_bytes`, as the bridge has them."""
    found = _parameters(query_string, ("timeout", "max_bytes"))
    wait_ms = None
    if "timeout" in found:
        wait_ms = _number(found, "timeout", default=0, most=limits.fetch_wait_max_ms)
    max_bytes = _number(
        found, "max_bytes", default=limits.fetch_bytes_default, most=limits.fetch_bytes_max
    )
    return PollQuery(wait_ms, max_bytes)
