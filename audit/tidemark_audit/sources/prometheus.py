"""Read from a running Prometheus, by remote read or else by range selectors of its HTTP API.

Samples are raw either way (a range query would resample them). The window is divided into slices of
about two million samples; a server that finds one too large is asked for its halves. `http_server`
decides about retries.
"""

import itertools
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path

import msgspec

from tidemark_audit.aggregation.samples import SampleBatch
from tidemark_audit.metrics.families import READ_NAMES, BadLabels
from tidemark_audit.sources import remote_read, remote_read_samples
from tidemark_audit.sources.batches import BATCH_SAMPLES, MOST_RESPONSE_SAMPLES, BatchBuilder
from tidemark_audit.sources.http_server import (
    NoServerResponse,
    Response,
    RetryPolicy,
    Server,
    TooLarge,
)
from tidemark_audit.sources.json_lines import series_of
from tidemark_audit.sources.protobuf import BadMessage
from tidemark_audit.sources.remote_read import (
    SAMPLES,
    STREAMED_XOR_CHUNKS,
    Corrupt,
    UnsupportedEncoding,
)
from tidemark_audit.sources.source import Slice, SourceError, Window

SHORTEST_SLICE_MS = 60_000
LOOKS = 4  # moments at which series are counted
LOOK_MS = 600_000  # by which the scrape interval is guessed
NAMES = "|".join(sorted(READ_NAMES))
SELECTOR = f'{{__name__=~"{NAMES}"}}'
READ_PATH, QUERY_PATH = "/api/v1/read", "/api/v1/query"
GUESSED_SERIES = 1000  # where the server knows of none
SAMPLES_OF_A_KEY = 40  # a series' labels take as much memory as so many samples
REFUSED = (0, 401, 403)  # that no other way to ask would mend; 0: nothing was said in HTTP


class SampleFormat(Enum):
    """Name the formats in which a server returns samples, the best first."""

    STREAMED = auto()
    SAMPLES = auto()
    API = auto()


@dataclass(frozen=True, slots=True)
class PrometheusSlice:
    server: Server
    start_ms: int
    end_ms: int
    form: SampleFormat

    @property
    def place(self) -> str:
        return f"{self.server.url} from {self.start_ms} to {self.end_ms} ms"

    def read(self) -> Iterator[SampleBatch]:
        """Yield batches; each response is complete before any of it is used."""
        try:
            yield from self._read_once()
        except UnsupportedEncoding:
            yield from replace(self, form=SampleFormat.SAMPLES).read()
        except TooLarge as error:
            middle = (self.start_ms + self.end_ms) // 2
            if middle - self.start_ms < SHORTEST_SLICE_MS:
                raise self._failed("responses of this size", str(error)) from error
            yield from replace(self, end_ms=middle).read()
            yield from replace(self, start_ms=middle).read()

    def _read_once(self) -> list[SampleBatch]:
        try:
            if self.form is SampleFormat.API:
                return [self._of_document(self.server.ask(QUERY_PATH, self._query(), {}, _whole))]
            accepted: tuple[int, ...] = (SAMPLES,)
            if self.form is SampleFormat.STREAMED:
                accepted = (STREAMED_XOR_CHUNKS, SAMPLES)
            body = remote_read.request_body(self.start_ms, self.end_ms - 1, NAMES, accepted)
            return self.server.ask(READ_PATH, body, read_headers(), _batches)
        except (BadMessage, Corrupt, BadLabels) as error:
            raise self._failed("a complete response of Prometheus", str(error)) from error

    def _query(self) -> bytes:
        # Closed ranges (2.x) and left-open ones (3.x) both hold [start, end) of this; we cut again.
        length = self.end_ms - self.start_ms + 1
        requested = {"query": f"{SELECTOR}[{length}ms]", "time": f"{(self.end_ms - 1) / 1000:.3f}"}
        return urllib.parse.urlencode(requested).encode()

    def _of_document(self, document: bytes) -> SampleBatch:
        builder = BatchBuilder()
        for key, at_ms, values in series_of(document, self.place):
            inside = (at_ms >= self.start_ms) & (at_ms < self.end_ms)
            builder.add(key, at_ms[inside], values[inside])
        return builder.take()

    def _failed(self, expected: str, found: str) -> SourceError:
        return SourceError(
            self.place,
            expected=expected,
            found=found,
            to_do="check the log and the limits of Prometheus (query.max-samples,"
            " storage.remote.read-*-limit)",
        )


