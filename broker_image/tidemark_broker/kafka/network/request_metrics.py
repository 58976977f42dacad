"""Count the requests of the Kafka port by API: number, errors, latency, bytes.

Names are Kafka's: a Fetch is a consumer's or a follower's. One event loop owns it; no locks. A
request costs well under a microsecond here: buckets are counted separately and summed when
rendered.
"""

from bisect import bisect_left
from collections.abc import Iterator

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.kafka_wire.messages.frames import API_NAMES, FETCH, Buffers

BUCKETS_SECONDS = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
)  # fmt: skip
REQUESTS = "tidemark_kafka_requests_total"
ERRORS = "tidemark_kafka_request_errors_total"
DURATION = "tidemark_kafka_request_duration_seconds"
REQUEST_BYTES = "tidemark_kafka_request_bytes_total"
RESPONSE_BYTES = "tidemark_kafka_response_bytes_total"
FETCH_OF_FOLLOWER = -1  # beside the API keys


class _Api:
    __slots__ = ("buckets", "request_bytes", "response_bytes", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BUCKETS_SECONDS) + 1)
        self.seconds = 0.0
        self.request_bytes = 0
        self.response_bytes = 0


class KafkaRequestMetrics:
    def __init__(self) -> None:
        self._apis: dict[int, _Api] = {}
        self._errors: dict[tuple[int, int], int] = {}

    def observe(self, api_key: int, seconds: float, request_bytes: int, response: Buffers) -> None:
        """Count a request that is answered; `api_key` may be FETCH_OF_FOLLOWER."""
        api = self._apis.get(api_key)
        if api is None:
            api = self._apis[api_key] = _Api()
        api.buckets[bisect_left(BUCKETS_SECONDS, seconds)] += 1
        api.seconds += seconds
        api.request_bytes += request_bytes
        api.response_bytes += sum(map(len, response))

    def observe_errors(self, api_key: int, errors: list[int]) -> None:
        """Count the error codes in an answer: one for each partition, group or topic with one."""
        for error in errors:
            key = (api_key, int(error))
            self._errors[key] = self._errors.get(key, 0) + 1

    def render(self) -> Iterator[str]:
        apis = sorted((_name(key), api) for key, api in self._apis.items())
        yield from _counter(
            REQUESTS,
            "Requests answered on the Kafka port.",
            [(f'api="{name}"', sum(api.buckets)) for name, api in apis],
        )
        yield from _counter(
            ERRORS,
            "Error codes in these answers.",
            [
                (f'api="{_name(key)}",error="{_error_name(error)}"', count)
                for (key, error), count in sorted(self._errors.items())
            ],
        )
        yield from _counter(
            REQUEST_BYTES,
            "Bytes of these requests.",
            [(f'api="{name}"', api.request_bytes) for name, api in apis],
        )
        yield from _counter(
            RESPONSE_BYTES,
            "Bytes of their answers.",
            [(f'api="{name}"', api.response_bytes) for name, api in apis],
        )
        lines = [f"# HELP {DURATION} From the whole request to its whole answer.\n"]
        lines.append(f"# TYPE {DURATION} histogram\n")
        for name, api in apis:
            running = 0
            for bound, number in zip(BUCKETS_SECONDS, api.buckets, strict=False):
                running += number
                lines.append(f'{DURATION}_bucket{{api="{name}",le="{bound}"}} {running}\n')
            running += api.buckets[-1]
            lines.append(f'{DURATION}_bucket{{api="{name}",le="+Inf"}} {running}\n')
            lines.append(f'{DURATION}_sum{{api="{name}"}} {api.seconds:.6f}\n')
            lines.append(f'{DURATION}_count{{api="{name}"}} {running}\n')
        yield "".join(lines)


def _counter(family: str, text: str, samples: list[tuple[str, int]]) -> Iterator[str]:
    lines = [f"# HELP {family} {text}\n# TYPE {family} counter\n"]
    lines += [f"{family}{{{labels}}} {value}\n" for labels, value in samples]
    yield "".join(lines)


def _name(api_key: int) -> str:
    if api_key == FETCH_OF_FOLLOWER:
        return "FetchFollower"
    return "FetchConsumer" if api_key == FETCH else API_NAMES[api_key]


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR.name
