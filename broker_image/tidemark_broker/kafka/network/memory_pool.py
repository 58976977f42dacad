"""Bound the memory that the Kafka listener uses for clients, over all its connections.

There are three pools. Requests: what has arrived of them, until each is answered; while the pool is
full no client's socket is read. Large requests: one that arrives in pieces reserves its whole
length before more of it is read, smallest first, so that it can be completed; those above a quarter
of the pool have one place of their own, so that a slow one does not delay the others. Answers: what
was given to a socket whose client does not read; a fetch reads at most a share of what is left, and
none begins while little is left. A client that holds a full pool and makes no progress is
disconnected, so slow clients cost the others at most a second or two. Brokers of the pool are
exempt.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tidemark_broker.clock import Clock, Scheduler, Timer

MEBIBYTE = 1024 * 1024
SMALL_FRAME_BYTES = 4096  # what becomes of it is not worth counting
LARGE_FRAME_BYTES = 256 * 1024  # what one read of a socket brings at most
OVERSIZE_PART = 4  # of the pool of large requests
SMALLEST_SHARE_BYTES = 64 * 1024
WATCH_SECONDS = 0.125  # while a pool is full, or somebody waits for one
PATIENCE_MS = 500  # with a request begun, or an answer unread, while others wait
PROGRESS_BYTES = 32 * 1024  # in that time: less is no progress
_TOO_LONG = f"memory limit reached: expected the response to be read within {PATIENCE_MS} ms"
_TOO_SLOW = f"memory limit reached: expected {PROGRESS_BYTES} bytes in {PATIENCE_MS} ms"


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """The bytes of each pool.

    A process uses at most their sum, one request of the largest size (in its own place), and for
    each connection what its socket reads or writes at once (64 to 256 KiB).
    """

    requests: int = 64 * MEBIBYTE
    large_requests: int = 64 * MEBIBYTE
    answers: int = 128 * MEBIBYTE


class Pool:
    """A count with a limit. It may be exceeded once; then it is full until a quarter is free."""

    __slots__ = ("_on_change", "is_full", "limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int, on_change: Callable[[], None]) -> None:
        """Create an empty pool; `on_change` is called when it becomes full or no longer is."""
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.is_full = False
        self._on_change = on_change

    @property
    def room_bytes(self) -> int:
        return max(0, self.limit_bytes - self.used_bytes)

    def take(self, count: int) -> None:
        self.used_bytes += count
        if self.used_bytes >= self.limit_bytes and not self.is_full:
            self.is_full = True
            self._on_change()

    def give_back(self, count: int) -> None:
        self.used_bytes -= count
        assert self.used_bytes >= 0, "more was given back than taken"
        if self.is_full and self.used_bytes * 4 <= self.limit_bytes * 3:
            self.is_full = False
            self._on_change()


class MemoryReservation(Protocol):
    """A connection as the pools see it."""

    @property
    def is_peer(self) -> bool: ...

    def check_again(self) -> None:
        """Read and begin requests, or stop doing so, as the pools are now."""

    def partial_bytes(self) -> int:
        """Return how many bytes have arrived of an incomplete request."""

    def unanswered_bytes(self, patience_s: float) -> int:
        """Return the bytes of large requests that have waited for longer than `patience_s`.

        They wait for other members of their group, or for the controller.
        """

    def unread_bytes(self) -> int:
        """Return how many bytes of answers are not sent yet; 0 while the client keeps up."""

    def reject(self, kind: str, reason: str) -> None: ...


@dataclass(slots=True)
class _Seen:
    """A holder's bytes when it last made progress."""

    reservation_bytes: int
    since_ms: int


