"""Count HTTP requests and their latencies, in about a microsecond each.

Buckets are counted separately and summed when rendered. One event loop owns it; no locks.
"""

from bisect import bisect_left
from collections.abc import Iterator

BUCKETS_SECONDS = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
)  # fmt: skip
REQUESTS = "tidemark_http_requests_total"
DURATION = "tidemark_http_request_duration_seconds"


class RequestMetrics:
    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], int] = {}
        self._buckets: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}

    def observe(self, route: str, status: int, seconds: float) -> None:
        """Count a request; `route` is one of a closed set of names, never a client's path."""
        key = (route, status)
        self._counts[key] = self._counts.get(key, 0) + 1
        buckets = self._buckets.get(route)
        if buckets is None:
            buckets = self._buckets[route] = [0] * (len(BUCKETS_SECONDS) + 1)
            self._sums[route] = 0.0
        buckets[bisect_left(BUCKETS_SECONDS, seconds)] += 1
        self._sums[route] += seconds

    def render(self, requests_in_flight: int) -> Iterator[str]:
        lines = [f"# HELP {REQUESTS} HTTP requests answered.\n# TYPE {REQUESTS} counter\n"]
        for (route, status), number in sorted(self._counts.items()):
            lines.append(f'{REQUESTS}{{route="{route}",status="{status}"}} {number}\n')
        lines.append(f"# HELP {DURATION} From the request's head to its whole answer.\n")
        lines.append(f"# TYPE {DURATION} histogram\n")
        for route, buckets in sorted(self._buckets.items()):
            running = 0
            for bound, number in zip(BUCKETS_SECONDS, buckets, strict=False):
                running += number
                lines.append(f'{DURATION}_bucket{{route="{route}",le="{bound}"}} {running}\n')
            running += buckets[-1]
            lines.append(f'{DURATION}_bucket{{route="{route}",le="+Inf"}} {running}\n')
            lines.append(f'{DURATION}_sum{{route="{route}"}} {self._sums[route]:.6f}\n')
            lines.append(f'{DURATION}_count{{route="{route}"}} {running}\n')
        name = "tidemark_http_requests_in_flight"
        lines.append(f"# HELP {name} Requests being served now.\n# TYPE {name} gauge\n")
        lines.append(f"{name} {requests_in_flight}\n")
        yield "".join(lines)
