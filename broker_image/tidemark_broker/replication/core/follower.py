"""Decide what a follower of one partition fetches, where it truncates, what is committed.

Kafka's AbstractFetcherThread for one partition, with divergence by the fetch itself (KIP-595).
Truncation is decided by leader epochs only, never by a watermark. The high watermark is max(own,
min(leader's, own log end)), only from a non-diverging answer in the current leader epoch, after the
append (I2). There is no I/O; logs come in as positions.

S32: leader epochs that retention removed from a log, and the leaders that need not be asked about
them.
"""

from typing import NamedTuple

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_EPOCH, BrokerId, LeaderEpoch, Offset
from tidemark_protocol.partition_state import Member, PartitionState

from tidemark_broker.replication.core.effects import (
    AppendRecords,
    DivergingEpoch,
    FollowerEffect,
    FollowLogStart,
    HighWatermarkAdvanced,
    LeaderResponse,
    LogView,
    ReplicaFetch,
    RestartLogAt,
    TruncateLog,
)

# The leader has not applied its grant yet, or we have not heard of the next one: both take one
# network hop, so ask again soon. (Kafka waits 1 s; failover would wait with it.)
FIRST_BACK_OFF_MS = 20
MAX_BACK_OFF_MS = 1000
UNHEARD = Offset(-1)

_SOON = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class LeaderContact:
    """When one connection to a leader last got an answer.

    Shared by the partitions that its session fetches without naming them again.
    """

    __slots__ = ("last_response_ms",)

    def __init__(self) -> None:
        self.last_response_ms = -1


class FollowerFetch(NamedTuple):
    """The fetch of this partition to send to the leader."""

    leader_epoch: LeaderEpoch
    fetch_offset: Offset
    last_fetched_epoch: LeaderEpoch


class UntruncatedLog(NamedTuple):
    """A follower's log as it was before the first truncation that its leader asked for."""

    last_epoch: LeaderEpoch
    log_end_offset: Offset
    high_watermark: Offset


