"""Define the problem details (RFC 9457) of each error: status, title and outcome of a produce.

Each error response is `application/problem+json` with type, title, status, detail, instance,
`error` (Kafka's name), `error_code` (Kafka's number) and `retriable` (as Kafka classifies the
error; false where this broker knows that a retry fails too). A detail is `<object>: <problem>`,
with the expected and the found value and `: <what to do>` where there are some.

A failed produce has `outcome` too:

  not_written  no record of it is in the log: a retry cannot duplicate records
  unknown      its records may be in the log, now or later: a retry may duplicate them

| error                            | status | Retry-After | outcome of a produce               |
|----------------------------------|--------|-------------|------------------------------------|
| UNKNOWN_TOPIC_OR_PARTITION       | 404    |             | not_written                        |
| LEADER_NOT_AVAILABLE             | 503    | 1           | not_written                        |
| LISTENER_NOT_FOUND               | 503    | 1           | not_written                        |
| NOT_LEADER_OR_FOLLOWER, before   | 307    |             | not_written; 503 + 1 if no leader  |
| NOT_LEADER_OR_FOLLOWER, after    | 500    |             | unknown (leadership lost in wait)  |
| REQUEST_TIMED_OUT                | 504    |             | unknown (408 + not_written: body)  |
| NOT_ENOUGH_REPLICAS              | 503    | 1           | not_written                        |
| NOT_ENOUGH_REPLICAS_AFTER_APPEND | 500    |             | unknown                            |
| MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE | 413 |        | not_written                        |
| INVALID_REQUIRED_ACKS, INVALID_REQUEST   | 400 |        | not_written                        |
| INVALID_RECORD, INVALID_TIMESTAMP        | 422 |        | not_written                        |
| CORRUPT_MESSAGE                  | 500    |             | not_written                        |
| KAFKA_STORAGE_ERROR              | 500    |             | unknown                            |
| KAFKA_STORAGE_ERROR, no space    | 507    |             | not_written (partition_write.py)   |
| NETWORK_EXCEPTION (forwarded)    | 502    |             | unknown                            |
| THROTTLING_QUOTA_EXCEEDED        | 503    | 1           | not_written (limits.py)            |
| THROTTLING_QUOTA_EXCEEDED, quota | 429    | by the quota | not_written (quotas.py)           |
| OUT_OF_ORDER_SEQUENCE_NUMBER     | 409    |             | unknown (may be an old duplicate) |
| INVALID_PRODUCER_EPOCH           | 409    |             | unknown (may be written before)   |
| UNKNOWN_PRODUCER_ID              | 409    |             | not_written                        |
| COORDINATOR_LOAD_IN_PROGRESS     | 503    | 1           | (producer ids, groups)             |
| COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR | 503 | 1    | (groups)                           |
| REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION  | 409 |      | (commits: partition not assigned)  |
| INVALID_GROUP_ID                 | 400    |             | (groups)                           |
| TOPIC_, GROUP_, CLUSTER_AUTHORIZATION_FAILED | 403 |    | not_written                        |
| INCONSISTENT_GROUP_PROTOCOL, GROUP_MAX_SIZE_REACHED | 409 | | (groups: the consumer cannot join) |
| OFFSET_METADATA_TOO_LARGE, INVALID_COMMIT_OFFSET_SIZE | 413 | | (commits)                      |
| OFFSET_OUT_OF_RANGE              | 416    |             | (fetch: detail has the valid range) |
| OFFSET_NOT_AVAILABLE             | 503    | 1           | (fetch, offsets)                   |
| FENCED_LEADER_EPOCH              | 409    |             | (fetch: look up the leader again)  |
| SASL_AUTHENTICATION_FAILED       | 401    |             | (all, where clients authenticate)  |
| UNKNOWN_LEADER_EPOCH             | 503    | 1           | (fetch: metadata is older)         |
| UNKNOWN_SERVER_ERROR, all others | 500    |             | unknown                            |

A response with an unknown outcome has no Retry-After and is no redirect, because a client or a
proxy could send the records again automatically.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec
from tidemark_protocol.error_codes import RETRIABLE_ERRORS, ErrorCode

from tidemark_broker.http.response import Response

PROBLEM_TYPE = b"application/problem+json"


class Outcome(StrEnum):
    NOT_WRITTEN = "not_written"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ProblemKind:
    status: int
    title: str
    outcome: Outcome = Outcome.NOT_WRITTEN
    retry_after_seconds: int = 0


KINDS: Mapping[ErrorCode, ProblemKind] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ProblemKind(404, "Unknown topic or partition"),
    ErrorCode.LEADER_NOT_AVAILABLE: ProblemKind(
        503, "The partition has no leader", retry_after_seconds=1
    ),
    ErrorCode.LISTENER_NOT_FOUND: ProblemKind(
        503, "The leader has no address at this listener", retry_after_seconds=1
    ),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ProblemKind(
        503, "This broker does not lead the partition", retry_after_seconds=1
    ),
    ErrorCode.REQUEST_TIMED_OUT: ProblemKind(504, "The request timed out", Outcome.UNKNOWN),
    ErrorCode.NOT_ENOUGH_REPLICAS: ProblemKind(
        503, "Fewer in-sync replicas than min.insync.replicas", retry_after_seconds=1
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ProblemKind(
        500, "In-sync replicas fell below min.insync.replicas after the append", Outcome.UNKNOWN
    ),
    ErrorCode.MESSAGE_TOO_LARGE: ProblemKind(413, "The request is too large"),
    ErrorCode.RECORD_LIST_TOO_LARGE: ProblemKind(413, "The record batch is larger than a segment"),
    ErrorCode.INVALID_TOPIC_EXCEPTION: ProblemKind(400, "The topic does not allow this request"),
    ErrorCode.INVALID_REQUIRED_ACKS: ProblemKind(400, "Invalid value of acks"),
    ErrorCode.INVALID_REQUEST: ProblemKind(400, "Invalid request"),
    ErrorCode.INVALID_RECORD: ProblemKind(422, "Invalid record"),
    ErrorCode.INVALID_TIMESTAMP: ProblemKind(422, "Invalid timestamp"),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: ProblemKind(422, "Unsupported compression type"),
    ErrorCode.CORRUPT_MESSAGE: ProblemKind(500, "A record batch is corrupt"),
    ErrorCode.KAFKA_STORAGE_ERROR: ProblemKind(
        500, "The log cannot be read or written", Outcome.UNKNOWN
    ),
    ErrorCode.NETWORK_EXCEPTION: ProblemKind(502, "The leader did not respond", Outcome.UNKNOWN),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: ProblemKind(
        503, "A limit or a quota is reached", retry_after_seconds=1
    ),
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: ProblemKind(
        409, "The sequence does not follow the producer's last sequence", Outcome.UNKNOWN
    ),
    ErrorCode.INVALID_PRODUCER_EPOCH: ProblemKind(
        409, "The producer has written with a newer epoch", Outcome.UNKNOWN
    ),
    ErrorCode.UNKNOWN_PRODUCER_ID: ProblemKind(409, "Unknown producer id"),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ProblemKind(
        503, "The coordinator is not ready", retry_after_seconds=1
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ProblemKind(
        503, "The group coordinator is not available", retry_after_seconds=1
    ),
    ErrorCode.NOT_COORDINATOR: ProblemKind(
        503, "The group coordinator is changing", retry_after_seconds=1
    ),
    ErrorCode.REBALANCE_IN_PROGRESS: ProblemKind(409, "The group is rebalancing"),
    ErrorCode.ILLEGAL_GENERATION: ProblemKind(409, "The generation of the consumer has ended"),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ProblemKind(403, "The access to the topic is denied"),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ProblemKind(403, "The access to the group is denied"),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ProblemKind(403, "The access to the pool is denied"),
    ErrorCode.INVALID_GROUP_ID: ProblemKind(400, "Invalid group id"),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: ProblemKind(
        409, "The members of the group share no assignor"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: ProblemKind(409, "The group is full"),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: ProblemKind(413, "The metadata of an offset is too large"),
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: ProblemKind(413, "Too many offsets in one commit"),
    ErrorCode.OFFSET_OUT_OF_RANGE: ProblemKind(416, "Offset out of range"),
    ErrorCode.OFFSET_NOT_AVAILABLE: ProblemKind(
        503, "The high watermark of the new leader is not known yet", retry_after_seconds=1
    ),
    ErrorCode.FENCED_LEADER_EPOCH: ProblemKind(409, "A newer leader epoch exists"),
    ErrorCode.UNKNOWN_LEADER_EPOCH: ProblemKind(
        503, "This broker does not know the leader epoch yet", retry_after_seconds=1
    ),
    ErrorCode.SASL_AUTHENTICATION_FAILED: ProblemKind(401, "Authentication failed"),
    ErrorCode.UNKNOWN_MEMBER_ID: ProblemKind(500, "Unknown consumer", Outcome.UNKNOWN),
    ErrorCode.REPLICA_NOT_AVAILABLE: ProblemKind(
        500, "The broker has no replica of the partition", Outcome.UNKNOWN
    ),
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: ProblemKind(
        500, "A record cannot be shown in this format", Outcome.UNKNOWN
    ),
}
PREVIOUS_NAMES: Mapping[str, str] = {  # which clients of release 0.1 read
    "broker_id": "brokerId",
    "error_code": "errorCode",
    "leader_epoch": "leaderEpoch",
    "leader_id": "leaderId",
    "log_end_offset": "logEndOffset",
    "log_start_offset": "logStartOffset",
    "next_offset": "nextOffset",
    "record_errors": "recordErrors",
}
_OTHER = ProblemKind(500, "Unexpected error", Outcome.UNKNOWN)


def kind_of(error: ErrorCode) -> ProblemKind:
    return KINDS.get(error, _OTHER)


class HttpProblem(Exception):
    """An error of a request, which the dispatcher turns into a response.

    `members` extend the body. `status`, `outcome` and `retry_after_seconds` replace those of the
    table. With `must_close` the rest of the request body is not worth reading, so the connection
    ends with the response. A `challenge` says how to authenticate.
    """

    challenge = ""

    def __init__(
        self,
        error: ErrorCode,
        detail: str,
        *,
        status: int = 0,
        outcome: Outcome | None = None,
        location: str = "",
        must_close: bool = False,
        retry_after_seconds: int = 0,
        members: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(detail)
        kind = kind_of(error)
        self.error = error
        self.detail = detail
        self.status = status or kind.status
        self.title = kind.title
        self.outcome = outcome or kind.outcome
        self.location = location
        self.must_close = must_close
        self.retry_after_seconds = retry_after_seconds or kind.retry_after_seconds
        self.members: dict[str, object] = dict(members or {})

    def answer(self, instance: str, *, is_produce: bool) -> Response:
        body: dict[str, object] = {
            "type": "urn:tidemark:problem:" + self.error.name.lower().replace("_", "-"),
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
            "error": self.error.name,
            "error_code": int(self.error),
            "retriable": self.error in RETRIABLE_ERRORS,
        }
        headers: list[tuple[bytes, bytes]] = []
        if is_produce:
            body["outcome"] = self.outcome.value
        retry_after = self.retry_after_seconds
        may_invite_retry = not is_produce or self.outcome is Outcome.NOT_WRITTEN
        if self.status in (429, 503) and retry_after and may_invite_retry:
            headers.append((b"retry-after", b"%d" % retry_after))
        if self.location:
            headers.append((b"location", self.location.encode("latin-1")))
        if self.challenge:
            headers.append((b"www-authenticate", self.challenge.encode("latin-1")))
        if self.must_close:
            headers.append((b"connection", b"close"))
        body.update(self.members)
        encoded = msgspec.json.encode(with_previous_names(body))
        return Response(self.status, encoded, PROBLEM_TYPE, tuple(headers))


def with_previous_names(body: Mapping[str, object]) -> dict[str, object]:
    """Add each value again under the name that it had before all names were in snake_case."""
    previous = {PREVIOUS_NAMES[name]: body[name] for name in body if name in PREVIOUS_NAMES}
    return {**body, **previous}


def malformed(detail: str) -> HttpProblem:
    return HttpProblem(ErrorCode.INVALID_REQUEST, detail)
