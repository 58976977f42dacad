"""Enforce quotas by client id: bytes produced, bytes fetched, time on the event loop.

Quotas are per broker, as in Kafka (KIP-13, KIP-124). A client may use what its quota allows in ten
seconds at once; then the response says how long it has to wait (`throttle_time_ms`), and until then
its connection is not read (KIP-219). A client id without an entry has the default quota, counted
separately. The excess is never forgiven, only paid off in waits of at most ten seconds each.
"""

from collections.abc import Callable, Sequence
from enum import Enum

from tidemark_protocol.controller_messages import ClientQuota

from tidemark_broker.clock import Clock, monotonic_ms

WINDOW_SECONDS = 10.0  # Kafka counts ten whole windows of one second each
MAX_THROTTLE_MS = 10_000
MAX_CLIENTS = 10_000  # of which counts are kept; the one longest idle is forgotten


class QuotaType(Enum):
    PRODUCE_BYTES = "produce"
    FETCH_BYTES = "fetch"
    LOOP_SECONDS = "request"


class _Bucket:
    """A token bucket; `left` below zero is owed."""

    __slots__ = ("_left", "_recorded_s", "rate")

    def __init__(self, rate: float, now_s: float) -> None:
        self.rate = rate
        self._left = rate * WINDOW_SECONDS
        self._recorded_s = now_s

    def use(self, amount: float, now_s: float) -> int:
        """Use an amount; return the milliseconds until nothing is owed."""
        refilled = self._left + (now_s - self._recorded_s) * self.rate
        self._left = min(refilled, self.rate * WINDOW_SECONDS) - amount
        self._recorded_s = now_s
        if self._left >= 0:
            return 0
        return min(MAX_THROTTLE_MS, max(1, round(-self._left / self.rate * 1000)))


class ClientQuotaManager:
    def __init__(
        self,
        quotas: Callable[[], Sequence[ClientQuota]],
        clock: Clock = monotonic_ms,
    ) -> None:
        """Create the quotas; `quotas` returns the present ones, a new object when they change."""
        self._current = quotas
        self._clock = clock
        self._known: Sequence[ClientQuota] = ()
        self._by_client: dict[str, ClientQuota] = {}
        self._default: ClientQuota | None = None
        self._limits_time = False
        self._buckets: dict[tuple[str, QuotaType], _Bucket] = {}

    @property
    def limits_time(self) -> bool:
        """Return whether processing time has to be measured."""
        if not self._current():
            return False
        self._check()
        return self._limits_time

    def throttle_ms(self, client_id: str | None, used: QuotaType, amount: float) -> int:
        """Record the amount; return how long the client has to wait now."""
        if not self._current():
            return 0
        rate = self.rate(client_id, used)
        if rate is None:
            return 0
        now_s = self._clock() / 1000
        key = (client_id or "", used)
        bucket = self._buckets.pop(key, None)
        if bucket is None or bucket.rate != rate:
            bucket = _Bucket(rate, now_s)
            if len(self._buckets) >= MAX_CLIENTS:
                del self._buckets[next(iter(self._buckets))]
        self._buckets[key] = bucket  # the longest idle come first
        return bucket.use(amount, now_s)

    def most_bytes(self, client_id: str | None, used: QuotaType) -> int | None:
        """Return the most bytes of an answer whose wait is within the window; None: no limit."""
        rate = self.rate(client_id, used)
        return None if rate is None else max(1, int(rate * WINDOW_SECONDS))

    def rate(self, client_id: str | None, used: QuotaType) -> float | None:
        """Return the quota per second; None: unlimited."""
        self._check()
        own = self._by_client.get(client_id or "")
        rate = None if own is None else _rate(own, used)
        if rate is None and self._default is not None:
            rate = _rate(self._default, used)
        return rate

    def _check(self) -> None:
        current = self._current()
        if current is self._known:
            return
        self._known = current
        self._by_client = {quota.client_id: quota for quota in current if quota.client_id != ""}
        self._default = next((quota for quota in current if quota.client_id == ""), None)
        self._limits_time = any(quota.request_percentage is not None for quota in current)
        self._buckets = {
            key: bucket for key, bucket in self._buckets.items() if self.rate(*key) == bucket.rate
        }


def _rate(quota: ClientQuota, used: QuotaType) -> float | None:
    match used:
        case QuotaType.PRODUCE_BYTES:
            return quota.produce_bytes_per_second
        case QuotaType.FETCH_BYTES:
            return quota.fetch_bytes_per_second
        case QuotaType.LOOP_SECONDS:
            percentage = quota.request_percentage
            return None if percentage is None else percentage / 100
