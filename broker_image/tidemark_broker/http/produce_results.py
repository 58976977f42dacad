"""Build the response to a produce request: one entry per record, in the request's order.

200 with `{"offsets": [...]}` as soon as one record was written or the errors differ; when all
failed alike, the problem itself. An entry is `{"partition", "offset"}` or `{"partition",
"error_code", "error", "message", "outcome"}`. Offset -1: written without acknowledgement (acks=0).

Where single records are the reason (KIP-467) their entries say what is wrong with them, the others
of their batch NOT_THE_REASON, and the problem has `record_errors`: `[{"index", "message"}]`.
"""

from collections.abc import Mapping, Sequence

import msgspec
from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.http.problems import HttpProblem, Outcome
from tidemark_broker.http.response import Response

PRODUCE_RESPONSE_TYPE = b"application/vnd.kafka.v2+json"


class Written(msgspec.Struct, frozen=True, gc=False):
    partition: int
    offset: int


class Failed(msgspec.Struct, frozen=True, gc=False):
    partition: int
    error_code: int
    error: str
    message: str
    outcome: str


RecordResult = Written | Failed
NOT_THE_REASON = "not written: another record of the batch was rejected"


def failed(partition: int, error: ErrorCode, message: str, outcome: Outcome) -> Failed:
    return Failed(partition, int(error), error.name, message, outcome.value)


def failed_as(partition: int, problem: HttpProblem) -> Failed:
    return failed(partition, problem.error, problem.detail, problem.outcome)


def record_errors_of(found: Sequence[tuple[int, str]]) -> Mapping[str, object]:
    """Return the members of a problem that name its bad records, by index in the request."""
    if not found:
        return {}
    return {"record_errors": [{"index": index, "message": message} for index, message in found]}


def produce_response(results: Sequence[RecordResult], *, is_forwarded: bool) -> Response:
    """Return the response; raise the common problem if there is one, but not to a broker.

    A broker that forwarded wants each entry.
    """
    if not is_forwarded:
        problem = _common_problem(results)
        if problem is not None:
            raise problem
    body = msgspec.json.encode({"offsets": results})
    return Response(200, body, PRODUCE_RESPONSE_TYPE)


def _common_problem(results: Sequence[RecordResult]) -> HttpProblem | None:
    first = results[0]
    if isinstance(first, Written):
        return None
    for result in results:
        if isinstance(result, Written):
            return None
        if (result.error_code, result.outcome) != (first.error_code, first.outcome):
            return None
    detail, members = first.message, record_errors_of(())
    reported = [
        (index, each.message) for index, each in enumerate(results) if isinstance(each, Failed)
    ]
    reasons = [(index, message) for index, message in reported if message != NOT_THE_REASON]
    if 0 < len(reasons) < len(reported):
        index, message = reasons[0]
        counts = f"{len(reasons)} of {len(reported)} records rejected"
        detail = f"{counts}, the first is record {index}: {message}"
        members = record_errors_of(reasons)
    return HttpProblem(
        ErrorCode(first.error_code), detail, outcome=Outcome(first.outcome), members=members
    )
