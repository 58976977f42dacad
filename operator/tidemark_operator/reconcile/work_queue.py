"""Queue keys of objects to reconcile: each at most once in the queue and in work.

Keys of one kind have a limit of turns that run concurrently: several Topics, but one BrokerPool. A
key that is added while its turn runs gets another turn afterwards. A key whose turn failed comes
back after a delay that doubles up to a limit; success resets it. The queue holds keys only, never
events: what happened is read from the store in the key's turn. Nothing is ever dropped, and the
queue cannot grow beyond the number of objects.

Keys of one kind take turns by the request they belong to: a client's thousand topics delay
another's topic by one turn. Keys of a sweep wait behind all others of their kind, but where several
turns may run at once one of them is always theirs.
"""

import asyncio
import logging
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tidemark_operator.api.kinds import BROKER_POOL, TOPIC
from tidemark_operator.store.object_store import Conflict, StoreError

log = logging.getLogger(__name__)

Reconcile = Callable[["WorkKey"], Awaitable[int | None]]

# Turns at once, by kind; of other kinds one. A Topic's turn mostly waits for the store.
TURNS_AT_ONCE = {TOPIC.kind: 12}
PASS_BUCKETS_SECONDS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True)
class WorkKey:
    """The key of an object; `kind` is the Kubernetes kind."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class BackOff:
    first_delay_ms: int = 100
    max_delay_ms: int = 30_000

    def delay_ms(self, failures: int) -> int:
        return min(self.first_delay_ms << min(failures - 1, 20), self.max_delay_ms)


@dataclass(slots=True)
class PassStatistics:
    """What is reported of the passes over one kind."""

    waiting: int = 0
    errors: int = 0
    seconds: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(PASS_BUCKETS_SECONDS) + 1))

    @property
    def passes(self) -> int:
        return sum(self.buckets)

    def record(self, seconds: float, *, is_error: bool) -> None:
        self.buckets[bisect_left(PASS_BUCKETS_SECONDS, seconds)] += 1
        self.seconds += seconds
        self.errors += is_error


@dataclass(slots=True)
class _Lane:
    """The keys of one kind."""

    limit: int
    statistics: PassStatistics = field(default_factory=PassStatistics)
    started_s: dict[WorkKey, float] = field(default_factory=dict)  # of turns, wall clock
    # In order of arrival, by who asked; first who is next.
    pending: dict[str, dict[WorkKey, None]] = field(default_factory=dict)
    requested_by: dict[WorkKey, str] = field(default_factory=dict)  # of those in `pending`
    swept: dict[WorkKey, None] = field(default_factory=dict)  # not in `pending`
    active: dict[WorkKey, bool] = field(default_factory=dict)  # whether it came from a sweep

    def __len__(self) -> int:
        return len(self.requested_by) + len(self.swept)

    def add(self, key: WorkKey, requested_by: str) -> None:
        self.swept.pop(key, None)
        if key not in self.requested_by:
            self.requested_by[key] = requested_by
            self.pending.setdefault(requested_by, {})[key] = None

    def add_swept(self, key: WorkKey) -> None:
        if key not in self.requested_by:
            self.swept[key] = None

    def take(self) -> Iterator[WorkKey]:
        """Yield the keys whose turn begins now; a key in work waits for the end of its turn."""
        while len(self.active) < self.limit:
            is_sweep_due = self.limit > 1 and not any(self.active.values())
            key = self._first(self.swept) if is_sweep_due else None
            key = key or self._next_requested() or self._first(self.swept)
            if key is None:
                return
            self.active[key] = key in self.swept
            self.swept.pop(key, None)
            self._take_out(key)
            yield key

    def clear(self) -> None:
        self.pending.clear()
        self.requested_by.clear()
        self.swept.clear()

    def _next_requested(self) -> WorkKey | None:
        found = map(self._first, self.pending.values())
        return next((key for key in found if key is not None), None)

    def _take_out(self, key: WorkKey) -> None:
        """Take a key out; the next one of its request comes after those of all others."""
        requested_by = self.requested_by.pop(key, None)
        if requested_by is not None:
            keys = self.pending.pop(requested_by)
            del keys[key]
            if keys:
                self.pending[requested_by] = keys

    def _first(self, keys: dict[WorkKey, None]) -> WorkKey | None:
        # At most `limit` keys are in work, so few are passed over.
        return next((key for key in keys if key not in self.active), None)


class WorkQueue:
    """The queue, owned by the loop that runs `work`."""

    def __init__(
        self,
        back_off: BackOff | None = None,
        *,
        turns_at_once: Mapping[str, int] = TURNS_AT_ONCE,
    ) -> None:
        self._back_off = back_off or BackOff()
        self._turns_at_once = turns_at_once
        self._lanes = {
            kind: _Lane(turns_at_once.get(kind, 1)) for kind in (BROKER_POOL.kind, TOPIC.kind)
        }
        self._timers: dict[WorkKey, asyncio.TimerHandle] = {}
        self._failures: dict[WorkKey, int] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def statistics(self) -> dict[str, PassStatistics]:
        """Return the statistics of each kind, for metrics."""
        for lane in self._lanes.values():
            lane.statistics.waiting = len(lane)
        return {kind: lane.statistics for kind, lane in self._lanes.items()}

    def running(self) -> dict[WorkKey, float]:
        """Return the keys whose turns run now, each with its start by the wall clock."""
        return {
            key: started_s
            for lane in self._lanes.values()
            for key, started_s in lane.started_s.items()
        }

    def add(self, key: WorkKey, requested_by: str = "") -> None:
        """Add a key now, also if it has a delayed turn.

        `requested_by` is its request; all others of a namespace count as one.
        """
        self._cancel_timer(key)
        self._lane(key).add(key, requested_by or key.namespace)
        self._wake.set()

    def add_swept(self, key: WorkKey) -> None:
        """Add a key of a sweep, to which nothing is known to have happened."""
        self._lane(key).add_swept(key)
        self._wake.set()

    def add_after(self, key: WorkKey, delay_ms: int) -> None:
        """Add a key later, unless it is due sooner already."""
        if key in self._lane(key).requested_by:
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + delay_ms / 1000
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= due:
            return
        self._cancel_timer(key)
        self._timers[key] = loop.call_at(due, self._come_due, key)

    def clear(self) -> None:
        """Drop all waiting keys; running turns continue."""
        for lane in self._lanes.values():
            lane.clear()
        self._failures.clear()
        for key in list(self._timers):
            self._cancel_timer(key)

    async def work(self, reconcile: Reconcile) -> None:
        """Run turns until cancelled, which ends them.

        `reconcile` may return a delay in ms after which to come again; a key whose turn failed
        comes back.
        """
        try:
            async with asyncio.TaskGroup() as turns:
                while True:
                    self._wake.clear()
                    for lane in self._lanes.values():
                        for key in lane.take():
                            turns.create_task(self._turn(lane, key, reconcile), name=f"turn {key}")
                    await self._wake.wait()
        finally:
            for lane in self._lanes.values():
                lane.active.clear()  # a turn that was cancelled before its first step, too

    async def _turn(self, lane: _Lane, key: WorkKey, reconcile: Reconcile) -> None:
        lane.started_s[key] = time.time()
        began_s = time.perf_counter()
        is_error = False
        try:
            again_ms = await reconcile(key)
        except Exception as error:  # the driver: one object's fault must not stop all others
            is_error = True
            self._come_back(key, error)
        else:
            self._failures.pop(key, None)
            if again_ms is not None:
                self.add_after(key, again_ms)
        finally:
            lane.statistics.record(time.perf_counter() - began_s, is_error=is_error)
            lane.started_s.pop(key, None)
            lane.active.pop(key, None)
            self._wake.set()

    def _come_back(self, key: WorkKey, error: Exception) -> None:
        failures = self._failures.get(key, 0) + 1
        self._failures[key] = failures
        delay_ms = self._back_off.delay_ms(failures)
        is_expected = isinstance(error, StoreError | OSError | TimeoutError)
        log.log(
            logging.DEBUG if isinstance(error, Conflict) else logging.WARNING,
            "reconcile failed, retrying",
            exc_info=None if is_expected else error,
            extra={
                "kind": key.kind,
                "namespace": key.namespace,
                "object": key.name,
                "failures": failures,
                "delay_ms": delay_ms,
                "error": f"{type(error).__name__}: {error}",
            },
        )
        self.add_after(key, delay_ms)

    def _lane(self, key: WorkKey) -> _Lane:
        lane = self._lanes.get(key.kind)
        if lane is None:
            lane = self._lanes[key.kind] = _Lane(self._turns_at_once.get(key.kind, 1))
        return lane

    def _come_due(self, key: WorkKey) -> None:
        self._timers.pop(key, None)
        self._lane(key).add(key, key.namespace)
        self._wake.set()

    def _cancel_timer(self, key: WorkKey) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
