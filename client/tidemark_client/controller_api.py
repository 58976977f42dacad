"""Read what only the active controller knows: its event log, and why a partition is as it is.

In local mode that is the controller's address. On Kubernetes the API server forwards the request to
the operator's pod (`pods/proxy`), so the reader's own permissions count and no port is opened; a
standby's 503 has the next pod asked.
"""

import argparse
from typing import Any, Protocol
from urllib.parse import urlencode

import msgspec

from tidemark_client.errors import EXIT_FAILED, EXIT_USAGE, CommandFailed
from tidemark_client.http_session import HttpSession, TimeLimits
from tidemark_client.kubernetes_objects import (
    CONTROLLER_PORT,
    PAGE_PORT,
    KubernetesObjects,
)
from tidemark_client.targets import find_target

EVENTS_PATH = "/v1/events"
WHY_PATH = "/v1/why"
PAGE_PATHS = "/v1/isr/"
FIGURES_PATH = PAGE_PATHS + "figures"
LIMITS = TimeLimits(30.0, 2.0)
STANDBY = 503
BAD_REQUEST = 400


class ControllerApi(Protocol):
    async def get(self, path: str, **query: object) -> dict[str, Any]:
        """Return the JSON of one of the controller's pages. Raises CommandFailed."""
        ...

    async def close(self) -> None: ...


async def open_controller(arguments: argparse.Namespace) -> ControllerApi:
    """Find the controller that these arguments name. Raises CommandFailed."""
    target = await find_target(arguments)
    if target.controller_url:
        return _AtAddress(target.controller_url)
    if target.is_kubernetes:
        return _BehindApiServer(
            await KubernetesObjects.connect(target.kube_context, arguments.namespace)
        )
    raise CommandFailed(
        f"No controller at {target.broker_urls[0]}.",
        expected="the address of a running controller, or a kubeconfig",
        found="no status of a controller there: a broker, or nothing that runs",
        to_do="name the address that `tidemark dev` prints as `controller`, or leave --server out",
        exit_code=EXIT_USAGE,
    )


class _AtAddress:
    def __init__(self, url: str) -> None:
        self._url = url
        self._session = HttpSession()

    async def get(self, path: str, **query: object) -> dict[str, Any]:
        url = self._url + _with_query(path, query)
        try:
            response = await self._session.get(url, LIMITS)
        except OSError as error:  # a timeout is one too
            raise CommandFailed(
                f"No response of the controller at {self._url}: {error}",
                to_do="check whether `tidemark dev` runs, and retry",
            ) from error
        return _document(response.status, response.body)

    async def close(self) -> None:
        await self._session.close()


class _BehindApiServer:
    def __init__(self, objects: KubernetesObjects) -> None:
        self._objects = objects

    async def get(self, path: str, **query: object) -> dict[str, Any]:
        status, body = STANDBY, b""
        port = PAGE_PORT if path.startswith(PAGE_PATHS) else CONTROLLER_PORT
        for namespace, pod in await self._objects.operator_pods():
            status, body = await self._objects.read_pod(
                namespace, pod, _with_query(path, query), port=port
            )
            if status != STANDBY:
                break
        return _document(status, body)

    async def close(self) -> None:
        await self._objects.__aexit__(None, None, None)


def _with_query(path: str, query: dict[str, object]) -> str:
    present = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(present)}" if present else path


def _document(status: int, body: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(body) if body else {}
    except msgspec.DecodeError:
        document = {}
    if status == 200 and isinstance(document, dict):
        return document
    problems = document.get("problems") if isinstance(document, dict) else None
    if problems:
        code = EXIT_USAGE if status == BAD_REQUEST else EXIT_FAILED
        raise CommandFailed(str(problems[0]), exit_code=code)
    raise CommandFailed(
        "The active controller gave no usable response.",
        expected="the controller's JSON with status 200",
        found=f"status {status}: {body[:200].decode(errors='replace') or 'no body'}",
        to_do="check with `tidemark status` that a controller is active",
    )
