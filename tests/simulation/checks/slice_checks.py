"""I12 to I14, I16, I18 and I19 over what the store holds: every write of a slice or Broker.

Pure: the object before, the object after, and what else was durable then. What a write means (which
kind of election, a shrink, a refusal) is told to the caller as events, for the coverage table and
for the invariants that an election of the longest log or an unclean one suspends.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from tidemark_operator.api.broker import BrokerControlState, BrokerRecord
from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.controller.core.partition_change import COMMIT_RULE_ISR
from tidemark_protocol.ids import BrokerEpoch, BrokerId, ControllerEpoch, TopicId
from tidemark_protocol.partition_state import Member, PartitionState

from tests.simulation.checks.operation_checks import left_too_early
from tests.simulation.checks.violations import FLIPPED_EPOCH, BeyondPromises, Violation

Brokers = Mapping[BrokerId, BrokerRecord]

SAME_LEADER = "election: same leader, new epoch"
IN_SYNC = "election: in-sync replica"
ELIGIBLE = "election: eligible leader"
UNCLEAN = "election: unclean"
LONGEST_LOG = "election: longest log"
RETAINED_DISK = "election: by a kept disk alone"  # beside one of the others
ELECTIONS = (SAME_LEADER, IN_SYNC, ELIGIBLE, RETAINED_DISK, UNCLEAN, LONGEST_LOG)
WITHOUT_CLEAN_SHUTDOWN = (UNCLEAN, LONGEST_LOG)
CHANGES = (
    "ISR shrink",
    "ISR expand",
    "eligible leaders appear",
    "leadership lost",
    "replica added",
    "replica not added after all",
    "replica removed",
    "replicas in another order",
    "min ISR changed",
    "refused proposal",
)


@dataclass(frozen=True, slots=True)
class SliceEvent:
    """What one write did to one partition. `kind` is a row of the coverage table."""

    kind: str
    topic_id: TopicId
    partition: int
    state: PartitionState


@dataclass(frozen=True, slots=True)
class DroppedEntry:
    """An entry that left every set while the ISR was below min ISR, or, with commit rule Isr, the
    last ones in it (I13): right only if it was void, which its broker's registration may say
    durably a moment later."""

    topic_id: TopicId
    partition: int
    flush: str
    member: Member
    text: str


class NotStored(Protocol):
    """What a write may rest on that no object says; `ClusterObserver`."""

    def is_lost(
        self,
        topic_id: TopicId,
        partition: int,
        member: Member,
        known_to: ControllerEpoch,
        *,
        surely: bool,
    ) -> bool:
        """This controller was told that the broker's replica is gone or failed (S9). `surely`:
        before it decided what it has written."""

    def was_lost(self, topic_id: TopicId, partition: int, member: Member) -> bool:
        """Any controller, at any time so far."""

    def is_missing(self, topic_id: TopicId, partition: int, member: Member) -> bool:
        """The broker's next life is there, and its replica is not."""

    def known_broker(self, broker_id: BrokerId, to: ControllerEpoch) -> BrokerRecord | None:
        """As that controller sees it now; None if it knows no such broker or is no more."""

    def last_known_broker(self, broker_id: BrokerId, to: ControllerEpoch) -> BrokerRecord | None:
        """As that controller saw it last, should it be no more."""

    def has_flipped_epoch(self, topic: str, partition: int, epoch: int) -> bool:
        """Of some batch in a living broker's log, by a bit that flipped (0061)."""

    def is_chosen(self, topic_id: TopicId, before: PartitionState, leader: BrokerId) -> bool:
        """A human named that leader for that leader epoch."""


