"""Decide, as leader of a partition, who is in sync, what is committed and whom to serve.

Kafka's Partition with KIP-497 (proposals), KIP-903 (broker epochs) and KIP-966 (strict min ISR), or
`safety.md` where that is stricter: a fetch counts for an in-sync entry only if the broker epochs
are equal (S2); a proposed member is dropped only on a state with a higher partition epoch than the
one it was proposed on (S3); a member that fetches below the high watermark is removed immediately
(S7). It does not read logs or send anything. Invariants here: I1, I2, I9, I15.

`preferred_replica` is Kafka's RackAwareReplicaSelector (KIP-392): the leader, unless it is in
another rack than the consumer and an in-sync replica of that rack has the offset. Only the
committed in-sync set counts, never a proposed one (KAFKA-14372), and of a member only the broker
epoch that the entry names (S2).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tidemark_protocol.controller_messages import BrokerState, IsrProposal
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_EPOCH, BrokerId, LeaderEpoch, Offset
from tidemark_protocol.partition_state import Member, PartitionState

from tidemark_broker.replication.core.effects import (
    DivergingEpoch,
    FetchVerdict,
    HighWatermarkAdvanced,
    LeaderAssignment,
    LeaderEffect,
    LeaderSettings,
    LogView,
    ProposeIsr,
    RejectFetch,
    ReplicaFetch,
)
from tidemark_broker.replication.core.follower import common_end_offset
from tidemark_broker.replication.core.remote_replica import (
    NEVER_MS,
    UNKNOWN_OFFSET,
    FollowerContact,
    RemoteReplica,
    in_turn,
)

# After a rejection, or after the controller removed a member, no replica is proposed to join for
# so long: the controller knows of a failure or a stop that is not pushed yet, and until it is,
# proposal and rejection would repeat at the speed of the network.
JOIN_HOLD_OFF_MS = 100

# The controller will tell what is true by a push or with the answer; the same proposal again
# would only be refused again (Kafka: stay pending, wait for metadata).
_WAIT_FOR_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


@dataclass(frozen=True, slots=True)
class _Pending:
    proposal: IsrProposal
    maximal_members: tuple[Member, ...]  # what the high watermark waits for meanwhile
    adding: Member | None
    since_ms: int


class PartitionLeader:
    """A leader of one partition in one leader epoch; `now_ms` is monotonic."""

    def __init__(
        self,
        grant: LeaderAssignment,
        brokers: Mapping[BrokerId, BrokerState],
        *,
        log_end_offset: Offset,
        high_watermark: Offset,
        now_ms: int,
        previous: "PartitionLeader | None" = None,
    ) -> None:
        state = grant.state
        # S2: only the life that the grant names may lead.
        assert state.leader == grant.broker_id, (state.leader, grant.broker_id)
        assert state.leader_broker_epoch == grant.broker_epoch, (state, grant.broker_epoch)
        assert high_watermark <= log_end_offset, (high_watermark, log_end_offset)  # I1
        self.topic_id = grant.topic_id
        self.broker_id = grant.broker_id
        self.settings = grant.settings
        self.state = state
        self.leader_epoch: LeaderEpoch = state.leader_epoch
        self.epoch_start_offset = log_end_offset
        self.log_end_offset = log_end_offset
        # S11: with flush Always nothing here is known to be durable until on_flushed.
        self.durable_end_offset = UNKNOWN_OFFSET if self.settings.flushes_always else log_end_offset
        self.high_watermark = high_watermark
        self.failed_isr_updates = 0
        self._brokers = brokers
        self._pending: _Pending | None = None
        self._join_not_before_ms = NEVER_MS
        self._rejected: Member | None = None  # last, when it was to join
        self._followers: dict[BrokerId, RemoteReplica] = {}
        in_sync_ids = state.in_sync_ids
        trusted = previous._followers if previous and self._is_next_epoch_of(previous) else {}
        for broker_id in state.replicas:
            if broker_id == self.broker_id:
                continue
            replica = RemoteReplica()
            known = trusted.get(broker_id) if self._has_stayed(broker_id) else None
            if known is not None:  # only the epoch rose: its progress is still true
                replica.log_end_offset = known.log_end_offset
                replica.log_start_offset = known.log_start_offset
                replica.broker_epoch = known.broker_epoch
                replica.leader_end_at_last_fetch = log_end_offset
                replica.last_fetch_ms = now_ms
            # Members get the grace of one full lag window, others none.
            replica.last_caught_up_ms = now_ms if broker_id in in_sync_ids else NEVER_MS
            self._followers[broker_id] = replica

    # guard: progress-kept-in-next-epoch-only (S27)
    def _is_next_epoch_of(self, previous: "PartitionLeader") -> bool:
        """Return whether the leader epoch directly follows the previous one (S27).

        In an epoch that we did not receive another broker may have led, and our followers truncated
        their logs to its. What they had before does not count then, until they fetch again.
        """
        return self.leader_epoch == previous.leader_epoch + 1

    # guard: progress-of-members-only (S30)
    def _has_stayed(self, broker_id: BrokerId) -> bool:
        """Return whether the broker was a member all the time (S30).

        A replica that left, which raises the epoch, erased its log, and may be a replica again in
        the state that we receive. A member is not such a one: it joins by us alone.
        """
        return broker_id in self.state.in_sync_ids

    def on_granted(self, now_ms: int) -> tuple[LeaderEffect, ...]:
        """Begin to lead. Called once, right after the leader epoch is assigned in the log."""
        return self._advance_high_watermark(now_ms)

    # ---- what is true now

    @property
    def in_sync_replicas(self) -> tuple[Member, ...]:
        """Return the applied (durable) ISR, as in the slice."""
        return self.state.in_sync_replicas

    @property
    def maximal_in_sync_replicas(self) -> tuple[Member, ...]:
        """Return the applied and the proposed ISR (I15).

        The controller may have stored the proposal already.
        """
        pending = self._pending
        return self.state.in_sync_replicas if pending is None else pending.maximal_members

    @property
    def pending_proposal(self) -> IsrProposal | None:
        return None if self._pending is None else self._pending.proposal

    # guard: enough-in-sync-replicas (I9)
    @property
    def has_enough_in_sync_replicas(self) -> bool:
        """Return whether acks=all may be appended; it is acknowledged once committed (I9)."""
        return len(self.state.in_sync_replicas) >= self.state.min_insync_replicas

    @property
    def hides_latest_offset(self) -> bool:
        """Return whether the latest offset is not shown yet (KIP-207).

        Below the start of its epoch the high watermark may be behind the last leader's, and a
        client would see the latest offset go back.
        """
        return self.high_watermark < self.epoch_start_offset

    def follower(self, broker_id: BrokerId) -> RemoteReplica | None:
        """Return a follower's progress, with its times as of its session's last fetch."""
        replica = self._followers.get(broker_id)
        if replica is not None:
            replica.record_contact(self.log_end_offset)
        return replica

    # ---- fetches

    def check_fetch(self, fetch: ReplicaFetch, log: LogView) -> FetchVerdict:
        """Check a fetch in Kafka's order: leader epoch, replica, broker epoch, then the log.

        None: read, then report `on_fetch`. Nothing else changes the follower's progress.
        """
        epoch = fetch.current_leader_epoch
        error = self._leader_epoch_error(epoch)
        if error is not ErrorCode.NONE:
            return RejectFetch(error)
        replica = self._followers.get(fetch.broker_id)
        if replica is None:
            # It may know a newer assignment than we do: retriable (KAFKA-13837).
            return RejectFetch(
                ErrorCode.NOT_LEADER_OR_FOLLOWER
                if epoch == NO_EPOCH
                else ErrorCode.UNKNOWN_LEADER_EPOCH
            )
        if fetch.broker_epoch == NO_EPOCH:
            # Kafka accepts brokers older than KIP-903 here; we have none.
            return RejectFetch(ErrorCode.INVALID_REQUEST)
        if self._is_earlier_epoch(fetch, replica):
            return RejectFetch(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._check_position(fetch, log)

    # guard: fetch-in-same-leader-epoch (I6)
    def _leader_epoch_error(self, epoch: LeaderEpoch) -> ErrorCode:
        if epoch != NO_EPOCH and epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH if epoch > self.leader_epoch else ErrorCode.NONE

    # guard: fetch-not-of-earlier-life (I6)
    def _is_earlier_epoch(self, fetch: ReplicaFetch, replica: RemoteReplica) -> bool:
        """Return whether the fetch is of an earlier broker epoch (KIP-903).

        The metadata, or the follower itself, already had a later one.
        """
        known = self._brokers.get(fetch.broker_id)
        newest = replica.broker_epoch if known is None else known.broker_epoch
        return fetch.broker_epoch < max(newest, replica.broker_epoch)

    # guard: lost-epoch-is-diverging (S22)
    def _check_position(self, fetch: ReplicaFetch, log: LogView) -> FetchVerdict:
        last_epoch = fetch.last_fetched_epoch
        if fetch.fetch_offset < log.log_start_offset:
            return RejectFetch(ErrorCode.OFFSET_OUT_OF_RANGE)  # even if diverging (KAFKA-12996)
        if last_epoch != NO_EPOCH:
            end = common_end_offset(fetch, log, self.state)
            if end is None:
                # S22: Kafka answers OFFSET_OUT_OF_RANGE here, for ever on an idle partition.
                return DivergingEpoch(log.latest_epoch, log.log_end_offset)
            if end[0] < last_epoch or end[1] < fetch.fetch_offset:
                return DivergingEpoch(*end)
        if fetch.fetch_offset > log.log_end_offset:
            return RejectFetch(ErrorCode.OFFSET_OUT_OF_RANGE)
        return None

    def on_fetch(
        self,
        fetch: ReplicaFetch,
        *,
        leader_end: Offset,
        now_ms: int,
        contact: FollowerContact | None = None,
    ) -> tuple[LeaderEffect, ...]:
        """Handle an accepted fetch whose read succeeded; `leader_end` is from before the read.

        `contact` is of a session that does not name the partition again while nothing changes.
        """
        replica = self._followers[fetch.broker_id]
        replica.on_fetch(
            fetch.fetch_offset,
            fetch.broker_epoch,
            leader_end=leader_end,
            now_ms=now_ms,
            contact=contact,
        )
        replica.log_start_offset = fetch.log_start_offset
        advanced = self._advance_high_watermark(now_ms)
        entry = Member(fetch.broker_id, fetch.broker_epoch)
        if entry in self.state.in_sync_replicas and fetch.fetch_offset >= self.high_watermark:
            return advanced
        return advanced + self._propose_if_free(now_ms)

    # ---- the log grows

    def on_append(self, log_end_offset: Offset, now_ms: int) -> tuple[LeaderEffect, ...]:
        assert log_end_offset >= self.log_end_offset, (log_end_offset, self.log_end_offset)
        for replica in self._followers.values():
            replica.record_contact(self.log_end_offset)
        self.log_end_offset = log_end_offset
        if not self.settings.flushes_always:
            self.durable_end_offset = log_end_offset
        return self._advance_high_watermark(now_ms)

    def on_flushed(self, durable_end_offset: Offset, now_ms: int) -> tuple[LeaderEffect, ...]:
        """Record that all below is on disk, with its directory entries and epochs (S11)."""
        self.durable_end_offset = max(self.durable_end_offset, durable_end_offset)
        return self._advance_high_watermark(now_ms)

    # ---- metadata

    def on_brokers(
        self, brokers: Mapping[BrokerId, BrokerState], now_ms: int
    ) -> tuple[LeaderEffect, ...]:
        """Handle a change of fenced or stopping brokers: for whom to wait, and who may join."""
        self._brokers = brokers
        return self._advance_high_watermark(now_ms) + self._propose_if_free(now_ms)

    def on_state(self, state: PartitionState, now_ms: int) -> tuple[LeaderEffect, ...]:
        """Apply a state of this leader epoch, from a push or a response.

        Older or equal states change nothing: a response and a push may both carry the same one.
        """
        assert state.leader_epoch == self.leader_epoch, (state.leader_epoch, self.leader_epoch)
        if not self._is_newer(state):
            return ()
        before = self.state.in_sync_ids
        after = state.in_sync_ids
        pending = self._pending
        if pending is not None:
            # S3: every change and every refusal raises the partition epoch, so the proposal,
            # made on a lower one, can no longer land.
            self._pending = None
            # The controller writes members in its own order.
            if set(state.in_sync_replicas) != set(pending.proposal.new_in_sync_replicas):
                self.failed_isr_updates += 1
                self._join_not_before_ms = now_ms + JOIN_HOLD_OFF_MS
                self._rejected = pending.adding
        elif before - after:
            self._join_not_before_ms = now_ms + JOIN_HOLD_OFF_MS
        self.state = state
        for broker_id in tuple(self._followers):
            if broker_id not in state.replicas:
                del self._followers[broker_id]
        for broker_id in state.replicas:
            if broker_id != self.broker_id and broker_id not in self._followers:
                self._followers[broker_id] = RemoteReplica()
        return self._advance_high_watermark(now_ms) + self._propose_if_free(now_ms)

    # guard: leader-applies-newer-state (I14)
    def _is_newer(self, state: PartitionState) -> bool:
        return state.partition_epoch > self.state.partition_epoch

    def on_settings(self, settings: LeaderSettings) -> None:
        """Apply changed topic settings; commit rule and flush are immutable (S6)."""
        self.settings = settings

    # ---- proposals

    # guard: refusal-keeps-proposal-pending (S3)
    def on_response(
        self, proposal: IsrProposal, error: ErrorCode, now_ms: int
    ) -> tuple[LeaderEffect, ...]:
        """Handle the controller's result, whose state went through `on_state` first.

        If the proposal is still pending after that, no higher partition epoch is known: it may yet
        be stored, so it stays pending (S3). It is sent again unless metadata must come first.
        """
        pending = self._pending
        if pending is None or pending.proposal != proposal:
            return ()
        if error is not ErrorCode.NONE:
            self.failed_isr_updates += 1
        if error in _WAIT_FOR_METADATA:
            return ()
        return (ProposeIsr(proposal),)

    def on_pulse(self, now_ms: int) -> tuple[LeaderEffect, ...]:
        """Do, several times a second, what depends on time alone.

        Fetches of sessions do not name a partition for its sake.
        """
        state = self.state
        if len(state.in_sync_replicas) < len(state.replicas):
            return self._advance_high_watermark(now_ms) + self._propose_if_free(now_ms)
        if self.high_watermark < self.log_end_offset:
            return self._advance_high_watermark(now_ms)
        return ()

    def on_tick(self, now_ms: int) -> tuple[LeaderEffect, ...]:
        """Remove members that are not caught up, never itself. Called each half lag window."""
        advanced = self._advance_high_watermark(now_ms)  # a lagging joiner is waited for no more
        pending = self._pending
        if pending is not None:
            if now_ms - pending.since_ms < self.settings.replica_lag_max_ms:
                return advanced
            # Neither answer nor metadata came: ask again, the answer carries the full state.
            self._pending = replace(pending, since_ms=now_ms)
            return (*advanced, ProposeIsr(pending.proposal))
        kept = tuple(
            member
            for member in self.state.in_sync_replicas
            if member.broker_id == self.broker_id or self._is_in_sync(member, now_ms)
        )
        if len(kept) == len(self.state.in_sync_replicas):
            return advanced
        return advanced + self._propose(kept, None, now_ms)

    # guard: leader-stall-makes-none-late (S21)
    def on_stall(self, stall_ms: int, now_ms: int) -> None:
        """Exclude a stall of this process from the followers' lag (S21)."""
        for replica in self._followers.values():
            replica.record_contact(self.log_end_offset)
            replica.on_leader_stall(stall_ms, now_ms)

    def _propose_if_free(self, now_ms: int) -> tuple[LeaderEffect, ...]:
        if self._pending is not None:
            return ()
        return self._propose_change(now_ms)

    def _propose_change(self, now_ms: int) -> tuple[LeaderEffect, ...]:
        """Propose to remove members below the high watermark, else to add one that may join."""
        members = self.state.in_sync_replicas
        kept = tuple(member for member in members if not self._is_below_watermark(member))
        if len(kept) < len(members):
            return self._propose(kept, None, now_ms)  # S7
        if now_ms < self._join_not_before_ms:
            return ()
        for broker_id in in_turn(self.state.replicas, self._rejected):
            replica = self._followers.get(broker_id)
            if replica is None or not self._may_join(broker_id, replica, now_ms):
                continue
            adding = Member(broker_id, replica.broker_epoch)
            others = tuple(member for member in members if member.broker_id != broker_id)
            return self._propose((*others, adding), adding, now_ms)
        return ()

    def _propose(
        self, members: tuple[Member, ...], adding: Member | None, now_ms: int
    ) -> tuple[LeaderEffect, ...]:
        proposal = IsrProposal(
            topic_id=self.topic_id,
            partition=self.state.partition,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.state.partition_epoch,
            new_in_sync_replicas=members,
        )
        # A join assumed early only makes the watermark stricter; a shrink must not be assumed,
        # it could move it too far.
        maximal = self.state.in_sync_replicas + (() if adding is None else (adding,))
        self._pending = _Pending(proposal, maximal, adding, now_ms)
        return (ProposeIsr(proposal),)

    def _may_join(self, broker_id: BrokerId, replica: RemoteReplica, now_ms: int) -> bool:
        return (
            Member(broker_id, replica.broker_epoch) not in self.state.in_sync_replicas
            and self._is_eligible(broker_id, replica)
            and self._has_reached_watermark(replica)
            and self._has_reached_epoch_start(replica)
            and self._has_fetched_lately(replica, now_ms)
        )

    def _has_fetched_lately(self, replica: RemoteReplica, now_ms: int) -> bool:
        """Return whether the replica fetched within the lag limit.

        Kafka considers a joiner only when it fetches. One that no longer fetches would be removed
        and proposed in turns while the watermark stands still.
        """
        replica.record_contact(self.log_end_offset)
        return now_ms - replica.last_fetch_ms <= self.settings.replica_lag_max_ms

    # guard: join-at-watermark (I6)
    def _has_reached_watermark(self, replica: RemoteReplica) -> bool:
        return replica.log_end_offset >= self.high_watermark

    # guard: join-past-epoch-start (I6)
    def _has_reached_epoch_start(self, replica: RemoteReplica) -> bool:
        """Return whether the replica has reached the epoch's start.

        Between watermark and epoch start there may be committed records (KAFKA-7128).
        """
        return replica.log_end_offset >= self.epoch_start_offset

    def _is_eligible(self, broker_id: BrokerId, replica: RemoteReplica) -> bool:
        """Return whether the replica may join the ISR (KIP-841, KIP-903).

        A fetch without a broker epoch does not count here (S2).
        """
        broker = self._brokers.get(broker_id)
        return (
            broker is not None
            and not broker.is_fenced
            and not broker.is_stopping
            and self._is_current_epoch(replica, broker)
        )

    # guard: proposal-of-present-life (S2)
    def _is_current_epoch(self, replica: RemoteReplica, broker: BrokerState) -> bool:
        return replica.broker_epoch != NO_EPOCH and replica.broker_epoch == broker.broker_epoch

    def _is_in_sync(self, member: Member, now_ms: int) -> bool:
        replica = self._followers.get(member.broker_id)
        if replica is None:
            return False
        if replica.broker_epoch not in (NO_EPOCH, member.broker_epoch):
            return False  # another life fetches: nobody feeds this entry any more (S2)
        if self._is_below_watermark(member):
            return False
        return replica.is_caught_up(
            leader_end=self.log_end_offset,
            now_ms=now_ms,
            lag_max_ms=self.settings.replica_lag_max_ms,
        )

    # guard: member-below-watermark-is-expelled (S7)
    def _is_below_watermark(self, member: Member) -> bool:
        """Return whether a member's own fetch shows that it lost committed records (S7).

        In any epoch of it: the entry says that this broker has them.
        """
        replica = self._followers.get(member.broker_id)
        return (
            replica is not None
            and replica.log_end_offset != UNKNOWN_OFFSET
            and replica.log_end_offset < self.high_watermark
        )

    # ---- the high watermark

    def _advance_high_watermark(self, now_ms: int) -> tuple[LeaderEffect, ...]:
        if not self._may_commit():
            return ()
        slowest = self.durable_end_offset
        for member in self._waited_for():
            if member.broker_id == self.broker_id:
                continue
            replica = self._followers.get(member.broker_id)
            if replica is None or not self._counts_for(replica, member):
                return ()
            slowest = min(slowest, replica.log_end_offset)
        if slowest <= self.high_watermark:
            return ()  # I2
        slowest = min(slowest, self._slowest_joiner(slowest, now_ms))
        if slowest <= self.high_watermark:
            return ()
        self.high_watermark = slowest
        assert self.high_watermark <= self.log_end_offset  # I1
        return (HighWatermarkAdvanced(slowest),)

    # guard: watermark-waits-for-min-isr (I6)
    def _may_commit(self) -> bool:
        """Return whether records may commit now (KIP-966).

        Else a lone survivor commits what no other replica has.
        """
        return self.settings.commits_by_isr_alone or self.has_enough_in_sync_replicas

    # guard: watermark-waits-for-maximal-isr (I6)
    def _waited_for(self) -> tuple[Member, ...]:
        """Return the members to wait for.

        Replicas proposed for the ISR count already: none may enter it behind the watermark.
        """
        return self.maximal_in_sync_replicas

    # guard: fetch-counts-for-its-own-life (S2)
    def _counts_for(self, replica: RemoteReplica, member: Member) -> bool:
        """Return whether the fetches are of the entry's broker epoch (S2)."""
        return replica.broker_epoch == member.broker_epoch

    # guard: watermark-waits-for-joiners (I6)
    def _slowest_joiner(self, slowest_member: Offset, now_ms: int) -> Offset:
        """Return the end of the slowest eligible replica that is caught up by time.

        It is waited for too, else a joiner never catches up under load. Ineligible ones must not be
        (KAFKA-15021).
        """
        slowest = slowest_member
        for broker_id, replica in self._followers.items():
            if replica.log_end_offset >= slowest:
                continue
            is_caught_up = replica.is_caught_up(
                leader_end=self.log_end_offset,
                now_ms=now_ms,
                lag_max_ms=self.settings.replica_lag_max_ms,
            )
            if is_caught_up and self._is_eligible(broker_id, replica):
                slowest = replica.log_end_offset
        return slowest


