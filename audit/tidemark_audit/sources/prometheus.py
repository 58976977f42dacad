"""A running Prometheus: remote read where it is spoken, else range selectors of its HTTP API.

Samples are raw either way (a range query would re-sample them). The window is cut into slices of
about two million samples; a server that finds one too large (422) is asked for its halves, one
that is busy (429, 503, a timeout) again after a pause, five times at most.
"""

import http.client
import itertools
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, cast

from tidemark_audit.families import READ_NAMES, BadLabels
from tidemark_audit.kernel.samples import SampleBatch
from tidemark_audit.sources import remote_read
from tidemark_audit.sources.batches import BATCH_SAMPLES, BatchBuilder
from tidemark_audit.sources.json_lines import series_of
from tidemark_audit.sources.remote_read import Damaged, NotSpoken
from tidemark_audit.sources.source import Slice, SourceError, Window

TIMEOUT_SECONDS = 120.0
PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0)
SHORTEST_SLICE_MS = 60_000
LOOK_MS = 600_000  # by which the scrape interval is guessed
NAMES = "|".join(sorted(READ_NAMES))
SELECTOR = f'{{__name__=~"{NAMES}"}}'
BUSY = (429, 500, 502, 503, 504)
TOO_LARGE = (422, 413)


class _TooLarge(Exception):
    """The server would rather answer for less."""


@dataclass(frozen=True, slots=True)
class PrometheusSlice:
    url: str
    token: str
    start_ms: int
    end_ms: int
    speaks_remote_read: bool

    @property
    def place(self) -> str:
        return f"{self.url} from {self.start_ms} to {self.end_ms} ms"

    def read(self) -> Iterator[SampleBatch]:
        try:
            # Whole before it is handed on: an answer that breaks off may be asked for in halves.
            yield from list(self._read_once())
        except _TooLarge as error:
            middle = (self.start_ms + self.end_ms) // 2
            if middle - self.start_ms < SHORTEST_SLICE_MS:
                raise self._failed("answers of this size", str(error)) from error
            yield from replace(self, end_ms=middle).read()
            yield from replace(self, start_ms=middle).read()

    def _read_once(self) -> Iterator[SampleBatch]:
        try:
            if self.speaks_remote_read:
                yield from self._by_remote_read()
            else:
                yield from self._by_api()
        except (Damaged, BadLabels, NotSpoken) as error:
            raise self._failed("an answer of Prometheus, whole", str(error)) from error

    def _by_remote_read(self) -> Iterator[SampleBatch]:
        body = remote_read.request_body(self.start_ms, self.end_ms - 1, NAMES)
        with _open(self, "/api/v1/read", body, remote_read_headers()) as answer:
            yield from remote_read.batches(cast(BinaryIO, answer))

    def _by_api(self) -> Iterator[SampleBatch]:
        # Closed ranges (2.x) and left-open ones (3.x) both hold [start, end) of this; we cut again.
        length = self.end_ms - self.start_ms + 1
        asked = {"query": f"{SELECTOR}[{length}ms]", "time": f"{(self.end_ms - 1) / 1000:.3f}"}
        body = urllib.parse.urlencode(asked).encode()
        with _open(self, "/api/v1/query", body, {}) as answer:
            document = answer.read()
        builder = BatchBuilder()
        for key, at_ms, values in series_of(document, self.place):
            inside = (at_ms >= self.start_ms) & (at_ms < self.end_ms)
            builder.add(key, at_ms[inside], values[inside])
        yield builder.take()

    def _failed(self, expected: str, found: str) -> SourceError:
        return SourceError(
            self.place,
            expected=expected,
            found=found,
            to_do="look at Prometheus's log, and at its limits (query.max-samples,"
            " storage.remote.read-*-limit)",
        )


