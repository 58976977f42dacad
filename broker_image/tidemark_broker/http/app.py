"""Build the ASGI application of a broker.

A front dispatcher serves the hot routes (produce, records) and health before FastAPI sees them; all
others are FastAPI's (openapi.py), which is loaded later. There is no middleware: limits, problems,
metrics and errors of hot routes are here. A hot request costs tens of microseconds, FastAPI's own
path three times that.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.http.admission import Admission, HttpQuotas
from tidemark_broker.http.authentication import OPEN_PATHS, HttpAuthentication
from tidemark_broker.http.broker_view import BrokerView
from tidemark_broker.http.consumers.routes import ConsumerRoutes
from tidemark_broker.http.fetch import FetchRoute
from tidemark_broker.http.forwarding import Forwarder
from tidemark_broker.http.health import HealthRoutes
from tidemark_broker.http.limits import HttpLimits
from tidemark_broker.http.problems import HttpProblem
from tidemark_broker.http.produce import ProduceRoute
from tidemark_broker.http.request import Request, count_use
from tidemark_broker.http.request_metrics import RequestMetrics
from tidemark_broker.http.response import (
    AnyResponse,
    AsgiApp,
    ClientGone,
    Message,
    Receive,
    Scope,
    Send,
)
from tidemark_broker.http.routes import Route, RouteTable, hot_routes
from tidemark_broker.quota_manager import QuotaType

__all__ = ["AsgiApp", "HttpServer", "create_app"]

logger = logging.getLogger(__name__)

CLIENT_GONE_STATUS = 499  # only /metrics shows it
DEFAULT_LIMITS = HttpLimits()


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def create_app(
    broker_view: BrokerView,
    *,
    limits: HttpLimits = DEFAULT_LIMITS,
    clock_ms: Callable[[], int] = wall_clock_ms,
) -> "HttpServer":
    """Return the HTTP API of one broker, for `server.serve`; `clock_ms` dates records."""
    return HttpServer(broker_view, limits, clock_ms)


def _load_api(
    view: BrokerView,
    limits: HttpLimits,
    metrics: RequestMetrics,
    admission: Admission,
    routes: tuple[Route, ...],
) -> AsgiApp:
    # Imported here, in a worker thread: FastAPI takes longer than all else that a broker loads to
    # start, and neither records nor health wait for it.
    from tidemark_broker.http.admin_routes import AdminRoutes
    from tidemark_broker.http.group_routes import GroupRoutes
    from tidemark_broker.http.openapi import create_api

    return create_api(AdminRoutes(view, limits, metrics, admission), GroupRoutes(view), routes)


class HttpServer:
    def __init__(self, view: BrokerView, limits: HttpLimits, clock_ms: Callable[[], int]) -> None:
        self._limits = limits
        self._admission = Admission(limits)
        self._metrics = RequestMetrics()
        self._forwarder = Forwarder(view.broker_id, view.addresses)
        self._quotas = HttpQuotas(view.quotas)
        self._consumers = ConsumerRoutes(view, limits, self._admission)
        self._table = RouteTable(
            hot_routes(
                ProduceRoute(view, limits, self._forwarder, clock_ms),
                FetchRoute(view, limits, self._admission, self._quotas),
                self._consumers,
                HealthRoutes(view),
            )
        )
        self._authentication = (
            None
            if view.authenticator is None
            else HttpAuthentication(
                view.authenticator,
                view.requires_authentication,
                view.rejections,
                may=view.may_authenticate,
                client_of=view.client_of,
            )
        )
        self._view = view
        self._api: AsgiApp | None = None
        self._api_loading: asyncio.Future[AsgiApp] | None = None

    def load_api(self) -> "asyncio.Future[AsgiApp]":
        """Start to import FastAPI and to build its routes in a worker thread; do this once."""
        if self._api_loading is None:
            loading = asyncio.to_thread(
                _load_api,
                self._view,
                self._limits,
                self._metrics,
                self._admission,
                self._table.routes,
            )
            self._api_loading = asyncio.ensure_future(loading)
        return self._api_loading

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            found = self._table.find(scope["method"], scope)
            if found is not None:
                return await self._serve(*found, scope, receive, send)
            if scope["method"] == "HEAD" and self._table.find("GET", scope) is None:
                # As a GET (RFC 9110 9.3.2): the server sends no body in response to HEAD. Not so
                # for records: a read may last, and a poll has an effect.
                scope = {**scope, "method": "GET"}
            return await self._serve_admin(scope, receive, send)
        if scope["type"] == "lifespan":
            return await self._live(receive, send)
        raise ValueError(f"expected an http or lifespan scope, found {scope['type']}")

    async def _serve(
        self, route: Route, parameters: list[str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        started = time.perf_counter()
        expires_at_s: float | None = None
        request = Request(scope, receive)
        body_bytes = 0
        response: AnyResponse | None
        try:
            if self._authentication is not None:
                expires_at_s = await self._authentication.authenticate(scope)
                request = Request(scope, receive)
            if scope["path"] not in OPEN_PATHS:
                count_use(scope, self._view.client_connections)
            if route.is_limited:
                if route.is_produce:
                    body_bytes = request.body_bytes_at_most(self._limits)
                self._admission.enter(body_bytes)
        except HttpProblem as problem:
            response = problem.answer(request.path, is_produce=route.is_produce)
        else:
            try:
                response = await self._answer(route, parameters, request)
            finally:
                if route.is_limited:
                    self._admission.leave(body_bytes)
        status = CLIENT_GONE_STATUS
        if response is not None:
            status = response.status
            self._admission.bytes_in_flight += len(response.body)
            try:
                if expires_at_s is None:
                    await response.send_to(send)
                else:
                    await _send_until(expires_at_s, response, send)
            finally:
                self._admission.bytes_in_flight -= len(response.body)
        self._metrics.observe(route.metric, status, time.perf_counter() - started)

    async def _answer(
        self, route: Route, parameters: list[str], request: Request
    ) -> AnyResponse | None:
        """Handle a hot request; only a cancellation is raised beyond it."""
        try:
            if self._view.access.is_checked(request):
                await self._view.access.check_route(
                    request, route.method, route.template, parameters
                )
            if route.is_produce:
                self._quotas.require(request, QuotaType.PRODUCE_BYTES)
            return await route.endpoint(request, *parameters)
        except HttpProblem as problem:
            return problem.answer(request.path, is_produce=route.is_produce)
        except ClientGone:
            return None
        except Exception:
            logger.exception("http request failed", extra={"route": route.metric})
            unexpected = HttpProblem(
                ErrorCode.UNKNOWN_SERVER_ERROR, "unexpected error: see the log of this broker"
            )
            return unexpected.answer(request.path, is_produce=route.is_produce)
        finally:
            if request.body_size_bytes and route.is_produce:
                self._quotas.note(request, QuotaType.PRODUCE_BYTES, request.body_size_bytes)

    async def _serve_admin(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        status = 500

        async def send_and_record(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if self._authentication is not None:
                await self._authentication.authenticate(scope)
            if scope["path"] not in OPEN_PATHS:
                count_use(scope, self._view.client_connections)
            if self._api is None:
                # Shielded: one client that leaves does not end the loading for the others.
                self._api = await asyncio.shield(self.load_api())
            request = Request(scope, receive)
            if self._view.access.is_checked(request):
                try:
                    await self._view.access.check_path(request, scope)
                except HttpProblem as problem:
                    denied = problem.answer(request.path, is_produce=False)
                    await denied.send_to(send_and_record)
                    return
            await self._api(scope, receive, send_and_record)
        except HttpProblem as problem:  # of the authentication: FastAPI answers its own
            path = Request(scope, receive).path
            await problem.answer(path, is_produce=False).send_to(send_and_record)
        finally:
            self._metrics.observe("admin", status, time.perf_counter() - started)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message: Any = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self._consumers.instances.close()
                await self._forwarder.close()
                await send({"type": "lifespan.shutdown.complete"})
                return


async def _send_until(expires_at_s: float, response: AnyResponse, send: Send) -> None:
    """Send a response; one that lasts breaks off when the client's token expires."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(expires_at_s):
            await response.send_to(send)
