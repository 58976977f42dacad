"""Produces with acks=all that wait for the high watermark, oldest first.

A deque of (end offset, deadline, done) drained as the watermark moves: O(1) per batch that was
appended, no task and no timer per request. A duplicate waits like its original: to be answered at
once would acknowledge what is not committed. Every `done` is called exactly once, and a caller's
exception never keeps the others waiting.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import Offset

from tidemark_broker.replication.leader import PartitionLeader
from tidemark_broker.runtime.results import ProduceResult

_log = logging.getLogger(__name__)

Result = TypeVar("Result")
ProduceDone = Callable[[ProduceResult], None]

_ON_TOO_FEW = ProduceResult(
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    message="fewer replicas than min.insync.replicas are in sync since it was appended;"
    " it stays in the log and can be read",
)


def answer(done: Callable[[Result], None], result: Result) -> None:
    """Callbacks belong to connections that may be gone: isolate them (uvloop raises then)."""
    try:
        done(result)
    except Exception:
        _log.exception("a request could not be answered")


@dataclass(slots=True)
class _Waiting:
    end_offset: Offset  # acknowledged once the high watermark is at least this
    deadline_ms: int
    result: ProduceResult
    done: ProduceDone | None  # None: answered already (timed out)


class ProducePurgatory:
    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self, end_offset: Offset, *, deadline_ms: int, result: ProduceResult, done: ProduceDone
    ) -> None:
        """In the order of end offsets, also a duplicate of a batch that waits since earlier."""
        waiting = self._waiting
        at = len(waiting)
        while at and waiting[at - 1].end_offset > end_offset:
            at -= 1
        waiting.insert(at, _Waiting(end_offset, deadline_ms, result, done))

    def complete(self, leader: PartitionLeader | None) -> None:
        """Answer all that the leader's watermark has passed.

        With commitRule MinInsync it stands while the ISR is below min ISR, and they wait for the
        ISR or for their timeout, as in Kafka since KIP-966. With Isr it moves with whoever is left,
        and that is not what acks=all asked for: NOT_ENOUGH_REPLICAS_AFTER_APPEND (I9).
        """
        waiting = self._waiting
        while leader is not None and waiting and waiting[0].end_offset <= leader.high_watermark:
            entry = waiting.popleft()
            if entry.done is not None:
                is_held = leader.has_enough_in_sync_replicas
                answer(entry.done, entry.result if is_held else _ON_TOO_FEW)

    def fail_all(self, error: ErrorCode, message: str) -> None:
        """The records stay in the log and may yet commit; nobody can say so any more."""
        entries = tuple(self._waiting)
        self._waiting.clear()
        for entry in entries:
            if entry.done is not None:
                answer(entry.done, ProduceResult(error, message=message))

    def expire(self, now_ms: int) -> None:
        for entry in self._waiting:
            if entry.done is not None and entry.deadline_ms <= now_ms:
                done, entry.done = entry.done, None
                answer(
                    done,
                    ProduceResult(
                        ErrorCode.REQUEST_TIMED_OUT,
                        message="not enough in-sync replicas have the records yet;"
                        " they stay in the log and may still be committed",
                    ),
                )
        while self._waiting and self._waiting[0].done is None:
            self._waiting.popleft()
