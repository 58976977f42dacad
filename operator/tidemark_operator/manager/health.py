"""Serve the operator's own port: liveness, readiness, metrics and the status of all pools.

Another port, on the pod's loopback address only, is for people who come by `kubectl port-forward`.
"""

import json
from collections.abc import Sequence

from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client.registry import Collector
from tidemark_protocol.controller_messages import encode

from tidemark_operator.controller.events_api import add_event_routes
from tidemark_operator.controller.http_api import STATUS_PATH, status_of
from tidemark_operator.controller.metrics import CONTENT_TYPE, exposition
from tidemark_operator.controller.service import ControllerService


def create_health_app(
    service: ControllerService,
    *more_metrics: Collector,
    middlewares: Sequence[Middleware],
) -> web.Application:
    """Return the application.

    A response shows that the main loop runs. The watch needs no probe: its end ends the process.
    """
    app = web.Application(client_max_size=1024, middlewares=middlewares)

    async def healthz(_: web.Request) -> web.Response:
        return _json({"leads": service.is_leading})

    async def readyz(_: web.Request) -> web.Response:
        """Answer 200 while this operator leads or knows the leader: a standby is ready too."""
        knows = service.is_leading or bool(service.leader_address)
        reason = "" if knows else "no leader found yet"
        return _json({"ready": knows, "reason": reason}, status=200 if knows else 503)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=await exposition(service, *more_metrics), headers={"Content-Type": CONTENT_TYPE}
        )

    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/metrics", metrics)
    add_status_route(app, service)
    return app


def create_people_app(
    service: ControllerService, *, middlewares: Sequence[Middleware]
) -> web.Application:
    """Return what people read of this operator; the live page's routes are added to it."""
    app = web.Application(client_max_size=1024, middlewares=middlewares)
    add_status_route(app, service)
    add_event_routes(app, service)
    return app


def add_status_route(app: web.Application, service: ControllerService) -> None:
    async def status(_: web.Request) -> web.Response:
        return web.Response(body=encode(await status_of(service)), content_type="application/json")

    app.router.add_get(STATUS_PATH, status)


def _json(value: dict[str, object], status: int = 200) -> web.Response:
    return web.Response(text=json.dumps(value), content_type="application/json", status=status)
