"""Define the FastAPI application: the slow routes, and the OpenAPI document of all routes.

The dispatcher in app.py serves the routes of routes.py before FastAPI sees them; they are
registered here by their operation. FastAPI's own /docs is off, because that page loads scripts from
elsewhere.
"""

import inspect
import re
from collections.abc import Callable
from types import GenericAlias
from typing import Any

from fastapi import Body, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette import routing
from starlette.exceptions import HTTPException
from starlette.routing import Match
from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.http import schemas as documents
from tidemark_broker.http.admin_routes import AdminRoutes
from tidemark_broker.http.consumers import schemas as consumers
from tidemark_broker.http.group_routes import GroupRoutes, GroupsDocument
from tidemark_broker.http.operations import PATH_PARAMETERS, Operation, Parameter, RequestBody
from tidemark_broker.http.problems import PROBLEM_TYPE, HttpProblem, malformed
from tidemark_broker.http.response import ClientGone
from tidemark_broker.http.routes import Route
from tidemark_broker.http.validation_details import validation_detail

_PROBLEM = {PROBLEM_TYPE.decode(): {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
_STATUSES = {
    307: "Another broker is the leader or the preferred read replica: repeat it at Location",
    400: "Invalid request",
    403: "The client may not do this: `role` has the Role to write",
    404: "Unknown topic, partition, replica or consumer",
    409: "Conflict with the leader epoch, the producer's sequence or epoch, or the consumer",
    406: "No format of Accept can be sent",
    408: "The body did not arrive in time",
    413: "Too large",
    415: "Unsupported Content-Type",
    416: "Offset out of range",
    422: "Invalid record",
    429: "The quota of the client id is exceeded: try again after Retry-After",
    500: "Failed: `outcome` says whether records may be written",
    502: "The leader that records were forwarded to did not respond",
    503: "Not available: try again after Retry-After",
    504: "Not acknowledged within the timeout",
}


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


def create_api(admin: AdminRoutes, groups: GroupRoutes, hot: tuple[Route, ...]) -> FastAPI:
    api = BrokerApi(title="Tidemark broker", docs_url=None, redoc_url=None, redirect_slashes=False)
    for route in hot:
        if route.operation is not None:
            _describe(api, route, route.operation)
    partition_path = "/topics/{topic}/partitions/{partition}"
    for path, read, summary, statuses in (
        ("/topics", admin.list_topics, "List topics", ()),
        ("/topics/{topic}", admin.topic, "Get a topic", (403, 404)),
        ("/topics/{topic}/partitions", admin.partitions, "List partitions", (403, 404)),
        (partition_path, admin.partition, "Get a partition", (403, 404)),
        (
            f"{partition_path}/offsets",
            admin.offsets,
            "Get the offsets of a partition",
            (307, 403, 404, 503),
        ),
        (
            f"{partition_path}/replica",
            admin.replica,
            "Get the replica of this broker",
            (403, 404, 503),
        ),
        ("/brokers", admin.brokers, "List brokers", ()),
    ):
        api.add_api_route(path, read, methods=["GET"], summary=summary, responses=_errors(statuses))
    _add_pages(api, admin)
    api.add_api_route(
        "/groups",
        groups.groups,
        methods=["GET"],
        summary="List consumer groups",
        response_model=GroupsDocument,
    )
    api.add_api_route(
        "/metrics",
        admin.metrics,
        methods=["GET"],
        summary="Get metrics",
        response_class=PlainTextResponse,
        responses={200: {"description": "Prometheus text"}},
    )
    api.add_api_route(
        "/producers",
        admin.init_producer,
        methods=["POST"],
        summary="Get a producer id",
        responses=_errors((400, 413, 503)),
        openapi_extra=_producer_body(),
    )
    _use_problems(api)
    return api


def _add_pages(api: FastAPI, admin: AdminRoutes) -> None:
    for path in ("/", "/docs"):
        api.add_api_route(path, admin.start_page, methods=["GET"], include_in_schema=False)

    async def document() -> JSONResponse:
        return JSONResponse(api.openapi())

    for path in ("/openapi", "/openapi/v3"):  # the Strimzi bridge's names of it
        api.add_api_route(path, document, methods=["GET"], include_in_schema=False)


def _describe(api: FastAPI, route: Route, operation: Operation) -> None:
    """Register a hot route for the document and for 405. The dispatcher serves it."""
    names = re.findall("{([a-z]+)}", route.template)
    parameters = [_parameter(PATH_PARAMETERS[name], Path) for name in names]
    parameters += [_parameter(parameter, Query) for parameter in operation.query]
    success, body, extra = operation.success, operation.body, {}
    if body is not None:
        parameters.append(_body_parameter(body))
        extra = {"requestBody": {"content": dict(body.also)}} if body.also else {}
    responses = _errors(operation.errors)
    if success.also:
        responses[200] = {"content": dict(success.also)}

    async def not_found(**values: object) -> None:
        # Only a path with an encoded slash comes here: the dispatcher found no route for it.
        raise HTTPException(404)

    vars(not_found)["__signature__"] = inspect.Signature(parameters)
    api.add_api_route(
        route.template,
        not_found,
        name=operation.name,
        summary=operation.summary,
        description=inspect.cleandoc(operation.description),
        methods=[route.method],
        status_code=success.status,
        response_model=_model(success.model, is_list=success.is_list),
        responses=responses,
        openapi_extra=extra,
    )


def _parameter(parameter: Parameter, place: Callable[..., Any]) -> inspect.Parameter:
    return _keyword(parameter.name, parameter.type, place(parameter.default, **parameter.limits))


def _body_parameter(body: RequestBody) -> inspect.Parameter:
    if body.is_required:
        return _keyword("body", _model(body.model), Body(media_type=body.media_type))
    return _keyword("body", _model(body.model) | None, None)


def _keyword(name: str, annotation: Any, default: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


def _model(name: str, *, is_list: bool = False) -> Any:
    """Return the model of this name in schemas.py or consumers/schemas.py; None for ""."""
    module = consumers if name.startswith("consumers.") else documents
    model = getattr(module, name.rpartition(".")[2]) if name else None
    return GenericAlias(list, model) if is_list else model


def _errors(statuses: tuple[int, ...]) -> dict[int | str, dict[str, Any]]:
    return {status: {"description": _STATUSES[status], "content": _PROBLEM} for status in statuses}


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

    async def on_client_gone(request: Request, error: Exception) -> Response:
        return Response(status_code=400)  # for the metrics: no client reads it

    async def on_invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return await on_problem(request, malformed(validation_detail(error.errors()[0])))

    async def on_http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        detail = f"{request.method} {request.url.path[:200]}: {error.detail}: see /openapi.json"
        problem = HttpProblem(ErrorCode.INVALID_REQUEST, detail, status=error.status_code)
        response = await on_problem(request, problem)
        if error.status_code == 405:
            response.headers["allow"] = _allowed(api, request)
        return response

    api.add_exception_handler(HttpProblem, on_problem)
    api.add_exception_handler(ClientGone, on_client_gone)
    api.add_exception_handler(RequestValidationError, on_invalid)
    api.add_exception_handler(HTTPException, on_http_error)


def _allowed(api: FastAPI, request: Request) -> str:
    """Return all methods of the path (RFC 9110 15.5.6); Starlette names those of one route."""
    found: set[str] = set()
    for route in api.routes:
        if isinstance(route, routing.Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return ", ".join(sorted(found))
