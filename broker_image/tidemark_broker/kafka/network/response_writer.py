"""Decode, answer and encode requests that are defined by a table of fields.

Large ones run in slices (fair_queue.py). Those whose answer takes a while run as tasks that end
with their connection.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from tidemark_broker.kafka.network.fair_queue import FairQueue
from tidemark_broker.kafka.network.memory_pool import SMALL_FRAME_BYTES
from tidemark_broker.kafka.network.request import ApiHandler, KafkaRequest, retained_steps
from tidemark_broker.kafka_wire.messages.api_versions import SupportedApi
from tidemark_broker.kafka_wire.messages.cooperative_steps import Steps
from tidemark_broker.kafka_wire.messages.frames import Buffers
from tidemark_broker.kafka_wire.messages.schema import Api, Values

Respond = Callable[[KafkaRequest, Values], Values]
RespondLater = Callable[[KafkaRequest, Values], Awaitable[Values]]

_log = logging.getLogger(__name__)


class AccessCheck(Protocol):
    """The check of what a request's principal may do (kafka/apis/access_check.py)."""

    def is_checked(self, request: KafkaRequest) -> bool:
        """Return whether the request came in by a listener whose clients have names."""
        ...

    async def respond(
        self, api: Api, request: KafkaRequest, requested: Values, respond: RespondLater
    ) -> Values:
        """Return the response, of which `respond` makes what is allowed."""
        ...


class ResponseWriter:
    def __init__(self, access: AccessCheck) -> None:
        self.turns = FairQueue()
        self._access = access
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def sync_handler(self, api: Api, respond: Respond) -> ApiHandler:
        """Return a handler that answers with what `respond` returns.

        Where that may be much, its arrays are `Each`, whose elements are looked up in slices too.
        """

        def steps(request: KafkaRequest) -> Steps[Buffers]:
            requested = yield from api.request_steps(request.reader, request.version)
            return (yield from _response_steps(api, request, respond(request, requested)))

        async def respond_later(request: KafkaRequest, requested: Values) -> Values:
            return respond(request, requested)

        checked = self.async_handler(api, respond_later).handle

        def handle(request: KafkaRequest) -> None:
            if self._access.is_checked(request):
                checked(request)
                return
            work = self.turns.take(request, steps(request), request.answer)
            if not work.is_over:
                request.cancel = work.cancel

        return ApiHandler(_supported(api), handle)

    def async_handler(self, api: Api, respond: RespondLater) -> ApiHandler:
        """Return a handler that answers when `respond` has waited for what it needs."""

        def begin(request: KafkaRequest, requested: Values) -> None:
            self.start(request, self._run(api, request, respond, requested))

        def handle(request: KafkaRequest) -> None:
            steps = _requested_steps(api, request)
            work = self.turns.take(request, steps, lambda requested: begin(request, requested))
            if not work.is_over:
                request.cancel = work.cancel

        return ApiHandler(_supported(api), handle)

    def start(self, request: KafkaRequest, work: Coroutine[Any, Any, None]) -> None:
        """Start the work of a request as a task that ends with the request's connection."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        request.cancel = task.cancel

    async def _run(
        self, api: Api, request: KafkaRequest, respond: RespondLater, requested: Values
    ) -> None:
        try:
            if self._access.is_checked(request):
                values = await self._access.respond(api, request, requested, respond)
            else:
                values = await respond(request, requested)
            request.measured(lambda: self._answer(api, request, values))
        except Exception as error:
            _log.exception("request failed", extra={"api": api.name})
            request.fail(f"{api.name}: {error}")

    def _answer(self, api: Api, request: KafkaRequest, values: Values) -> None:
        work = self.turns.take(request, _response_steps(api, request, values), request.answer)
        if not work.is_over:
            request.cancel = work.cancel


def _supported(api: Api) -> SupportedApi:
    return SupportedApi(api.api_key, api.min_version, api.max_version)


def _requested_steps(api: Api, request: KafkaRequest) -> Steps[Values]:
    """Decode a request that waits for others; meanwhile it holds its values, not its frame."""
    frame_bytes = request.reader.end
    requested = yield from api.request_steps(request.reader, request.version)
    if frame_bytes > SMALL_FRAME_BYTES:
        requested, retained_bytes = yield from retained_steps(requested)
        request.release(retained_bytes)
    return requested


def _response_steps(api: Api, request: KafkaRequest, values: Values) -> Steps[Buffers]:
    header = request.header
    if request.throttle_ms:
        values = values | {"throttle_time_ms": request.throttle_ms}
    return api.response_steps(header.correlation_id, header.api_version, values, request.errors)
