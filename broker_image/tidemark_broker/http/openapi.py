"""Define the FastAPI application: the OpenAPI document of each route, and the slow routes.

Produce, records and health are documented here and served by the dispatcher in app.py, which
handles them before FastAPI sees them: their functions below are never called. FastAPI's own /docs
is off, because that page loads scripts from elsewhere.
"""

from typing import Annotated, Any, Literal

from fastapi import Body, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.http import schemas as documents
from tidemark_broker.http.admin_routes import AdminRoutes, Topic
from tidemark_broker.http.consumers import schemas as consumers
from tidemark_broker.http.group_routes import GroupRoutes, GroupsDocument
from tidemark_broker.http.media_types import LINES_TYPE, RECORD_BATCH_TYPE, EmbeddedFormat
from tidemark_broker.http.problems import PROBLEM_TYPE, HttpProblem
from tidemark_broker.http.produce_results import PRODUCE_RESPONSE_TYPE

Partition = Annotated[int, Path(ge=0, le=2**31 - 1)]
Acks = Annotated[
    Literal["0", "1", "all", "-1"], Query(description="all (or -1): every in-sync replica has it")
]
TimeoutMs = Annotated[int, Query(ge=0, le=120_000)]
Offset = Annotated[str, Query(pattern="^(earliest|latest|[0-9]{1,19})$")]
MaxBytes = Annotated[int, Query(ge=0, le=8 * 1024 * 1024)]
Rack = Annotated[str | None, Query(max_length=253)]
CurrentLeaderEpoch = Annotated[int | None, Query(ge=0, le=2**31 - 1)]
MaxWaitMs = Annotated[int, Query(ge=0, le=30_000)]
Records = Annotated[documents.ProduceDocument, Body(media_type=EmbeddedFormat.JSON.value.decode())]

