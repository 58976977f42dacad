"""Track one follower's progress at its leader (Kafka's ReplicaState, KIP-903).

Times are the leader's monotonic milliseconds. A follower always one fetch behind a busy leader
counts as caught up: its fetch reached the end that the leader had at the fetch before (KAFKA-4485).
Lag is measured by time alone; equal log ends are caught up whatever the time.

A follower's session fetches partitions that its requests no longer name (docs/decisions/0032).
Their times are taken from the session when they are read, so that idle partitions cost nothing.
"""

from dataclasses import dataclass

from tidemark_protocol.ids import NO_EPOCH, BrokerEpoch, BrokerId, Offset
from tidemark_protocol.partition_state import Member

NEVER_MS = -(1 << 62)  # so long ago that no lag window holds it
UNKNOWN_OFFSET = Offset(-1)


class FollowerContact:
    """One session of one follower, shared by the partitions that it fetches."""

    __slots__ = ("last_fetch_ms",)

    def __init__(self) -> None:
        self.last_fetch_ms = NEVER_MS


@dataclass(slots=True)
class RemoteReplica:
    log_end_offset: Offset = UNKNOWN_OFFSET
    log_start_offset: Offset = UNKNOWN_OFFSET  # raised by its own retention too
    leader_end_at_last_fetch: Offset = UNKNOWN_OFFSET
    last_fetch_ms: int = NEVER_MS
    last_caught_up_ms: int = NEVER_MS
    broker_epoch: BrokerEpoch = BrokerEpoch(NO_EPOCH)  # of the last accepted fetch
    contact: FollowerContact | None = None  # while its session asks for the same again

    def on_fetch(
        self,
        fetch_offset: Offset,
        broker_epoch: BrokerEpoch,
        *,
        leader_end: Offset,
        now_ms: int,
        contact: FollowerContact | None = None,
    ) -> None:
        """Record a fetch; `leader_end` is from before the read.

        So later appends do not count against the follower.
        """
        self.record_contact(leader_end)
        self.contact = contact
        if broker_epoch != self.broker_epoch:
            self.leader_end_at_last_fetch = (
                UNKNOWN_OFFSET  # another life's fetches do not count (S2)
            )
            if self.broker_epoch != NO_EPOCH:
                # Nor was it ever caught up: else the watermark waits a whole lag window for a
                # replica that just began to copy.
                self.last_caught_up_ms = NEVER_MS
            self.broker_epoch = broker_epoch
        if fetch_offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif UNKNOWN_OFFSET < self.leader_end_at_last_fetch <= fetch_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.leader_end_at_last_fetch = max(leader_end, self.leader_end_at_last_fetch)
        self.last_fetch_ms = now_ms

    def record_contact(self, leader_end: Offset) -> None:
        """Update the times from the session.

        Called before the leader's end moves from `leader_end`, and before times are read: each
        fetch of the session since the last time was one from `log_end_offset` too.
        """
        if self.contact is None:
            return
        last_fetch_ms = self.contact.last_fetch_ms
        self.last_fetch_ms = max(self.last_fetch_ms, last_fetch_ms)
        if self.log_end_offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, last_fetch_ms)

    def on_contact_ended(self, contact: FollowerContact, leader_end: Offset) -> None:
        """Record that the session no longer fetches this partition until it names it again."""
        if self.contact is contact:
            self.record_contact(leader_end)
            self.contact = None

    def is_caught_up(self, *, leader_end: Offset, now_ms: int, lag_max_ms: int) -> bool:
        if self.log_end_offset == leader_end:
            return True
        self.record_contact(leader_end)
        return now_ms - self.last_caught_up_ms <= lag_max_ms

    def on_leader_stall(self, stall_ms: int, now_ms: int) -> None:
        """Exclude a stall of the leader from the follower's lag (S21)."""
        if self.last_caught_up_ms > NEVER_MS:
            self.last_caught_up_ms = min(now_ms, self.last_caught_up_ms + stall_ms)
        if self.last_fetch_ms > NEVER_MS:
            self.last_fetch_ms = min(now_ms, self.last_fetch_ms + stall_ms)


# guard: refused-replica-waits-its-turn (B1)
def in_turn(replicas: tuple[BrokerId, ...], refused: Member | None) -> tuple[BrokerId, ...]:
    """Return replicas in the order in which they are proposed to join.

    The one that the controller last rejected comes last: it may have failed, which no leader is
    told, and must not keep the others out.
    """
    if refused is None or refused.broker_id not in replicas:
        return replicas
    after = replicas.index(refused.broker_id) + 1
    return replicas[after:] + replicas[:after]
