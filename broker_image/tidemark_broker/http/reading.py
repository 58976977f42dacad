"""Who reads which partition over HTTP, and what is said of the log beside its records."""

from dataclasses import dataclass

from tidemark_broker.http.queries import FetchQuery
from tidemark_broker.http.requests import Request
from tidemark_broker.runtime.results import FetchResult


@dataclass(frozen=True, slots=True)
class Reading:
    """One client at one partition."""

    request: Request
    topic: str
    partition: int
    query: FetchQuery


def positions(result: FetchResult, next_offset: int) -> tuple[tuple[bytes, bytes], ...]:
    """The headers that say where the log is and where to go on."""
    topic_id = ((b"tidemark-topic-id", result.topic_id.encode()),) if result.topic_id else ()
    return (
        *topic_id,
        (b"tidemark-high-watermark", b"%d" % result.high_watermark),
        (b"tidemark-log-start-offset", b"%d" % result.log_start_offset),
        (b"tidemark-next-offset", b"%d" % next_offset),
    )
