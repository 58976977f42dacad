"""Collect effects, and track appends until their records are committed or refused.

An append ends twice, and the two may lie apart: its answer is due after a bounded wait, and its
records may be committed later still. `settle` is called once, at the first of the two; `apply` only
when the records are committed, because then each later coordinator loads them too.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import LeaderEpoch

from tidemark_broker.coordinator.core.offsets_records import OffsetsRecord
from tidemark_broker.coordinator.core.requests import (
    AppendRecords,
    ClockReading,
    Effect,
    GroupResponse,
    Response,
)

Settle = Callable[[ErrorCode, ClockReading], None]
Apply = Callable[[ClockReading], None]

_UNAVAILABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
_ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})


def group_error(error: ErrorCode) -> ErrorCode:
    """Return the error for members whose group record could not be written (Kafka's table)."""
    if error in _UNAVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in _ELSEWHERE:
        return ErrorCode.NOT_COORDINATOR
    if error is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.UNKNOWN_SERVER_ERROR if error in _TOO_LARGE else error


def offsets_error(error: ErrorCode) -> ErrorCode:
    """Return the error for offsets that could not be written; it differs in two rows."""
    if error is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if error in _TOO_LARGE else group_error(error)


def _nothing(_: ClockReading) -> None:
    """Do nothing: the state in memory is already ahead of the log."""


@dataclass(slots=True)
class _Pending:
    keys: tuple[bytes, ...]
    settle: Settle
    apply: Apply
    is_settled: bool = False


class PendingAppends:
    """The effects and appends of one partition in one leader epoch.

    An append of another epoch cannot be named here.
    """

    def __init__(self, leader_epoch: LeaderEpoch, first_append_id: int) -> None:
        self.next_append_id = first_append_id
        self._leader_epoch = leader_epoch
        self._pending: dict[int, _Pending] = {}
        self._effects: list[Effect] = []

    @property
    def oldest_append_id(self) -> int:
        """Return the oldest append under way, or the next id if there is none."""
        return min(self._pending, default=self.next_append_id)

    def keys_under_way(self) -> Iterator[bytes]:
        """Yield the keys of records that are not known to be committed or refused."""
        return chain.from_iterable(pending.keys for pending in self._pending.values())

    def take(self) -> tuple[Effect, ...]:
        effects = tuple(self._effects)
        self._effects.clear()
        return effects

    def answer(self, request_id: int, answer: GroupResponse) -> None:
        self._effects.append(Response(request_id, answer))

    def append(
        self, records: tuple[OffsetsRecord, ...], settle: Settle, apply: Apply = _nothing
    ) -> None:
        append_id = self.next_append_id
        self.next_append_id += 1
        keys = tuple(record.key for record in records)
        self._pending[append_id] = _Pending(keys, settle, apply)
        self._effects.append(AppendRecords(append_id, self._leader_epoch, records))

    def on_committed(self, append_id: int, now: ClockReading) -> None:
        pending = self._pending.pop(append_id, None)
        if pending is None:
            return  # of an earlier leader epoch: what it wrote, we have replayed or will not have
        pending.apply(now)
        if not pending.is_settled:
            pending.settle(ErrorCode.NONE, now)

    def on_rejected(self, append_id: int, error: ErrorCode, now: ClockReading) -> None:
        pending = self._pending.pop(append_id, None)
        if pending is not None and not pending.is_settled:
            pending.settle(error, now)

    def on_late(self, append_id: int, now: ClockReading) -> None:
        pending = self._pending.get(append_id)
        if pending is not None and not pending.is_settled:
            pending.is_settled = True
            pending.settle(ErrorCode.REQUEST_TIMED_OUT, now)

    def resign(self, now: ClockReading) -> None:
        """Answer all requests that wait, because this broker no longer leads.

        Clients look for the next coordinator.
        """
        pending = tuple(self._pending.values())
        self._pending.clear()
        for entry in pending:
            if not entry.is_settled:
                entry.settle(ErrorCode.NOT_LEADER_OR_FOLLOWER, now)
