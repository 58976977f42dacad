"""The controller of one partition: the production decisions over a store with compare-and-set.

`PoolLoop` and `SliceStore` without tasks: one decision at a time, each from what is stored.
A write may be late (its outcome unknown): then nobody is told anything until it is read again.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from tidemark_operator.api.broker import BrokerControlState, BrokerRecord
from tidemark_operator.api.elect_annotation import LeaderChoice
from tidemark_operator.api.unclean_election import UncleanCause
from tidemark_operator.controller.core.elections import (
    ElectionEvidence,
    LeaderCounts,
    partition_after_election,
    preferred_leader_restored,
)
from tidemark_operator.controller.core.eligibility import BrokerEligibility, Eligibility
from tidemark_operator.controller.core.isr import Verdict, checked_proposal
from tidemark_operator.controller.core.partition_change import with_min_insync
from tidemark_operator.controller.core.registration import (
    Accepted,
    RegistrationError,
    decided,
    lost_replicas,
    report_of,
)
from tidemark_operator.controller.core.unclean_recovery import Reports, needs_reports
from tidemark_protocol.controller_messages import (
    BootRecord,
    BrokerState,
    IsrProposal,
    RegisterRequest,
    ReplicaReport,
)
from tidemark_protocol.ids import NO_EPOCH, BrokerEpoch, BrokerId, ControllerEpoch
from tidemark_protocol.partition_state import PartitionState, TopicState

from tests.model.small_broker import TOPIC_ID
from tests.support.broker_records import NOWHERE, POOL, storage_of

REPLICA = (TOPIC_ID, 0)

Decide = Callable[[PartitionState], PartitionState]


@dataclass(frozen=True, slots=True)
class LateWrite:
    """It lands, or not, while what it was decided on is still stored."""

    expected: PartitionState
    wanted: PartitionState


class SmallStore:
    """What is durable, and writes on their way."""

    __slots__ = ("late_writes", "partition")

    def __init__(self, partition: PartitionState, late_writes: tuple[LateWrite, ...] = ()) -> None:
        self.partition = partition
        self.late_writes = late_writes

    def copied(self) -> "SmallStore":
        return SmallStore(self.partition, self.late_writes)

    def compare_and_set(self, expected: PartitionState, wanted: PartitionState) -> bool:
        # guard: small-store-compares (I14)
        if self.partition != expected:
            return False
        self.partition = wanted
        return True


@dataclass(frozen=True, slots=True)
class Notes:
    """What one broker told this controller, gone with it."""

    lost: bool = False  # its registration could not show this replica whole
    lost_below: BrokerEpoch = BrokerEpoch(-1)
    report: ReplicaReport | None = None  # since nobody leads


class SmallController:
    def __init__(
        self,
        epoch: int,
        topic: TopicState,
        brokers: dict[BrokerId, BrokerRecord],
        store: SmallStore,
    ) -> None:
        self.epoch = epoch
        self.topic = topic
        self.brokers = brokers
        self.notes = dict.fromkeys(brokers, Notes())
        self.store = store
        self.known = store.partition
        self.hides = False  # the last write's outcome is unknown
        self.choice: LeaderChoice | None = None
        self.unclean_recovery: UncleanCause | None = None  # taken by the last decision
        self._key: int | None = None
        self._states: dict[BrokerId, BrokerState] | None = None
        self._eligibility: Eligibility | None = None

    def copied(self, store: SmallStore) -> "SmallController":
        copy = SmallController.__new__(SmallController)
        copy.__dict__.update(self.__dict__)
        copy.brokers, copy.notes, copy.store = dict(self.brokers), dict(self.notes), store
        copy.unclean_recovery = copy._key = copy._states = copy._eligibility = None
        return copy

    def key(self) -> int:
        """Hash of everything that decides, of what is stored and of writes on their way."""
        if self._key is None:
            self._key = hash(self._computed_key())
        return self._key

    def _computed_key(self) -> Hashable:
        return (
            self.epoch,
            tuple(
                (r.broker_epoch, r.clean_since, r.disk_since, r.state.value)
                for r in self.brokers.values()
            ),
            tuple(self.notes.values()),
            self.known,
            self.hides,
            self.choice,
            self.store.partition,
            self.store.late_writes,
        )

    # ---- what is known

    def eligibility(self) -> Eligibility:
        """Between moves only: a decision makes its own."""
        if self._eligibility is None:
            self._eligibility = self._current_eligibility()
        return self._eligibility

    def image(self) -> tuple[dict[BrokerId, BrokerState], PartitionState | None]:
        """What brokers are told; None: nothing of the partition."""
        if self._states is None:
            self._states = {
                broker_id: BrokerState(
                    broker_id,
                    record.broker_epoch,
                    is_fenced=not record.is_live,
                    is_stopping=record.is_stopping,
                    endpoints=NOWHERE,
                )
                for broker_id, record in self.brokers.items()
            }
        return self._states, None if self.hides else self.known

    def wants_reports(self) -> bool:
        return needs_reports(self.topic, self.known, self.eligibility(), self.choice)

    def _current_eligibility(self, *overriding: BrokerEligibility) -> Eligibility:
        found = {
            broker_id: BrokerEligibility(
                broker_id,
                record.broker_epoch,
                record.clean_since,
                record.disk_since,
                is_live=record.is_live,
                is_stopping=record.is_stopping,
                lost_replicas=frozenset({REPLICA} if self.notes[broker_id].lost else ()),
                lost_below=self.notes[broker_id].lost_below,
            )
            for broker_id, record in self.brokers.items()
        }
        found.update(
            (broker_eligibility.broker_id, broker_eligibility) for broker_eligibility in overriding
        )
        return Eligibility(found)

    # ---- decisions

    def evaluate(self, *overriding: BrokerEligibility, late: bool = False) -> None:
        eligibility = self._current_eligibility(*overriding)

        def decide(partition: PartitionState) -> PartitionState:
            reports = {
                broker_id: {REPLICA: notes.report}
                for broker_id, notes in self.notes.items()
                if notes.report is not None
            }
            election = partition_after_election(
                self.topic,
                partition,
                eligibility,
                leader_counts=LeaderCounts([partition]),
                evidence=ElectionEvidence(Reports(reports), self.choice),
            )
            if election.unclean_election is not None:
                self.unclean_recovery = election.unclean_election.cause
            return election.partition

        self._change(decide, late=late)

    def set_state(
        self, *broker_ids: BrokerId, state: BrokerControlState, late: bool = False
    ) -> None:
        """Fenced, active or draining, and what follows from it; several are one event."""
        for broker_id in broker_ids:
            self.brokers[broker_id] = replace(self.brokers[broker_id], state=state)
        self.evaluate(late=late)

    def register(self, request: RegisterRequest) -> Accepted | RegistrationError:
        """In the order of PoolLoop._admit: the former life out, the epoch, the report."""
        broker_id = request.broker_id
        stored = self.brokers[broker_id]
        outcome = decided(
            request,
            stored=stored,
            highest_epoch=max(record.broker_epoch for record in self.brokers.values()),
            cluster_id="c",
            controller_epoch=ControllerEpoch(self.epoch),
        )
        if isinstance(outcome, RegistrationError):
            return outcome
        record, report = outcome.record, report_of(request)
        lost = lost_replicas(report, [(TOPIC_ID, (self.known,))], request)
        if not outcome.is_same_epoch:
            self.notes[broker_id] = replace(self.notes[broker_id], report=None)
            leaving = BrokerEligibility(
                broker_id,
                stored.broker_epoch,
                record.clean_since,
                record.disk_since,
                is_live=False,
                lost_replicas=lost,
                lost_below=record.broker_epoch,
            )
            self.evaluate(leaving)
            self.brokers[broker_id] = record
        found = None if self.known.has_leader else report.get(REPLICA)
        self.notes[broker_id] = Notes(bool(lost), record.broker_epoch, found)
        self.evaluate()
        return outcome

    def checker(self, sender: BrokerId, proposal: IsrProposal, *, late: bool = False) -> Verdict:
        verdicts: list[Verdict] = []
        eligibility = self._current_eligibility()

        def decide(partition: PartitionState) -> PartitionState:
            verdicts.append(
                checked_proposal(
                    self.topic, partition, eligibility, sender=sender, proposal=proposal
                )
            )
            return verdicts[-1].partition

        self._change(decide, late=late)
        return verdicts[-1]

    def balance(self) -> None:
        eligibility = self._current_eligibility()
        self._change(
            lambda partition: preferred_leader_restored(
                self.topic, partition, eligibility, leader_counts=LeaderCounts([partition])
            )
        )

    def set_min_insync(self, min_insync_replicas: int) -> None:
        eligibility = self._current_eligibility()
        self._change(
            lambda partition: with_min_insync(
                self.topic, partition, eligibility, min_insync_replicas
            )
        )

    def _change(self, decide: Decide, *, late: bool = False) -> None:
        """SliceStore.change: read when the outcome is unknown, decide, write, again on conflict."""
        if self.hides:
            self._durable(self.store.partition)
        current = self.known
        wanted = decide(current)
        if wanted == current:
            return
        if late:
            self.store.late_writes = (*self.store.late_writes, LateWrite(current, wanted))
            self.hides = True
        elif self.store.compare_and_set(current, wanted):
            self._durable(wanted)
        else:
            self._durable(self.store.partition)
            self._change(decide)

    def _durable(self, partition: PartitionState) -> None:
        self.hides = False
        if partition.has_leader or partition.leader_epoch != self.known.leader_epoch:
            # Logs that were reported before nobody led may have moved since (S14).
            for broker_id, notes in self.notes.items():
                self.notes[broker_id] = replace(notes, report=None)
        self.known = partition


def a_registration(
    broker_id: BrokerId,
    *,
    incarnation: str,
    clean_stop_epoch: BrokerEpoch,
    disk_epoch: BrokerEpoch,
    report: ReplicaReport | None,
) -> RegisterRequest:
    """`disk_epoch`: the life that its disk's stamp names; -1: no stamp."""
    storage = storage_of(broker_id)
    stamp = BootRecord(storage.boot_id, storage.pod_uid, storage.claim_uid, disk_epoch)
    return RegisterRequest(
        pool=POOL,
        broker_id=broker_id,
        cluster_id="c",
        incarnation=incarnation,
        endpoints=NOWHERE,
        rack="",
        storage=storage,
        clean_stop_epoch=clean_stop_epoch,
        highest_controller_epoch=ControllerEpoch(-1),
        highest_broker_epoch=BrokerEpoch(-1),
        highest_producer_id=-1,
        replicas=() if report is None else (report,),
        disk_stamp=None if disk_epoch == NO_EPOCH else stamp,
    )
