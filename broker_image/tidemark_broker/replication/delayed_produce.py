"""Delay produces, oldest first: with acks=all until the high watermark passes them.

A deque of (end offset, deadline, done) is drained as the watermark moves: O(1) per appended batch,
no task and no timer per request. A duplicate waits like its original: an immediate answer would
acknowledge what is not committed. Each `done` is called exactly once, and a caller's exception
never keeps the others waiting.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset

from tidemark_broker.replication.core.leader import PartitionLeader
from tidemark_broker.replication.results import ProduceResult

_log = logging.getLogger(__name__)

Result = TypeVar("Result")
ProduceCallback = Callable[[ProduceResult], None]

_ON_TOO_FEW = ProduceResult(
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    message="fewer in-sync replicas than min.insync.replicas after the append; the batch stays in"
    " the log and can be read",
)


def answer(done: Callable[[Result], None], result: Result) -> None:
    """Call a callback and log its exception.

    It belongs to a connection that may be gone (uvloop raises then).
    """
    try:
        done(result)
    except Exception:
        _log.exception("request failed")


@dataclass(slots=True)
class _Waiting:
    end_offset: Offset
    deadline_ms: int
    result: ProduceResult
    done: ProduceCallback | None  # None: answered already (timed out)


_NONE_WAITS: deque[_Waiting] = deque(maxlen=0)  # shared by all replicas: it takes no entry


class DelayedProducePurgatory:
    """The delayed produces of one replica.

    They wait for the watermark or, with `flush: Always` and acks=1, for the leader's disk alone.
    Each deque is created when the first produce waits: an empty one takes 760 bytes, and most
    replicas of thousands never have any.
    """

    __slots__ = ("_for_commit", "_for_sync")

    def __init__(self) -> None:
        self._for_commit = _NONE_WAITS
        self._for_sync = _NONE_WAITS

    def __len__(self) -> int:
        return len(self._for_commit) + len(self._for_sync)

    def add(
        self,
        end_offset: Offset,
        *,
        deadline_ms: int,
        result: ProduceResult,
        done: ProduceCallback,
        for_sync_only: bool = False,
    ) -> None:
        """Add a produce in the order of end offsets, also a duplicate of an earlier batch."""
        if for_sync_only:
            if self._for_sync is _NONE_WAITS:
                self._for_sync = deque()
            waiting = self._for_sync
        else:
            if self._for_commit is _NONE_WAITS:
                self._for_commit = deque()
            waiting = self._for_commit
        at = len(waiting)
        while at and waiting[at - 1].end_offset > end_offset:
            at -= 1
        waiting.insert(at, _Waiting(end_offset, deadline_ms, result, done))

    def complete(self, leader: PartitionLeader | None) -> None:
        """Answer all that the leader's watermark has passed.

        With commitRule MinInsync the watermark stands while the ISR is below min ISR, and they wait
        for the ISR or for their timeout, as in Kafka since KIP-966. With Isr it moves with the
        remaining replicas, which is not what acks=all asked for: NOT_ENOUGH_REPLICAS_AFTER_APPEND
        (I9).
        """
        if leader is None:
            return
        for entry in _taken(self._for_commit, leader.high_watermark):
            if entry.done is not None:
                answer(entry.done, entry.result if _is_held(leader) else _ON_TOO_FEW)

    def on_synced(self, durable_end_offset: Offset) -> None:
        for entry in _taken(self._for_sync, durable_end_offset):
            if entry.done is not None:
                answer(entry.done, entry.result)

    def fail_all(self, error: ErrorCode, message: str) -> None:
        """Fail all delayed produces; their records stay in the log and may yet commit."""
        entries = (*self._for_commit, *self._for_sync)
        self._for_commit.clear()
        self._for_sync.clear()
        for entry in entries:
            if entry.done is not None:
                answer(entry.done, ProduceResult(error, message=message))

    # guard: produce-times-out (L2)
    def expire(self, now_ms: int) -> None:
        for waiting, missing in (
            (self._for_commit, "timed out before all in-sync replicas had the records"),
            (self._for_sync, "timed out before the leader's disk had the records"),
        ):
            for entry in waiting:
                if entry.done is not None and entry.deadline_ms <= now_ms:
                    done, entry.done = entry.done, None
                    message = f"{missing}; they stay in the log and may still be committed"
                    answer(done, ProduceResult(ErrorCode.REQUEST_TIMED_OUT, message=message))
            while waiting and waiting[0].done is None:
                waiting.popleft()


# guard: acknowledge-with-min-isr (I9)
def _is_held(leader: PartitionLeader) -> bool:
    return leader.has_enough_in_sync_replicas


def _taken(waiting: deque[_Waiting], end_offset: Offset) -> Iterator[_Waiting]:
    """Yield entries one at a time: an answer may bring the next request, or end the role."""
    while waiting and waiting[0].end_offset <= end_offset:
        yield waiting.popleft()
