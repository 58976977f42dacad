"""A request as its handler gets it, and the handler as the listener knows it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tidemark_broker.runtime.replica_fetches import FollowerLink
from tidemark_broker.wire.api_versions import SupportedApi
from tidemark_broker.wire.frames import Buffers, RequestHeader
from tidemark_broker.wire.primitives import Reader
from tidemark_broker.wire.tables import Api, Values

NO_ANSWER: Buffers = []

_log = logging.getLogger(__name__)


def _nothing() -> None:
    return None


@dataclass(slots=True, eq=False)
class KafkaRequest:
    """`answer` is called once, maybe before `handle` returns, with a whole frame or NO_ANSWER.
    `cancel` is called if the connection ends before; `fail` closes the connection. `hurry` asks for
    an answer with what there is: its memory is wanted. `release`: the frame is no longer needed,
    which is said before the answer where that may take a while. `throttle_ms`: told in the answer;
    for so long nothing more is read of the client. `listener`: by whose port it came in."""

    header: RequestHeader
    reader: Reader
    link: FollowerLink
    answer: Callable[[Buffers], None]
    fail: Callable[[str], None]
    client_host: str = ""
    listener: str = ""
    throttle_ms: int = 0
    release: Callable[[], None] = _nothing
    hurry: Callable[[], object] = _nothing
    cancel: Callable[[], object] = field(default=_nothing)

    @property
    def version(self) -> int:
        return self.header.api_version

    def end(self) -> None:
        """Answered. Whoever was to be told of its end knows it too: such a circle would hold the
        answer's records until Python looks for circles."""
        self.hurry = self.cancel = _nothing


@dataclass(frozen=True, slots=True)
class ApiHandler:
    """`overlaps`: the next request with this flag on its connection may begin before this one is
    answered; answers go out in order all the same. `has_large_answer`: not begun while clients
    leave too much unread. `handle` may raise MalformedFrame."""

    supported: SupportedApi
    handle: Callable[[KafkaRequest], None]
    overlaps: bool = False
    has_large_answer: bool = False


Respond = Callable[[KafkaRequest, Values], Values]
RespondLater = Callable[[KafkaRequest, Values], Awaitable[Values]]


def table_handler(api: Api, respond: Respond) -> ApiHandler:
    """Decodes, answers with what `respond` gives, encodes."""

    def handle(request: KafkaRequest) -> None:
        values = api.decode_request(request.reader, request.version)
        _answer(api, request, respond(request, values))

    return ApiHandler(SupportedApi(api.api_key, api.min_version, api.max_version), handle)


class Answering:
    """Requests whose answer takes a while, as tasks that end with their connection."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def table_handler(self, api: Api, respond: RespondLater) -> ApiHandler:
        def handle(request: KafkaRequest) -> None:
            values = api.decode_request(request.reader, request.version)
            task = asyncio.get_running_loop().create_task(self._run(api, request, respond, values))
            self._tasks[task] = None
            task.add_done_callback(lambda done: self._tasks.pop(done, None))
            request.cancel = task.cancel

        return ApiHandler(SupportedApi(api.api_key, api.min_version, api.max_version), handle)

    async def _run(
        self, api: Api, request: KafkaRequest, respond: RespondLater, values: Values
    ) -> None:
        try:
            answer = await respond(request, values)
        except Exception as error:
            _log.exception("a request could not be answered", extra={"api": api.name})
            request.fail(f"{api.name}: {error}")
            return
        _answer(api, request, answer)


def _answer(api: Api, request: KafkaRequest, values: Values) -> None:
    header = request.header
    if request.throttle_ms:
        values = values | {"throttle_time_ms": request.throttle_ms}
    request.answer(api.encode_response(header.correlation_id, header.api_version, values))