@dataclass(frozen=True, slots=True)
class Prometheus:
    url: str
    token: str = ""
    is_live: bool = True
    patience: RetryPolicy = RetryPolicy()

    @property
    def place(self) -> str:
        return self.url

    @property
    def kind(self) -> str:
        return "Prometheus"

    def slices(self, window: Window) -> Sequence[Slice]:
        if window.start_ms is None or window.end_ms is None:
            raise SourceError(
                self.url,
                expected="a window",
                found="none",
                to_do="use --window, or --start and --end",
            )
        whole = self._whole(window.start_ms, window.end_ms)
        length = window.end_ms - window.start_ms
        samples = _series(whole) * length / _interval_ms(whole)
        count = max(1, min(-(-int(samples) // BATCH_SAMPLES), length // SHORTEST_SLICE_MS or 1))
        borders = [window.start_ms + length * number // count for number in range(count + 1)]
        return [
            replace(whole, start_ms=start, end_ms=end) for start, end in itertools.pairwise(borders)
        ]

    def histogram_series(self) -> int:
        return 0  # only families that the audit reads are looked for

    def ends_ms(self) -> int | None:
        return None

    def first_batch(self, window: Window) -> SampleBatch | None:
        end_ms = int(time.time() * 1000) if window.end_ms is None else window.end_ms
        start_ms = end_ms - LOOK_MS if window.start_ms is None else window.start_ms
        return _look(self._whole(start_ms, end_ms))

    def _whole(self, start_ms: int, end_ms: int) -> PrometheusSlice:
        """Return the window as one slice, in the best format that the server supports.

        Raises SourceError.
        """
        server = Server(self.url, self.token, self.patience)
        # Of a moment of which there is nothing.
        body = remote_read.request_body(0, 1, NAMES, (STREAMED_XOR_CHUNKS, SAMPLES))
        form = SampleFormat.API
        try:
            said = server.ask(READ_PATH, body, read_headers(), lambda answer: answer.content_type)
        except NoServerResponse as error:
            if error.status in REFUSED:
                raise
        except TooLarge:
            pass
        else:
            form = _FORMS.get(said, SampleFormat.API)
        return PrometheusSlice(replace(server, has_responded=True), start_ms, end_ms, form)


_FORMS = {
    remote_read.CONTENT_TYPE: SampleFormat.STREAMED,
    remote_read_samples.CONTENT_TYPE: SampleFormat.SAMPLES,
}


def _whole(answer: Response) -> bytes:
    return answer.whole()


def _batches(answer: Response) -> list[SampleBatch]:
    """Decode a response.

    Raises BadMessage, Damaged, BadLabels, UnsupportedEncoding, TooLarge, and what `Response.read`
    raises.
    """
    form = _FORMS.get(answer.content_type)
    if form is SampleFormat.STREAMED:
        return list(within_memory(remote_read.batches(answer)))
    if form is SampleFormat.SAMPLES:
        return [remote_read_samples.batch_of(answer.whole())]
    raise Corrupt(f"a response of type {answer.content_type!r}")


def within_memory(batches: Iterator[SampleBatch]) -> Iterator[SampleBatch]:
    """Yield batches up to a limit.

    Raises TooLarge for a wrong or hostile server that never stops sending.
    """
    held = 0
    for batch in batches:
        held += len(batch) + SAMPLES_OF_A_KEY * len(batch.series)
        if held > MOST_RESPONSE_SAMPLES:
            raise TooLarge(f"a response of more than {MOST_RESPONSE_SAMPLES} samples")
        yield batch


def _look(whole: PrometheusSlice) -> SampleBatch | None:
    """Return some samples from the end of the window, or else from its beginning."""
    length = min(LOOK_MS, whole.end_ms - whole.start_ms)
    for start_ms in (whole.end_ms - length, whole.start_ms):
        for batch in replace(whole, start_ms=start_ms, end_ms=start_ms + length).read():
            if len(batch):
                return batch
    return None


def _interval_ms(whole: PrometheusSlice) -> int:
    from tidemark_audit.aggregation.samples import DEFAULT_INTERVAL_MS, typical_step_ms

    batch = _look(whole)
    return (typical_step_ms(batch) if batch else None) or DEFAULT_INTERVAL_MS


class _Count(msgspec.Struct):
    value: tuple[float, str]


class _Vector(msgspec.Struct):
    result: list[_Count]


class _Counted(msgspec.Struct):
    data: _Vector


def _series(whole: PrometheusSlice) -> int:
    """Return the largest number of series at some moments of the window, or a guess.

    Slices are sized by it. A cluster may be gone at the window's end.
    """
    length = whole.end_ms - whole.start_ms
    moments = (whole.end_ms - length * part // LOOKS for part in range(LOOKS))
    return max(_series_at(whole, at_ms) for at_ms in moments) or GUESSED_SERIES


def _series_at(whole: PrometheusSlice, at_ms: int) -> int:
    requested = {"query": f"count({SELECTOR})", "time": f"{at_ms / 1000:.3f}"}
    try:
        document = whole.server.ask(
            QUERY_PATH, urllib.parse.urlencode(requested).encode(), {}, _whole
        )
        result = msgspec.json.decode(document, type=_Counted).data.result
        return max(1, int(float(result[0].value[1]))) if result else 0
    except TooLarge:
        return 0  # slices that are too large are asked for in halves
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise SourceError(
            whole.server.url + QUERY_PATH,
            expected="a count of series",
            found=f"{document[:100]!r} ({error})",
            to_do="check that the address is that of Prometheus, without a login page",
        ) from error


def read_headers() -> Mapping[str, str]:
    return {
        "Content-Type": "application/x-protobuf",
        "Content-Encoding": "snappy",
        "X-Prometheus-Remote-Read-Version": "0.1.0",
    }


def prometheus_at(url: str, token_file: Path | None) -> Prometheus:
    """Return the source at a URL.

    Raises SourceError.
    """
    try:
        token = "" if token_file is None else token_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(
            str(token_file),
            expected="a file with a bearer token",
            found=str(error),
            to_do="check --token-file",
        ) from error
    return Prometheus(url.rstrip("/"), token)