class SliceChecker:
    def __init__(self, cluster: NotStored) -> None:
        self._cluster = cluster
        self._unfenced: dict[Member, None] = {}  # lives that were stored as active
        self.dropped: list[DroppedEntry] = []
        # Put back from a backup by hand, and nobody was elected since (S17).
        self.restored: dict[tuple[TopicId, int], None] = {}

    def on_slice(
        self, before: PartitionSlice | None, after: PartitionSlice, brokers: Brokers
    ) -> list[SliceEvent]:
        """Raises Violation."""
        if before is not None and after.controller_epoch < before.controller_epoch:
            raise Violation(
                "I16",
                f"{after.name}: controller epoch {after.controller_epoch} wrote over"
                f" {before.controller_epoch}",
            )
        known = {} if before is None else {state.partition: state for state in before.partitions}
        events: list[SliceEvent] = []
        for state in after.partitions:
            self._check_shape(after, state)
            old = known.get(state.partition)
            if old is None:
                self._check_begun(after, state)
            elif old != state:
                kinds = self._transition(after, old, state, brokers)
                events += [
                    SliceEvent(kind, after.topic.topic_id, state.partition, state) for kind in kinds
                ]
        return events

    def on_broker(self, before: BrokerRecord | None, after: BrokerRecord) -> None:
        """I14, S2: broker epochs rise with every life, and what is void stays void."""
        if after.state is BrokerControlState.ACTIVE:
            self._unfenced[Member(after.broker_id, after.broker_epoch)] = None
        if before is None:
            return
        is_other_epoch = before.incarnation != after.incarnation
        if after.broker_epoch < before.broker_epoch or (
            is_other_epoch and after.broker_epoch == before.broker_epoch
        ):
            raise Violation("I14", f"Broker {after.broker_id}: {before} became {after}")
        if after.clean_since < before.clean_since:
            raise Violation("I14", f"Broker {after.broker_id}: cleanSince fell: {before} {after}")
        if after.disk_since < before.disk_since or after.disk_since > after.clean_since:
            raise Violation("I14", f"Broker {after.broker_id}: diskSince: {before} {after}")

    def conclude(self, brokers: Brokers) -> None:
        """At the end, when every broker registered again: whoever was dropped was void."""
        for entry in self.dropped:
            record = brokers.get(entry.member.broker_id)
            if record is None or entry.member.broker_epoch < proves_since(record, entry.flush):
                continue
            if self._cluster.was_lost(entry.topic_id, entry.partition, entry.member):
                continue  # known to the controller only once that registration was done
            raise Violation("I13", f"{entry.text}; its broker is {record}")

    # ---- inside

    def _check_shape(self, value: PartitionSlice, state: PartitionState) -> None:
        where = f"{value.name} partition {state.partition}: {_short(state)}"
        in_sync = [member.broker_id for member in state.in_sync_replicas]
        eligible = [member.broker_id for member in state.eligible_leaders]
        if len(set(state.replicas)) != len(state.replicas):
            raise Violation("I18", f"{where}: one broker twice among the replicas")
        if state.has_leader and state.leader not in in_sync:
            raise Violation("I12", f"{where}: the leader is not in the ISR")
        both = in_sync + eligible
        if len(set(both)) != len(both) or not set(both) <= set(state.replicas):
            raise Violation("I12", f"{where}: ISR and eligible leaders overlap or are no replicas")
        is_large = len(in_sync) >= state.min_insync_replicas
        if eligible and (is_large or value.topic.commit_rule == COMMIT_RULE_ISR):
            raise Violation("I13", f"{where}: eligible leaders although there may be none")

    def _check_begun(self, value: PartitionSlice, state: PartitionState) -> None:
        """I12: a new partition is led and counted on by lives that were unfenced durably, too. What
        somebody put back was so once."""
        for member in state.in_sync_replicas:
            if member not in self._unfenced:
                where = f"{value.name} partition {state.partition}: {_short(state)}"
                raise Violation(
                    "I12", f"{where}: it begins with {member}, which was never unfenced"
                )

    def _transition(
        self,
        value: PartitionSlice,
        old: PartitionState,
        new: PartitionState,
        brokers: Brokers,
    ) -> Iterable[str]:
        where = f"{value.name} partition {new.partition}: {_short(old)} became {_short(new)}"
        if new.partition_epoch <= old.partition_epoch:
            raise Violation("I14", f"{where}: a change that does not raise the partition epoch")
        key = (value.topic.topic_id, new.partition)
        if key in self.restored and not (new.has_leader or new.in_sync_replicas):
            return ["rebuilt"]  # above all that anybody holds
        is_granted = (old.leader, old.leader_broker_epoch) != (new.leader, new.leader_broker_epoch)
        rise = new.leader_epoch - old.leader_epoch
        if rise < 0 or (is_granted and rise < 1):
            raise Violation("I14", f"{where}: leader epoch")
        if rise > 1:
            # A log that reports it looks like one that knows more than the slice (S17).
            flipped = value.topic.topic, new.partition, new.leader_epoch - 1
            if self._cluster.has_flipped_epoch(*flipped):
                raise BeyondPromises(FLIPPED_EPOCH)
            raise Violation("I14", f"{where}: leader epoch rose by {rise}")
        if early := left_too_early(old, new):
            raise Violation("I19", f"{where}: {early}")
        kinds = list(_kinds_of_change(old, new))
        is_by_void_entry = False
        if rise and new.has_leader:
            self.restored.pop(key, None)
            kind = self._kind_of_election(value, old, new, brokers)
            is_by_void_entry = kind in WITHOUT_CLEAN_SHUTDOWN
            kinds.append(kind)
            if self._is_by_disk_alone(old, new, brokers, kind):
                kinds.append(RETAINED_DISK)
            self._check_granted(value, new, where)
            is_chosen = self._cluster.is_chosen(key[0], old, new.leader)
            if kind == LONGEST_LOG and not is_chosen:
                self._check_unclean_recovery(value, old, brokers, where)
            if kind == UNCLEAN:
                self._check_unclean(value, old, brokers, where)
        if not is_by_void_entry and value.topic.commit_rule != COMMIT_RULE_ISR:
            self._check_eligible(value, old, new, where)
        if value.topic.commit_rule == COMMIT_RULE_ISR and not new.in_sync_replicas:
            self._record_dropped(
                value, new, old.in_sync_replicas, f"{where}: nobody stayed in sync"
            )
        return kinds

    def _check_granted(self, value: PartitionSlice, new: PartitionState, where: str) -> None:
        """I12: to a life that was unfenced durably first, by a controller to which it still is, and
        by an entry of that very life."""
        leader = Member(new.leader, new.leader_broker_epoch)
        if leader not in new.in_sync_replicas:
            raise Violation("I12", f"{where}: led by {leader}, which the ISR does not name")
        if leader not in self._unfenced:
            raise Violation("I12", f"{where}: led by {leader}, which was never unfenced")
        known = self._cluster.known_broker(new.leader, value.controller_epoch)
        if known is None:
            return
        is_present = known.broker_epoch == new.leader_broker_epoch
        if not is_present or not known.is_live or known.is_stopping:
            raise Violation("I12", f"{where}: led by {leader}, its controller knows {known}")

    def _is_invalid(
        self,
        value: PartitionSlice,
        number: int,
        member: Member,
        brokers: Brokers,
        *,
        surely: bool = False,
    ) -> bool:
        record = brokers.get(member.broker_id)
        if record is not None and member.broker_epoch < proves_since(record, value.topic.flush):
            return True
        topic_id, epoch = value.topic.topic_id, value.controller_epoch
        return self._cluster.is_lost(topic_id, number, member, epoch, surely=surely)

    def _kind_of_election(
        self, value: PartitionSlice, old: PartitionState, new: PartitionState, brokers: Brokers
    ) -> str:
        entry = _entry_of(old.in_sync_replicas, new.leader)
        if entry is not None and not self._is_invalid(
            value, old.partition, entry, brokers, surely=True
        ):
            return SAME_LEADER if new.leader == old.leader else IN_SYNC
        entry = _entry_of(old.eligible_leaders, new.leader)
        if entry is not None and not self._is_invalid(
            value, old.partition, entry, brokers, surely=True
        ):
            return ELIGIBLE
        if value.topic.config.get("unclean.leader.election.enable") == "true":
            return UNCLEAN
        return LONGEST_LOG

    @staticmethod
    def _is_by_disk_alone(
        old: PartitionState, new: PartitionState, brokers: Brokers, kind: str
    ) -> bool:
        """S14: its start was unclean, and the entry counts on for its topic's flush."""
        if kind in WITHOUT_CLEAN_SHUTDOWN:
            return False
        entry = _entry_of(old.in_sync_replicas + old.eligible_leaders, new.leader)
        record = brokers.get(new.leader)
        assert entry is not None, kind
        return record is not None and entry.broker_epoch < record.clean_since

    def _check_unclean_recovery(
        self, value: PartitionSlice, old: PartitionState, brokers: Brokers, where: str
    ) -> None:
        """S14: only if no entry is valid any more."""
        for member in old.in_sync_replicas + old.eligible_leaders:
            if not self._is_invalid(value, old.partition, member, brokers):
                raise Violation("I12", f"{where}: led by a void entry while {member} is valid")

    def _check_unclean(
        self, value: PartitionSlice, old: PartitionState, brokers: Brokers, where: str
    ) -> None:
        """The topic's choice is not to wait: not to do without a safe replica that is there."""
        for member in old.in_sync_replicas + old.eligible_leaders:
            record = brokers.get(member.broker_id)
            # The controller fences, and lets go who wants to stop, and writes it down afterwards:
            # never, should it die before.
            known = self._cluster.last_known_broker(member.broker_id, value.controller_epoch)
            is_there = known is None or (known.is_live and not known.is_stopping)
            is_there &= record is not None and record.is_live and not record.is_stopping
            if is_there and not self._is_invalid(value, old.partition, member, brokers):
                raise Violation("I12", f"{where}: unclean, and {member} was live and valid")

    def _check_eligible(
        self, value: PartitionSlice, old: PartitionState, new: PartitionState, where: str
    ) -> None:
        """I13: (old eligible + old ISR) - new ISR - void - non-replicas."""
        if len(new.in_sync_replicas) >= new.min_insync_replicas:
            return
        in_sync = new.in_sync_ids
        may_be: dict[BrokerId, Member] = {}
        for member in (*old.eligible_leaders, *old.in_sync_replicas):
            if member.broker_id not in in_sync and member.broker_id in new.replicas:
                may_be[member.broker_id] = member
        eligible = {member.broker_id for member in new.eligible_leaders}
        if not eligible <= may_be.keys():
            raise Violation("I13", f"{where}: eligible leaders out of nowhere")
        dropped = [may_be[broker_id] for broker_id in sorted(may_be.keys() - eligible)]
        self._record_dropped(value, new, dropped, f"{where}: no longer eligible")

    def _record_dropped(
        self, value: PartitionSlice, new: PartitionState, members: Iterable[Member], text: str
    ) -> None:
        for member in members:
            replica = (value.topic.topic_id, new.partition, member)
            # Struck out before the registration that says so is stored, which may never be.
            if not self._cluster.was_lost(*replica) and not self._cluster.is_missing(*replica):
                self.dropped.append(
                    DroppedEntry(
                        value.topic.topic_id,
                        new.partition,
                        value.topic.flush,
                        member,
                        f"{text}: {member}",
                    )
                )


