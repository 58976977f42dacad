"""A request as its handler gets it, and the handler as the listener knows it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tidemark_broker.runtime.replica_fetches import FollowerLink
from tidemark_broker.wire.api_versions import SupportedApi
from tidemark_broker.wire.frames import Buffers, RequestHeader
from tidemark_broker.wire.primitives import MalformedFrame, Reader

NO_ANSWER: Buffers = []


def _nothing() -> None:
    return None


def _nothing_of_it(kept_bytes: int) -> None:
    return None


def _at_once(part: Callable[[], None]) -> None:
    part()


@dataclass(slots=True, eq=False)
class KafkaRequest:
    """`answer` is called once, maybe before `handle` returns, with a whole frame or NO_ANSWER.
    `cancel` is called if the connection ends before; `fail` closes the connection. `hurry` asks for
    an answer with what there is: its memory is wanted. `release`: the frame is no longer needed,
    but so many bytes are still held; it is said before the answer where that may take a while.
    `throttle_ms`: told in the answer; for so long nothing more is read of the client. `listener`:
    by whose port it came in. `measured` does a part of its work, which counts against the client's
    quota."""

    header: RequestHeader
    reader: Reader
    link: FollowerLink
    answer: Callable[[Buffers], None]
    fail: Callable[[str | MalformedFrame], None]
    client_host: str = ""
    listener: str = ""
    throttle_ms: int = 0
    release: Callable[[int], None] = _nothing_of_it
    hurry: Callable[[], object] = _nothing
    measured: Callable[[Callable[[], None]], None] = _at_once
    cancel: Callable[[], object] = field(default=_nothing)

    @property
    def version(self) -> int:
        return self.header.api_version

    def end(self) -> None:
        """Answered. Whoever was to be told of its end knows it too: such a circle would hold the
        answer's records until Python looks for circles."""
        self.hurry = self.cancel = _nothing
        self.measured = _at_once


@dataclass(frozen=True, slots=True)
class ApiHandler:
    """`overlaps`: the next request with this flag on its connection may begin before this one is
    answered; answers go out in order all the same. `has_large_answer`: not begun while clients
    leave too much unread. `handle` may raise MalformedFrame."""

    supported: SupportedApi
    handle: Callable[[KafkaRequest], None]
    overlaps: bool = False
    has_large_answer: bool = False
