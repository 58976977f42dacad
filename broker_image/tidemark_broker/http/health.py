"""Serve health and readiness, whatever the state of the broker."""

import msgspec

from tidemark_broker.http.broker_view import BrokerView
from tidemark_broker.http.problems import with_previous_names
from tidemark_broker.http.request import Request
from tidemark_broker.http.response import Response


class HealthRoutes:
    def __init__(self, view: BrokerView) -> None:
        self._view = view

    async def healthz(self, request: Request) -> Response:
        """Return the broker's id, incarnation and pool, which the controller's probe compares.

        A different incarnation is not the registered broker (rule S19).
        """
        view = self._view
        body = {"broker_id": view.broker_id, "incarnation": view.incarnation, "pool": view.pool}
        return Response(200, msgspec.json.encode(with_previous_names(body)))

    async def readyz(self, request: Request) -> Response:
        """Return 200 when the broker serves, else 503 with the reason."""
        is_ready, reason = self._view.is_ready()
        body = {"ready": is_ready, "reason": reason}
        return Response(200 if is_ready else 503, msgspec.json.encode(body))