class PartitionFollower:
    """A follower of one partition in one leader epoch."""

    def __init__(
        self, *, leader: BrokerId, leader_epoch: LeaderEpoch, high_watermark: Offset
    ) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.high_watermark = high_watermark
        self.leader_high_watermark = UNHEARD  # as its last accepted answer said
        self.truncated_records = 0
        self.committed_truncated_records = 0
        self.untruncated: UntruncatedLog | None = None  # nothing was cut in this epoch
        self.parts_at: Offset | None = None  # a cut could not be made: the log is damaged
        self._reported_to_part_at: Offset | None = None
        self._is_prefix = False  # of the leader's log, which it may not be able to read further
        self.wake_at_ms = 0  # not fetched before
        # In sync or eligible: it has all that is committed, and a death while its log begins anew
        # would leave an entry that proves what is gone (I6).
        self.is_isr_or_elr_member = False
        self._failures = 0
        # When the leader last answered in this epoch that our log is a prefix of its own.
        self._confirmed_at_ms: int | None = None
        self._contact: LeaderContact | None = None

    # guard: fetch-names-last-epoch (I4)
    def next_fetch(self, log: LogView, now_ms: int) -> FollowerFetch | None:
        """Return the next fetch, or None while backing off until `wake_at_ms`."""
        if now_ms < self.wake_at_ms:
            return None
        return FollowerFetch(self.leader_epoch, log.log_end_offset, log.latest_epoch)

    # guard: diverging-answer-moves-no-watermark (I2)
    def on_response(
        self, fetch: FollowerFetch, answer: LeaderResponse, log: LogView, now_ms: int
    ) -> tuple[FollowerEffect, ...]:
        """Handle the answer to a fetch; return effects.

        An answer to a fetch of another leader epoch, or of a log that has changed since, is ignored
        (KAFKA-13266).
        """
        if not self._is_for_this_moment(fetch, log):
            return ()
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._on_out_of_range(answer, log, now_ms)
        if answer.error is not ErrorCode.NONE:
            # Of what lies behind our log, so that its position was accepted.
            self._is_prefix |= answer.error is ErrorCode.CORRUPT_MESSAGE
            self._back_off(answer.error, now_ms)
            return ()
        self._failures = 0
        if answer.diverging_epoch is not None:
            # Its watermark speaks of records that we do not hold (KAFKA-14704): not touched.
            cut = self._truncation(answer.diverging_epoch, log)
            # A cut by our own epochs may end past the leader's log: it is a first step.
            self._reported_to_part_at = min(cut.to_offset, answer.diverging_epoch.end_offset)
            if not _keeps_nothing(cut, answer):
                return (cut,)
            if self._is_word_awaited():
                self._back_off(ErrorCode.UNKNOWN_LEADER_EPOCH, now_ms)
                return ()
            return (RestartLogAt(answer.log_start_offset),)
        self._confirmed_at_ms = now_ms
        self.leader_high_watermark = answer.high_watermark
        log_start: tuple[FollowerEffect, ...] = ()
        if answer.log_start_offset > log.log_start_offset:
            log_start = (FollowLogStart(answer.log_start_offset),)
        if answer.has_records:
            return (AppendRecords(answer.high_watermark), *log_start)
        return (*self.on_appended(answer.high_watermark, log.log_end_offset), *log_start)

    def on_nothing_new(
        self,
        fetch: FollowerFetch,
        log: LogView,
        now_ms: int,
        contact: LeaderContact | None = None,
    ) -> None:
        """Handle an answer without this partition: the leader accepted the fetch and has no news.

        `contact` is of a session in which each further answer means the same until `fetch` changes.
        """
        if self._is_for_this_moment(fetch, log):
            self._failures = 0
            self._confirmed_at_ms = now_ms
            self._contact = contact

    def on_contact_ended(self) -> None:
        """Record that the session no longer fetches this partition until it names it again."""
        if self._contact is not None and self._confirmed_at_ms is not None:
            self._confirmed_at_ms = max(self._confirmed_at_ms, self._contact.last_response_ms)
        self._contact = None

    def may_serve_readers(self, now_ms: int, *, lag_max_ms: int) -> bool:
        """Return whether readers may read here.

        Only what this epoch's leader confirmed, and only within the lag limit: a disconnected
        follower would show its readers the same end without limit.
        """
        confirmed_at_ms = self._confirmed_at_ms
        if confirmed_at_ms is not None and self._contact is not None:
            confirmed_at_ms = max(confirmed_at_ms, self._contact.last_response_ms)
        return confirmed_at_ms is not None and now_ms - confirmed_at_ms <= lag_max_ms

    # guard: damage-cut-once-shared-end-known (B9)
    @property
    def knows_what_is_shared(self) -> bool:
        """Return whether the log is known to be a prefix of the leader's, or where it diverges."""
        is_prefix = self._is_prefix or self._confirmed_at_ms is not None
        return is_prefix or self.parts_at is not None

    # guard: damage-repaired-up-to-log-end (I6)
    def shared_end(self, log_end_offset: Offset) -> Offset:
        return log_end_offset if self.parts_at is None else min(log_end_offset, self.parts_at)

    # guard: answer-to-present-fetch (I7)
    def _is_for_this_moment(self, fetch: FollowerFetch, log: LogView) -> bool:
        """Return whether the answer is for the present log and leader epoch.

        The last epoch counts too: truncated and filled again, a log may end at the same offset with
        other records.
        """
        return (
            fetch.leader_epoch == self.leader_epoch
            and fetch.fetch_offset == log.log_end_offset
            and fetch.last_fetched_epoch == log.latest_epoch
        )

    def on_appended(
        self, leader_high_watermark: Offset, log_end_offset: Offset
    ) -> tuple[FollowerEffect, ...]:
        followed = min(leader_high_watermark, log_end_offset)  # I1
        if followed <= self.high_watermark:
            return ()  # I2
        self.high_watermark = followed
        return (HighWatermarkAdvanced(followed),)

    def log_start_at(self, leader_start_offset: Offset) -> Offset:
        """Return the log start to follow, after the append.

        It is at or below the own high watermark (I1).
        """
        return min(leader_start_offset, self.high_watermark)

    def on_truncated(
        self,
        *,
        to_offset: Offset,
        removed_records: int,
        log_end_offset: Offset,
        last_epoch: LeaderEpoch,
    ) -> None:
        """Record a truncation and count what it cost.

        Only a leader of an unclean election truncates below the own watermark. `to_offset` is as
        requested: the log may end below it, because a batch is never split, and what an empty batch
        of compaction covers there the leader has too. `last_epoch` is from before the truncation.
        """
        if self.untruncated is None:
            end = Offset(log_end_offset + removed_records)
            self.untruncated = UntruncatedLog(last_epoch, end, self.high_watermark)
        self.truncated_records += removed_records
        self._forget_confirmation()
        if log_end_offset < self.high_watermark:
            self.committed_truncated_records += max(0, self.high_watermark - to_offset)
            self.high_watermark = log_end_offset  # I1 outranks I2, which such an election suspends

    def on_restarted(self, offset: Offset) -> None:
        """Record that the log was dropped and starts again at `offset` (KAFKA-9491)."""
        self.high_watermark = offset
        self._forget_confirmation()

    def on_truncation_missed(self, now_ms: int) -> None:
        """Record that a truncation met a corrupt batch.

        The log diverges where it was to be truncated.
        """
        self.parts_at = self._reported_to_part_at
        self.on_bad_records(now_ms)

    def on_bad_records(self, now_ms: int) -> None:
        """Back off after records that failed the log's checks; none was kept."""
        self._back_off(ErrorCode.CORRUPT_MESSAGE, now_ms)

    def _forget_confirmation(self) -> None:
        self._confirmed_at_ms = self._contact = None
        self._is_prefix = False

    def _on_out_of_range(
        self, answer: LeaderResponse, log: LogView, now_ms: int
    ) -> tuple[FollowerEffect, ...]:
        if answer.log_start_offset > log.log_end_offset or _has_nothing(log):
            self._failures = 0
            return (RestartLogAt(answer.log_start_offset),)
        # We end past the leader without an epoch that says where we part: no proof, so nothing
        # is cut. Kafka asks for the leader's end and truncates to it; epochs make that needless.
        self._back_off(answer.error, now_ms)
        return ()

    # guard: restart-once-out-of-isr (S32)
    def _is_word_awaited(self) -> bool:
        """Return whether the controller must first remove the entry that names this replica (S32).

        A leader that asks for a restart of the log knows the entry is removed.
        """
        return self.is_isr_or_elr_member

    # guard: truncate-by-leader-epoch (I4)
    def _truncation(self, diverging: DivergingEpoch, log: LogView) -> TruncateLog:
        """Return where to truncate (reference 3.4).

        The leader named the end of the largest epoch that it shares with the requested one. Without
        that epoch here, truncate to where the next lower one ends and ask again.
        """
        own = log.end_offset_for(diverging.epoch)
        if own is None:
            return TruncateLog(min(diverging.end_offset, log.log_end_offset))
        own_epoch, own_end = own
        if own_epoch != diverging.epoch:
            return TruncateLog(min(own_end, log.log_end_offset))
        return TruncateLog(min(own_end, diverging.end_offset, log.log_end_offset))

    def _back_off(self, error: ErrorCode, now_ms: int) -> None:
        self._failures = min(self._failures + 1, 16)
        soon_ms = FIRST_BACK_OFF_MS << (self._failures - 1)
        delay_ms = soon_ms if error in _SOON else MAX_BACK_OFF_MS
        self.wake_at_ms = now_ms + min(delay_ms, MAX_BACK_OFF_MS)