@dataclass(frozen=True, slots=True)
class Prometheus:
    url: str
    token: str = ""
    is_live: bool = True

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
                to_do="say --window, or --start and --end",
            )
        whole = PrometheusSlice(
            self.url, self.token, window.start_ms, window.end_ms, self._speaks_remote_read()
        )
        length = window.end_ms - window.start_ms
        samples = self._series(window.end_ms) * length / max(1, self._interval_ms(window.end_ms))
        count = max(1, min(-(-int(samples) // BATCH_SAMPLES), length // SHORTEST_SLICE_MS or 1))
        borders = [window.start_ms + length * number // count for number in range(count + 1)]
        return [
            replace(whole, start_ms=start, end_ms=end) for start, end in itertools.pairwise(borders)
        ]

    def first_batch(self) -> SampleBatch | None:
        end_ms = int(time.time() * 1000)
        return self._look(end_ms)

    def _look(self, end_ms: int) -> SampleBatch | None:
        part = PrometheusSlice(
            self.url, self.token, end_ms - LOOK_MS, end_ms, self._speaks_remote_read()
        )
        return next(iter(part.read()), None)

    def _interval_ms(self, end_ms: int) -> int:
        from tidemark_audit.engines.planning import DEFAULT_INTERVAL_MS, typical_step_ms

        batch = self._look(end_ms)
        return (typical_step_ms(batch) if batch else None) or DEFAULT_INTERVAL_MS

    def _series(self, end_ms: int) -> int:
        asked = {"query": f"count({SELECTOR})", "time": f"{end_ms / 1000:.3f}"}
        part = PrometheusSlice(self.url, self.token, 0, 0, False)
        with _open(part, "/api/v1/query", urllib.parse.urlencode(asked).encode(), {}) as answer:
            document = json.loads(answer.read())
        result = document.get("data", {}).get("result", [])
        return int(float(result[0]["value"][1])) if result else 1000

    def _speaks_remote_read(self) -> bool:
        """Asked with a moment of which there is nothing; anything but frames is a no."""
        part = PrometheusSlice(self.url, self.token, 0, 1, True)
        try:
            body = remote_read.request_body(0, 1, NAMES)
            with _open(part, "/api/v1/read", body, remote_read_headers()) as answer:
                return str(answer.headers.get("Content-Type", "")).startswith(
                    remote_read.CONTENT_TYPE
                )
        except (SourceError, _TooLarge):
            return False


def remote_read_headers() -> Mapping[str, str]:
    return {
        "Content-Type": "application/x-protobuf",
        "Content-Encoding": "snappy",
        "X-Prometheus-Remote-Read-Version": "0.1.0",
    }


def prometheus_at(url: str, token_file: Path | None) -> Prometheus:
    """Raises SourceError."""
    try:
        token = "" if token_file is None else token_file.read_text().strip()
    except OSError as error:
        raise SourceError(
            str(token_file),
            expected="a file with a bearer token",
            found=str(error.strerror or error),
            to_do="check --token-file",
        ) from error
    return Prometheus(url.rstrip("/"), token)


def _open(
    part: PrometheusSlice, path: str, body: bytes, headers: Mapping[str, str]
) -> http.client.HTTPResponse:
    """Raises SourceError; _TooLarge for who can ask for less."""
    said = ""
    for pause in (*PAUSES_SECONDS, None):
        request = urllib.request.Request(part.url + path, data=body, headers=dict(headers))
        if part.token:
            request.add_header("Authorization", f"Bearer {part.token}")
        try:
            answer = urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS)
            return cast(http.client.HTTPResponse, answer)
        except urllib.error.HTTPError as error:
            said = f"{error.code} {error.reason}: {error.read(300).decode(errors='replace')}"
            if error.code in TOO_LARGE:
                raise _TooLarge(said) from error
            if error.code not in BUSY:
                break
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            said = str(getattr(error, "reason", error))
        if pause is not None:
            time.sleep(pause)
    raise SourceError(
        part.url + path,
        expected="Prometheus to answer",
        found=said,
        to_do="check the address and the token, and that it is not overloaded",
    )