def preferred_replica(
    leader: PartitionLeader,
    brokers: Mapping[BrokerId, BrokerState],
    *,
    rack: str,
    offset: Offset,
) -> BrokerId:
    """Return the replica that a consumer in this rack reads from (KIP-392).

    That is the leader unless an in-sync follower of this rack can serve the offset. Among several
    such followers: the one with the most records, then the one caught up last, then the lowest id.
    """
    own = brokers.get(leader.broker_id)
    if not rack or (own is not None and own.rack == rack):
        return leader.broker_id
    nearest: tuple[int, int, int] | None = None
    for member in leader.in_sync_replicas:
        follower = leader.follower(member.broker_id)
        if follower is None or not may_be_preferred(leader, brokers, member, offset):
            continue
        if brokers[member.broker_id].rack == rack:
            rank = (-follower.log_end_offset, -follower.last_caught_up_ms, int(member.broker_id))
            nearest = rank if nearest is None else min(nearest, rank)
    return leader.broker_id if nearest is None else BrokerId(nearest[2])


# guard: preferred-follower-has-offset (B10)
def may_be_preferred(
    leader: PartitionLeader,
    brokers: Mapping[BrokerId, BrokerState],
    member: Member,
    offset: Offset,
) -> bool:
    """Return whether an in-sync follower serves readers at this offset, in its entry's epoch.

    A client that is sent to a follower without the offset would be sent back here, and there again.
    """
    broker = brokers.get(member.broker_id)
    follower = leader.follower(member.broker_id)
    return (
        broker is not None
        and follower is not None
        and member in leader.in_sync_replicas
        and not broker.is_fenced
        and not broker.is_stopping
        and broker.broker_epoch == member.broker_epoch
        and follower.broker_epoch == member.broker_epoch
        and follower.log_start_offset <= offset <= follower.log_end_offset
    )