def _has_nothing(log: LogView) -> bool:
    """Return whether the log has neither records nor an epoch that could be asked about.

    It started again where an earlier leader's log starts.
    """
    return log.log_start_offset == log.log_end_offset and log.latest_epoch == NO_EPOCH


# guard: restart-below-leader-log-start (S32)
def _keeps_nothing(cut: TruncateLog, answer: LeaderResponse) -> bool:
    """Return whether nothing remains of what the leader still has (S32).

    Whether the rest was committed is unknown, and a restart may show it to readers again. A log
    that ends where the leader's starts may continue: the leader knows the last epoch before that.
    What is known of producers stays with it.
    """
    return cut.to_offset < answer.log_start_offset


# guard: no-agreement-on-forgotten-epoch (S32)
def is_removed(epoch: LeaderEpoch, log: LogView) -> bool:
    """Return whether retention removed the epoch, and so the offset where it ended."""
    return epoch < log.first_epoch and log.log_start_offset > 0


def is_isr_or_elr_member(fetch: ReplicaFetch, state: PartitionState) -> bool:
    """Return whether an ISR or ELR entry names the follower (I6).

    It has all that is committed, and must not drop it to copy it again.
    """
    entry = Member(fetch.broker_id, fetch.broker_epoch)
    return entry in (*state.in_sync_replicas, *state.eligible_leaders)


def common_end_offset(
    fetch: ReplicaFetch, log: LogView, state: PartitionState
) -> tuple[LeaderEpoch, Offset] | None:
    """Return the epoch and offset up to which a follower's log equals the leader's.

    By its last epoch; None if the leader lost that epoch. Below the log start: nothing that the
    leader has is common.
    """
    epoch = fetch.last_fetched_epoch
    if not is_removed(epoch, log):
        return log.end_offset_for(epoch)
    if is_isr_or_elr_member(fetch, state):
        return epoch, log.log_start_offset
    return epoch, Offset(log.log_start_offset - 1)