class MemoryPool:
    def __init__(self, limits: MemoryLimits, scheduler: Scheduler, clock: Clock) -> None:
        self.limits = limits
        self.requests = Pool(limits.requests, self._on_change)
        self.answers = Pool(limits.answers, self._on_change)
        self._scheduler = scheduler
        self._clock = clock
        self._holders: dict[MemoryReservation, None] = {}  # by age
        self._reserved: dict[MemoryReservation, int] = {}
        self._waiting: dict[MemoryReservation, int] = {}
        self._large_bytes = self._oversize_bytes = 0
        self._seen_partial: dict[MemoryReservation, _Seen] = {}
        self._seen_unread: dict[MemoryReservation, _Seen] = {}
        self._watch_timer: Timer | None = None
        self._change_timer: Timer | None = None
        self._turn = 0

    def join(self, reservation: MemoryReservation) -> None:
        """Add a new connection."""
        self._holders[reservation] = None

    def forget(self, reservation: MemoryReservation) -> None:
        """Remove a connection that is gone."""
        self._holders.pop(reservation, None)
        self._waiting.pop(reservation, None)
        self._seen_partial.pop(reservation, None)
        self._seen_unread.pop(reservation, None)
        size_bytes = self._reserved.pop(reservation, None)
        if size_bytes is not None:
            self.release_large(size_bytes)

    # ---- answers

    def share_bytes(self) -> int:
        """Return how much one answer may read now: many slow readers get less each, not none."""
        return max(SMALLEST_SHARE_BYTES, self.answers.room_bytes // 8)

    # ---- large requests

    def reserve(self, reservation: MemoryReservation, size_bytes: int) -> bool:
        """Reserve room for a whole large request.

        False: `check_again` is called when there is room.
        """
        if reservation in self._reserved:
            return True
        is_oversize = self._is_oversize(size_bytes)
        is_next = all(self._is_oversize(each) != is_oversize for each in self._waiting.values())
        if is_next and self._has_large_room(size_bytes):
            self._reserve(reservation, size_bytes)
            return True
        self._waiting[reservation] = size_bytes
        self._watch()
        return False

    def is_reserved(self, reservation: MemoryReservation) -> bool:
        return reservation in self._reserved

    def release_large(self, size_bytes: int) -> None:
        """Give back the room of a large request that was answered or dropped."""
        self._count_large(size_bytes, -size_bytes)
        assert self._large_bytes >= 0 <= self._oversize_bytes, "more was given back than reserved"
        self._grant()

    def keep_reserved(self, reservation: MemoryReservation) -> int:
        """Note that a large request is complete; return what `release_large` gives back later.

        0 if no room was reserved.
        """
        if self._waiting:
            self._waiting.pop(reservation, None)
        return self._reserved.pop(reservation, 0)

    def stop(self) -> None:
        for timer in (self._watch_timer, self._change_timer):
            if timer is not None:
                timer.cancel()

    # ---- inside

    def _is_oversize(self, size_bytes: int) -> bool:
        return size_bytes * OVERSIZE_PART > self.limits.large_requests

    def _has_large_room(self, size_bytes: int) -> bool:
        if self._is_oversize(size_bytes):
            return not self._oversize_bytes
        return self._large_bytes + size_bytes <= self.limits.large_requests

    def _reserve(self, reservation: MemoryReservation, size_bytes: int) -> None:
        self._reserved[reservation] = size_bytes
        self._count_large(size_bytes, size_bytes)

    def _count_large(self, size_bytes: int, change_bytes: int) -> None:
        if self._is_oversize(size_bytes):
            self._oversize_bytes += change_bytes
        else:
            self._large_bytes += change_bytes

    def _grant(self) -> None:
        for reservation, size_bytes in sorted(self._waiting.items(), key=lambda entry: entry[1]):
            if not self._has_large_room(size_bytes):
                continue
            del self._waiting[reservation]
            self._reserve(reservation, size_bytes)
            reservation.check_again()

    def _on_change(self) -> None:
        """Notify the connections of a change of the pool.

        At once if it is full, or each socket that is ready reads more. Else in the next turn,
        because the change may happen in the middle of an answer.
        """
        if self.requests.is_full:
            self._notify_all()
        elif self._change_timer is None:
            self._change_timer = self._scheduler.call_later(0, self._notify_all)
        if self.requests.is_full or self.answers.is_full:
            self._watch()

    def _notify_all(self) -> None:
        self._change_timer = None
        holders = [reservation for reservation in self._holders if not reservation.is_peer]
        # Not always the oldest first: the pool may be full again before the last one has its turn.
        self._turn = (self._turn + 1 + len(holders) // 8) % max(1, len(holders))
        for reservation in holders[self._turn :] + holders[: self._turn]:
            reservation.check_again()

    def _watch(self) -> None:
        if self._watch_timer is None:
            self._watch_timer = self._scheduler.call_later(WATCH_SECONDS, self._check)

    def _check(self) -> None:
        """Disconnect clients that hold what others wait for and make no progress."""
        self._watch_timer = None
        now_ms = self._clock()
        if self.requests.is_full or self._waiting:
            self._cut_slow_senders(now_ms)
        else:
            self._seen_partial.clear()
        if self.answers.is_full:
            self._cut_slow_readers(now_ms)
        else:
            self._seen_unread.clear()
        if self.requests.is_full or self.answers.is_full or self._waiting:
            self._watch()

    def _cut_slow_senders(self, now_ms: int) -> None:
        """Disconnect clients that hold the pool with incomplete or unanswered requests.

        Also those that hold the place for a large request which others wait for.
        """
        stuck = self._stuck(
            self._seen_partial, lambda each: each.partial_bytes(), now_ms, grows=True
        )
        if self._waiting:
            for reservation, _ in stuck:
                if reservation in self._reserved:
                    reservation.reject("slow request", f"{_TOO_SLOW} of a large request")
        if not self.requests.is_full:
            return
        begun = [(each, held) for each, held in stuck if each not in self._reserved]
        waiting = [
            (each, held)
            for each in self._holders
            if not each.is_peer and (held := each.unanswered_bytes(PATIENCE_MS / 1000))
        ]
        for found, reason in ((begun, f"{_TOO_SLOW} of a request"), (waiting, _TOO_LONG)):
            if sum(held for _, held in found) * 4 >= self.limits.requests:
                _cut(found, self.requests, "slow request", reason)

    def _cut_slow_readers(self, now_ms: int) -> None:
        stuck = self._stuck(
            self._seen_unread, lambda each: each.unread_bytes(), now_ms, grows=False
        )
        _cut(stuck, self.answers, "slow reader", f"{_TOO_SLOW} of responses to be read")

    def _stuck(
        self,
        seen: dict[MemoryReservation, _Seen],
        held_bytes: Callable[[MemoryReservation], int],
        now_ms: int,
        *,
        grows: bool,
    ) -> list[tuple[MemoryReservation, int]]:
        """Return the holders that made no progress for the limit, each with its bytes."""
        found = []
        for reservation in tuple(self._holders):
            held = 0 if reservation.is_peer else held_bytes(reservation)
            before = seen.get(reservation)
            if held <= 0:
                seen.pop(reservation, None)
                continue
            if before is None or _has_moved(before.reservation_bytes, held, grows=grows):
                seen[reservation] = _Seen(held, now_ms)
            elif now_ms - before.since_ms >= PATIENCE_MS:
                found.append((reservation, held))
        return found


def _cut(stuck: list[tuple[MemoryReservation, int]], pool: Pool, kind: str, reason: str) -> None:
    """Disconnect the holders with most bytes until three quarters of the pool will be free.

    As many others may be as slow.
    """
    left_bytes = pool.used_bytes
    for reservation, held in sorted(stuck, key=lambda entry: -entry[1]):
        if left_bytes * 4 <= pool.limit_bytes:
            return
        left_bytes -= held
        reservation.reject(kind, reason)


def _has_moved(before: int, now: int, *, grows: bool) -> bool:
    """Return whether a holder made progress.

    A request grows as it arrives and an answer shrinks as it is read; a change in the other
    direction is the next request or answer.
    """
    gained = now - before if grows else before - now
    return gained >= PROGRESS_BYTES or gained < 0