_PROBLEM = {PROBLEM_TYPE.decode(): {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
_STATUSES = {
    307: "Another broker leads, or is the nearer replica: Location names it",
    400: "Malformed",
    404: "Unknown topic or partition",
    409: "A newer leader epoch; or, with a producer_id, a sequence or epoch that does not follow",
    406: "No acceptable format",
    408: "The body came too slowly",
    413: "Too large",
    415: "Unknown Content-Type",
    416: "Offset out of range",
    422: "A record does not fit",
    429: "Above the quota of its client id: Retry-After says until when",
    500: "Failed; `outcome` says what is known",
    502: "A leader that records were forwarded to did not answer",
    503: "Not now",
    504: "Not acknowledged in time",
}

_SERVED_BEFORE = "the dispatcher in app.py serves this route before FastAPI sees it"


async def produce_to_topic(
    topic: Topic, body: Records, acks: Acks = "all", timeout_ms: TimeoutMs = 30_000
) -> documents.ProduceResponseSchema:
    """Append records, each to its `partition`, else by its key (murmur2), else to one partition.

    The one partition is chosen for the request. If one other broker leads them all: 307; else
    records led elsewhere are forwarded. One entry per record, in order.
    """
    raise AssertionError(_SERVED_BEFORE)


async def produce_to_partition(
    topic: Topic,
    partition: Partition,
    body: Records,
    acks: Acks = "all",
    timeout_ms: TimeoutMs = 30_000,
) -> documents.ProduceResponseSchema:
    """Append records to one partition, as one batch."""
    raise AssertionError(_SERVED_BEFORE)


async def read_records(
    topic: Topic,
    partition: Partition,
    offset: Offset = "earliest",
    max_bytes: MaxBytes = 1024 * 1024,
    max_wait_ms: MaxWaitMs = 0,
    rack: Rack = None,
    current_leader_epoch: CurrentLeaderEpoch = None,
) -> list[documents.FetchedDocument]:
    """Return records from `offset` on, below the high watermark, at most 10,000.

    Continue at the response's Tidemark-Next-Offset; there are Tidemark-High-Watermark and
    Tidemark-Log-Start-Offset too.

    With `rack` the leader may answer 307 to an in-sync replica of that rack
    (Tidemark-Preferred-Read-Replica), which serves below its own high watermark, or redirects back
    to the leader. `current_leader_epoch`: 409 if a newer one is known here, 503 if not that one.
    """
    raise AssertionError(_SERVED_BEFORE)


async def healthz() -> documents.HealthDocument:
    """Return who answers here, and in which incarnation."""
    raise AssertionError(_SERVED_BEFORE)


async def readyz() -> documents.ReadyDocument:
    """Return whether this broker serves (200) or not (503), and why not."""
    raise AssertionError(_SERVED_BEFORE)


class BrokerApi(FastAPI):
    """The FastAPI application; its document also has the schema of problem details."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            schema = get_openapi(
                title=self.title,
                version=self.version,
                openapi_version=self.openapi_version,
                routes=self.routes,
            )
            schemas = schema["components"]["schemas"]
            schemas["ProblemDocument"] = documents.ProblemDocument.model_json_schema()
            for operations in schema["paths"].values():
                for operation in operations.values():
                    _with_our_errors(operation["responses"])
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            self.openapi_schema = schema
        return self.openapi_schema


def _with_our_errors(responses: dict[str, Any]) -> None:
    """Replace FastAPI's 422 with a body of its own, which is never sent."""
    if "HTTPValidationError" in str(responses.get("422", "")):
        del responses["422"]
        responses.setdefault("400", {"description": _STATUSES[400], "content": _PROBLEM})


def create_api(admin: AdminRoutes, groups: GroupRoutes) -> FastAPI:
    api = BrokerApi(title="Tidemark broker", docs_url=None, redoc_url=None, redirect_slashes=False)
    for path, endpoint in (
        ("/topics/{topic}", produce_to_topic),
        ("/topics/{topic}/partitions/{partition}", produce_to_partition),
    ):
        api.add_api_route(
            path,
            endpoint,
            methods=["POST"],
            responses=_responses(
                PRODUCE_RESPONSE_TYPE,
                307,
                400,
                404,
                408,
                409,
                413,
                415,
                422,
                429,
                500,
                502,
                503,
                504,
            ),
            openapi_extra=_produce_body(to_partition=endpoint is produce_to_partition),
        )
    partition_path = "/topics/{topic}/partitions/{partition}"
    api.add_api_route(
        f"{partition_path}/records",
        read_records,
        methods=["GET"],
        responses=_read_responses(),
    )
    for path, read, statuses in (
        ("/topics", admin.list_topics, ()),
        ("/topics/{topic}", admin.topic, (404,)),
        ("/topics/{topic}/partitions", admin.partitions, (404,)),
        (partition_path, admin.partition, (404,)),
        (f"{partition_path}/offsets", admin.offsets, (307, 404, 503)),
        (f"{partition_path}/replica", admin.replica, (404, 503)),
        ("/brokers", admin.brokers, ()),
        ("/healthz", healthz, ()),
        ("/readyz", readyz, ()),
    ):
        api.add_api_route(path, read, methods=["GET"], responses=_responses(None, *statuses))
    _add_pages(api, admin)
    api.add_api_route(
        "/groups",
        groups.groups,
        methods=["GET"],
        response_model=GroupsDocument,
        responses=_responses(None),
    )
    api.add_api_route(
        "/metrics",
        admin.metrics,
        methods=["GET"],
        response_class=PlainTextResponse,
        responses={200: {"description": "Prometheus text"}},
    )
    api.add_api_route(
        "/producers",
        admin.init_producer,
        methods=["POST"],
        responses=_responses(None, 400, 413, 503),
        openapi_extra=_producer_body(),
    )
    _add_consumers(api)
    _use_problems(api)
    return api


def _add_pages(api: FastAPI, admin: AdminRoutes) -> None:
    for path in ("/", "/docs"):
        api.add_api_route(path, admin.start_page, methods=["GET"], include_in_schema=False)

    async def document() -> JSONResponse:
        return JSONResponse(api.openapi())

    for path in ("/openapi", "/openapi/v3"):  # the Strimzi bridge's names of it
        api.add_api_route(path, document, methods=["GET"], include_in_schema=False)


def _add_consumers(api: FastAPI) -> None:
    api.add_api_route(
        consumers.CONSUMERS_PATH,
        consumers.make_consumer,
        methods=["POST"],
        responses=_consumer_responses(200, 400, 409, 413, 503),
    )
    for route in consumers.ROUTES:
        api.add_api_route(
            consumers.CONSUMER_PATH + route.path,
            route.endpoint,
            methods=[route.method],
            status_code=route.status,
            responses=_consumer_responses(route.status, *route.refusals),
        )


def _consumer_responses(success: int, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the responses of consumer paths, of the bridge's type or of their records'."""
    responses = _responses(None, *statuses)
    if success == 200:
        types = (PRODUCE_RESPONSE_TYPE, *(each.value for each in EmbeddedFormat))
        responses[200] = {"content": {media_type.decode(): {} for media_type in types}}
    return responses


def _responses(success_type: bytes | None, *statuses: int) -> dict[int | str, dict[str, Any]]:
    responses: dict[int | str, dict[str, Any]] = {
        status: {"description": _STATUSES[status], "content": _PROBLEM} for status in statuses
    }
    if success_type is not None:
        responses[200] = {"content": {success_type.decode(): {}}}
    return responses


def _read_responses() -> dict[int | str, dict[str, Any]]:
    """Return the four kinds of responses to a read, by Accept."""
    responses = _responses(None, 307, 400, 404, 406, 409, 416, 429, 500, 503)
    records = {"type": "array", "items": {"$ref": "#/components/schemas/FetchedDocument"}}
    content: dict[str, Any] = {
        media_type: {"schema": records}
        for media_type in (*(each.value.decode() for each in EmbeddedFormat), "application/json")
    }
    content[LINES_TYPE.decode()] = {
        "schema": {"type": "string", "description": "one FetchedDocument a line, without end"}
    }
    content[RECORD_BATCH_TYPE.decode()] = {
        "schema": {"type": "string", "format": "binary", "description": "batches as stored"}
    }
    responses[200] = {"content": content}
    return responses


def _produce_body(*, to_partition: bool) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/ProduceDocument"}
    media_types = (EmbeddedFormat.BINARY.value.decode(), "application/json")
    content: dict[str, Any] = {media_type: {"schema": schema} for media_type in media_types}
    if to_partition:
        batches = {"type": "string", "format": "binary", "description": "record batches (v2)"}
        content[RECORD_BATCH_TYPE.decode()] = {"schema": batches}
    return {"requestBody": {"content": content}}


def _producer_body() -> dict[str, Any]:
    """Return the optional body; FastAPI would require one that is a parameter."""
    content = {"application/json": {"schema": documents.ProducerDocument.model_json_schema()}}
    return {"requestBody": {"content": content, "required": False}}


def _use_problems(api: FastAPI) -> None:
    """Send FastAPI's own errors as problem details too."""

    async def on_problem(request: Request, problem: Exception) -> Response:
        assert isinstance(problem, HttpProblem)
        answer = problem.answer(request.url.path, is_produce=False)
        headers = {name.decode(): value.decode("latin-1") for name, value in answer.headers}
        headers["content-type"] = answer.content_type.decode()
        return Response(answer.body, answer.status, headers)

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        problem = HttpProblem(ErrorCode.INVALID_REQUEST, f"{place}: {first['msg']}")
        return await on_problem(request, problem)

    async def on_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        detail = f"{request.method} {request.url.path[:200]}: {error.detail}; see /openapi.json"
        problem = HttpProblem(ErrorCode.INVALID_REQUEST, detail, status=error.status_code)
        response = await on_problem(request, problem)
        if error.status_code == 405:
            response.headers["allow"] = _allowed(api, request)
        return response

    api.add_exception_handler(HttpProblem, on_problem)
    api.add_exception_handler(RequestValidationError, on_invalid)
    api.add_exception_handler(HTTPException, on_http_error)


def _allowed(api: FastAPI, request: Request) -> str:
    """Return all methods of the path (RFC 9110 15.5.6); Starlette names those of one route."""
    found: set[str] = set()
    for route in api.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return ", ".join(sorted(found))