def proves_since(record: BrokerRecord, flush: str) -> BrokerEpoch:
    """S2, S14: what was synced before it was acknowledged is there as long as the disk is."""
    return record.disk_since if flush == "Always" else record.clean_since


def _entry_of(members: tuple[Member, ...], broker_id: BrokerId) -> Member | None:
    return next((member for member in members if member.broker_id == broker_id), None)


def _kinds_of_change(old: PartitionState, new: PartitionState) -> Iterable[str]:
    if old.in_sync_ids - new.in_sync_ids:
        yield "ISR shrink"
    if new.in_sync_ids - old.in_sync_ids:
        yield "ISR expand"
    if new.eligible_leaders and not old.eligible_leaders:
        yield "eligible leaders appear"
    if old.has_leader and not new.has_leader:
        yield "leadership lost"
    yield from _kinds_of_move(old, new)
    if old.min_insync_replicas != new.min_insync_replicas:
        yield "min ISR changed"
    if replace(new, partition_epoch=old.partition_epoch) == old:
        yield "refused proposal"


def _kinds_of_move(old: PartitionState, new: PartitionState) -> Iterable[str]:
    """An order of preference is no move: one is counted by the brokers that came, and that went."""
    present, adding, removing = set(new.replicas), set(old.adding_replicas), old.removing_replicas
    yield from ["replica added" for _ in adding & present - set(new.adding_replicas)]
    yield from ["replica not added after all" for _ in adding - present]
    yield from ["replica removed" for _ in set(removing) - present]
    if present == set(old.replicas) and new.replicas != old.replicas:
        yield "replicas in another order"


def _short(state: PartitionState) -> str:
    def members(found: tuple[Member, ...]) -> str:
        return ",".join(f"{member.broker_id}@{member.broker_epoch}" for member in found)

    return (
        f"[leader {state.leader}@{state.leader_broker_epoch} epoch {state.leader_epoch}"
        f" partition epoch {state.partition_epoch} isr {members(state.in_sync_replicas)}"
        f" eligible {members(state.eligible_leaders)} min {state.min_insync_replicas}]"
    )
