"""Define a request as its handler gets it, and a handler as the listener knows it.

Decoded values are views of the frame. `retained_steps` copies what a request keeps while it waits
for its answer, so that it does not keep a frame that a client filled with unused bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tidemark_protocol.access_messages import ANONYMOUS, Principal

from tidemark_broker.kafka_wire.messages.api_versions import SupportedApi
from tidemark_broker.kafka_wire.messages.cooperative_steps import Steps
from tidemark_broker.kafka_wire.messages.frames import Buffers, RequestHeader
from tidemark_broker.kafka_wire.messages.primitives import MalformedFrame, Reader
from tidemark_broker.replication.follower_fetch import FollowerSession

NO_RESPONSE: Buffers = []


def _nothing() -> None:
    return None


def _nothing_of_it(retained_bytes: int) -> None:
    return None


def _at_once(part: Callable[[], None]) -> None:
    part()


@dataclass(slots=True, eq=False)
class KafkaRequest:
    """A request in work.

    `answer` is called once, maybe before `handle` returns, with a whole frame or NO_RESPONSE.
    `cancel` is called if the connection ends before; `fail` closes the connection. `on_hurry` is
    called when an answer with what there is is wanted, because its memory is needed; `is_hurried`
    says so to a handler that was not yet there to be called. `release` tells that the frame is no
    longer needed but that so many bytes are still held; it is called before the answer where that
    may take a while. `throttle_ms` is sent in the answer, and for so long nothing more is read from
    the client. `listener` is the name of the port it came in by, and `principal` is its sender.
    `measured` does a part of its work, which counts against the client's quota. `errors` are the
    error codes of the answer.
    """

    header: RequestHeader
    reader: Reader
    link: FollowerSession
    answer: Callable[[Buffers], None]
    fail: Callable[[str | MalformedFrame], None]
    client_host: str = ""
    listener: str = ""
    principal: Principal = ANONYMOUS
    throttle_ms: int = 0
    release: Callable[[int], None] = _nothing_of_it
    on_hurry: Callable[[], object] = _nothing
    is_hurried: bool = False
    errors: list[int] = field(default_factory=list)
    measured: Callable[[Callable[[], None]], None] = _at_once
    cancel: Callable[[], object] = field(default=_nothing)

    @property
    def version(self) -> int:
        return self.header.api_version

    @property
    def ends_when_hurried(self) -> bool:
        return self.on_hurry is not _nothing

    def hurry(self) -> None:
        self.is_hurried = True
        self.on_hurry()

    def end(self) -> None:
        """Drop the callbacks after the answer.

        They refer to the request, and such a cycle would keep the answer's records until the
        garbage collector runs.
        """
        self.on_hurry = self.cancel = _nothing
        self.measured = _at_once


@dataclass(frozen=True, slots=True)
class ApiHandler:
    """A handler of one API.

    With `overlaps` the next such request on the connection may begin before this one is answered;
    answers are sent in order all the same. One with `has_large_response` does not begin while
    clients leave too much unread. `handle` may raise MalformedFrame.
    """

    supported: SupportedApi
    handle: Callable[[KafkaRequest], None]
    overlaps: bool = False
    has_large_response: bool = False


OBJECT_BYTES = 64  # of a number, and of what a string is besides its letters
STRUCT_BYTES = 512
_SLOT_BYTES = 8


def retained_steps(value: Any) -> Steps[tuple[Any, int]]:
    """Return the same value without views, and about how many bytes it holds."""
    match value:
        case dict():
            struct: dict[str, Any] = {}
            held_bytes = STRUCT_BYTES
            for name, each in value.items():
                struct[name], more_bytes = yield from retained_steps(each)
                held_bytes += more_bytes
            return struct, held_bytes
        case tuple():
            elements = []
            held_bytes = OBJECT_BYTES
            for each in value:
                element, more_bytes = yield from retained_steps(each)
                elements.append(element)
                held_bytes += more_bytes + _SLOT_BYTES
                yield 1
            return tuple(elements), held_bytes
        case memoryview():
            return bytes(value), OBJECT_BYTES + len(value)
        case str():
            return value, OBJECT_BYTES + len(value)
        case _:
            return value, OBJECT_BYTES
