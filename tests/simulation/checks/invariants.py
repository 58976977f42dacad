"""I1 to I20 over the living world: after each event what it touched, now and then everything.

`Invariants` looks at production objects (replicas, logs, slices in the store) and changes nothing.
What cannot be seen in a state, an acknowledgement and a record shown to a reader, is told to it by
the client ports at the instant it is said. It also counts what happened, for the coverage table.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tidemark_broker.kafka_wire.records.record_batch import BatchHeader, read_header
from tidemark_broker.replication.core.leader import PartitionLeader
from tidemark_broker.replication.partition import Partition
from tidemark_broker.replication.replica_manager import FetchResult
from tidemark_chaos.history_checker import SuspendedGuarantee
from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_protocol.ids import BrokerId, TopicId
from tidemark_protocol.partition_state import PartitionState

from tests.simulation.checks import producer_checks
from tests.simulation.checks.cluster_observer import ClusterObserver, LiveBroker
from tests.simulation.checks.committed_log import CommittedLog
from tests.simulation.checks.compacted_history import new_committed_log
from tests.simulation.checks.controller_checks import ControllerChecker
from tests.simulation.checks.corruption_checks import CorruptionChecker, check_file_ends
from tests.simulation.checks.coverage_rows import (
    ACKNOWLEDGED,
    ACKNOWLEDGED_ANEW,
    NEW_HISTORIES,
    REJECTED_BELOW_MIN_ISR,
)
from tests.simulation.checks.in_sync_checks import EntryChecker, MaximalChecker
from tests.simulation.checks.loss_checks import LossChecker
from tests.simulation.checks.min_insync_checks import (
    MinInsyncChecker,
    check_acknowledged,
    has_enough,
)
from tests.simulation.checks.observed_epochs import GivenIds, SeenEpochs
from tests.simulation.checks.operation_checks import (
    REGISTERED_FOR_US,
    Erasures,
    check_led_at_rest,
    check_locks,
    crowded_racks,
    unnamed_leaderless,
)
from tests.simulation.checks.read_checks import check_in_touch, check_shown
from tests.simulation.checks.replica_audit import ReplicaAudit
from tests.simulation.checks.slice_checks import WITHOUT_CLEAN_SHUTDOWN, SliceChecker, SliceEvent
from tests.simulation.checks.unclean_recovery_checks import UncleanRecoveryChecker
from tests.simulation.checks.violations import Violation
from tests.simulation.clients.client_port import Fetch, Produce
from tests.simulation.clients.clients import history_name

EVENTS_BETWEEN_FULL_CHECKS = 100
NOTES_US = 50_000  # a controller notes what a registration said of lost replicas once it is stored

TopicPartition = tuple[TopicId, int]


class Invariants:
    def __init__(self, cluster: ClusterObserver) -> None:
        self.coverage: Counter[str] = Counter()
        self._cluster = cluster
        self._committed: dict[TopicPartition, CommittedLog] = {}
        self._audits: dict[Partition, ReplicaAudit] = {}
        self._leaders: dict[tuple[TopicPartition, int], int] = {}  # I11: epoch -> process
        # Of leaders, as last looked at.
        self._counted: dict[Partition, tuple[int, int, int, int]] = {}
        self._min_insync = MinInsyncChecker()
        self._seen_epochs = SeenEpochs()
        self._damages = CorruptionChecker(cluster)
        self._entries = EntryChecker(cluster, self._damages, self._audit_of)
        self._given_ids = GivenIds()
        self._said_wrongly: Violation | None = None  # raised later: ports isolate their callers
        self._checker = SliceChecker(cluster)
        self._controllers = ControllerChecker(cluster)
        self._slices: dict[str, PartitionSlice] = {}
        self.states: dict[TopicPartition, PartitionState] = {}
        self._maximal = MaximalChecker(self.states, self._checker.restored)
        self._flushes: dict[TopicPartition, str] = {}
        self._names: dict[TopicPartition, str] = {}
        self._events = 0
        # Epochs granted by the longest log or uncleanly, whose leader did not begin yet.
        self._awaited_grants: dict[tuple[TopicPartition, int], None] = {}
        self._losses = LossChecker(self.coverage)
        self.deleted: dict[str, None] = {}  # partitions of topics that are gone
        self._resorts = UncleanRecoveryChecker(cluster)
        self._erasures = Erasures(cluster.was_requested_to_delete)
        self._registered_us: dict[BrokerId, int] = {}
        self._notes_due_us = 0
        self._placed: dict[TopicPartition, None] = {}

    # ---- told by client ports, within an event: the process may not outlive it

    def on_requested(self, broker: Any, request: Produce) -> Callable[[], None]:
        """I9: below min ISR acks=all is refused before the append, whatever the commit rule."""
        replica = _replica_of(broker, request.topic, request.partition)
        leader = None if replica is None else replica.leader
        if replica is None or leader is None or request.acks != -1 or has_enough(leader.state):
            return lambda: None
        state, end_offset = leader.state, replica.log.log_end_offset

        def taken() -> None:
            if replica.log.log_end_offset > end_offset:
                text = (
                    f"broker {broker.settings.broker_id} appended acks=all below min ISR: {state}"
                )
                self._said_wrongly = self._said_wrongly or Violation("I9", text)
            else:
                self.coverage[REJECTED_BELOW_MIN_ISR] += 1

        return taken

    def on_acknowledged(self, broker: Any, request: Produce, base_offset: int) -> None:
        replica = _replica_of(broker, request.topic, request.partition)
        if replica is None:
            return
        self.coverage[ACKNOWLEDGED[request.acks]] += 1
        try:
            check_acknowledged(broker.settings.broker_id, replica, request.acks, base_offset)
            if request.acks != -1:
                return
            audit = self._audit_of(broker, replica)
            audit.look()
            audit.committed.acknowledge(
                base_offset,
                request.batch,
                audit.who,
                audit.newest_epoch,
                is_readable=audit.could_read(base_offset),
            )
            self.coverage[ACKNOWLEDGED_ANEW] += audit.committed.history_epoch >= 0
        except Violation as found:
            self._said_wrongly = self._said_wrongly or found

    def on_shown(self, broker: Any, request: Fetch, result: FetchResult) -> None:
        replica = _replica_of(broker, request.topic, request.partition)
        if replica is None or self._damages.record_error(broker, replica, request.offset, result):
            return
        try:
            check_in_touch(self._cluster, broker.settings.broker_id, replica)
            if not result.data:
                return
            self.coverage[f"read from {'follower' if replica.leader is None else 'leader'}"] += 1
            audit = self._audit_of(broker, replica)
            audit.look()
            check_shown(audit, bytes(result.data), result.high_watermark)
        except Violation as found:
            self._said_wrongly = self._said_wrongly or found

    def on_out_of_order(self, broker: Any, request: Produce) -> None:
        """B8: none of a producer's last batches is refused, it is answered with its offset."""
        self._on_rejected(broker, request, producer_checks.check_is_no_duplicate)

    def on_unknown_producer(self, broker: Any, request: Produce) -> None:
        """S24: none that wrote there is forgotten before its time."""
        self._on_rejected(broker, request, producer_checks.check_is_forgotten)

    def _on_rejected(
        self, broker: Any, request: Produce, check: Callable[[ReplicaAudit, BatchHeader], str]
    ) -> None:
        replica = _replica_of(broker, request.topic, request.partition)
        if replica is None:
            return
        try:
            audit = self._audit_of(broker, replica)
            audit.look()
            self.coverage[f"refused: {check(audit, read_header(request.batch))}"] += 1
        except Violation as found:
            self._said_wrongly = self._said_wrongly or found

    def on_producer_id(self, producer_id: int) -> None:
        """S5."""
        self.coverage["producer ids given"] += 1
        self._said_wrongly = self._said_wrongly or self._given_ids.taken(producer_id)

    def on_overdue(self, broker: Any, request: Produce) -> None:
        """L2: every produce is acknowledged or refused."""
        who = f"broker {broker.settings.broker_id}: {request.topic}-{request.partition}"
        text = f"{who}: a produce is not answered past its {request.timeout_ms} ms"
        self._said_wrongly = self._said_wrongly or Violation("L2", text)

    # ---- after each event

    def after_event(self) -> None:
        """Raises Violation."""
        self._events += 1
        if self._said_wrongly is not None:
            raise self._said_wrongly
        cluster = self._cluster
        broker = cluster.touched_broker()
        if cluster.has_written:
            self._look_at_store()
        elif cluster.now_us < self._notes_due_us and cluster.has_touched_controller():
            cluster.remember_lost()
        if broker is not None:
            if broker.is_dead:
                self._record_last_words(broker)
            else:
                self._look_at_broker(broker)
        if self._events % EVENTS_BETWEEN_FULL_CHECKS == 0:
            self.check_everything()

    def check_everything(self) -> None:
        live = self._cluster.live_brokers()
        for broker in live:
            self._look_at_broker(broker)
            for replica in broker.partitions.replicas:
                check_file_ends(f"broker {broker.broker_id}", replica.log)
        self._check_entries(live)
        check_locks(self._cluster, live)
        self._check_conditions()
        check_led_at_rest(self._cluster)

    def _check_conditions(self) -> None:
        if all(state.has_leader for state in self.states.values()):
            return
        for view in self._cluster.topic_views():
            if text := unnamed_leaderless(view):
                raise Violation("L6", text)

    def conclude(self) -> None:
        """At the end of a healed run: also what needs a full read or everybody's registration."""
        self._audits.clear()
        self.check_everything()
        self._checker.conclude(self._cluster.broker_records())
        if not self._cluster.has_flipped_bits:
            living = set(self._audits)
            for value in self._slices.values():
                self._losses.conclude(value, self._committed, living)
        for committed in self._committed.values():
            self.coverage += committed.coverage()

    def committed_logs(self) -> dict[str, CommittedLog]:
        """For the history, by its names of partitions."""
        return {history_name(*key): committed for key, committed in self._committed.items()}

    def suspensions(self) -> dict[str, SuspendedGuarantee]:
        """Of promises, by the history's names of partitions."""
        found = {name: SuspendedGuarantee(is_deleted=True) for name in self.deleted}
        for name, committed in self.committed_logs().items():
            if committed.lost_from is not None:
                found[name] = SuspendedGuarantee(committed.lost_from, is_deleted=name in found)
        return found

    # ---- the store

    def _look_at_store(self) -> None:
        self._cluster.look_at_store()
        for previous, record in self._cluster.changed_brokers():
            self._checker.on_broker(previous, record)
            self._controllers.on_broker(previous, record)
            self._resorts.on_broker(previous, record)
            self._registered_us.setdefault(record.broker_id, self._cluster.now_us)
            self._notes_due_us = self._cluster.now_us + NOTES_US
        self._controllers.look()
        changes = self._cluster.changed_slices()
        if not changes:
            return
        records = self._cluster.broker_records()
        for name, after in changes:
            if after is None and self._cluster.is_lost_by_hand(name):
                continue  # brokers go on with what they have (S12)
            before = self._slices.get(name)
            if after is not None and self._cluster.take_restored(name):
                before = None
                self._record_restored(after)
            if before is not None and (
                after is None or before.topic.topic_id != after.topic.topic_id
            ):
                self._erasures.on_slice_gone(name, before.topic.topic_id)
                self._forget_topic(before)
                before = None  # deleted, maybe recreated under its name
            if after is None:
                continue
            events = self._checker.on_slice(before, after, records)
            self._controllers.on_slice(before, after)
            self._slices[name] = after
            for state in after.partitions:
                key = (after.topic.topic_id, state.partition)
                self.states[key] = state
                self._flushes[key] = after.topic.flush
                self._names[key] = f"{after.topic.topic}-{state.partition}"
                self._check_placed(key, state)
                self._erasures.record_state(key[0], state, records)
            for event in events:
                self._on_slice_event(after, event)
        live = self._cluster.live_brokers()
        self._check_entries(live)
        for broker in live:
            for replica in broker.partitions.replicas:
                self._maximal.look(broker.broker_id, replica)

    def _record_restored(self, value: PartitionSlice) -> None:
        """S17: what it says is from long ago. Until an election is made of it, it proves nothing
        (I6), and brokers may hold newer states than it (I14, I15)."""
        for state in value.partitions:
            key = (value.topic.topic_id, state.partition)
            if self.states.get(key) != state:
                self._checker.restored[key] = None

    def _check_placed(self, key: TopicPartition, state: PartitionState) -> None:
        """I18, of a new partition; later a user may move it as it pleases him."""
        if key in self._placed:
            return
        self._placed[key] = None
        before_us = self._cluster.now_us - REGISTERED_FOR_US
        present = [i for i, since_us in self._registered_us.items() if since_us <= before_us]
        racks = {i: record.rack for i, record in self._cluster.broker_records().items()}
        if text := crowded_racks(state.replicas, racks, present):
            raise Violation("I18", f"{self._names[key]}: {text}")

    def _forget_topic(self, value: PartitionSlice) -> None:
        del self._slices[value.name]
        for state in value.partitions:
            self.states.pop((value.topic.topic_id, state.partition), None)
            self.deleted[history_name(value.topic.topic_id, state.partition)] = None

    def _on_slice_event(self, value: PartitionSlice, event: SliceEvent) -> None:
        self.coverage[event.kind] += 1
        key = (event.topic_id, event.partition)
        self._cluster.note(f"{self._names[key]}: {event.kind}: {event.state}")
        if event.kind in WITHOUT_CLEAN_SHUTDOWN:
            self._losses.on_elected(value, event.state)
            self._resorts.on_elected(value, event)
            committed = self._committed_of(key)
            leader = self._cluster.live_broker(event.state.leader)
            replica = None if leader is None else leader.partitions.hosted(*key)
            parting_offset = 0  # not known
            if leader is not None and replica is not None:
                parting_offset = self._audit_of(leader.broker, replica).parting_offset()
            committed.await_history(event.state.leader_epoch, parting_offset)
            self._awaited_grants[key, event.state.leader_epoch] = None

    # ---- brokers

    def _look_at_broker(self, broker: LiveBroker) -> None:
        self._seen_epochs.check(broker.broker_id, broker.process, broker.partitions)
        self._erasures.look(broker)
        for replica in broker.partitions.replicas:
            audit = self._audits.get(replica) or self._audit_of(broker.broker, replica)
            self._damages.look(broker.broker_id, audit, self.states, self._flushes)
            if audit.has_change():
                self._count(audit)
                self._check_is_stored(broker, replica)
                if replica.leader is not None:
                    self._look_at_leader(broker, replica, audit)
                key = (replica.topic_id, replica.partition)
                self._check_entries_of(key, {broker.broker_id: broker})
            self._maximal.look(broker.broker_id, replica)

    def _count(self, audit: ReplicaAudit) -> None:
        found = audit.truncated_records(), audit.replica.duplicate_batches
        counted = (*found, audit.compactions, audit.aged_records)
        before = self._counted.get(audit.replica, (0, 0, 0, 0))
        if counted == before:
            return
        self._counted[audit.replica] = counted
        self.coverage["truncations"] += counted[0] > before[0]
        self.coverage["records truncated"] += counted[0] - before[0]
        self.coverage["duplicates found"] += counted[1] - before[1]
        self.coverage["compactions"] += counted[2] - before[2]
        self.coverage["old records gone"] += counted[3] - before[3]

    def _record_last_words(self, broker: LiveBroker) -> None:
        """It died in the middle of something, and may have said already how far it committed."""
        for replica in broker.partitions.replicas:
            if replica.leader is not None:
                self._audit_of(broker.broker, replica).record_led()

    def _check_is_stored(self, broker: LiveBroker, replica: Partition) -> None:
        """I14, S3: nobody acts on a state that is not durable."""
        key = (replica.topic_id, replica.partition)
        stored, applied = self.states.get(key), replica.state
        if stored is None or applied is None or key in self._checker.restored:
            return
        is_unknown = applied.partition_epoch > stored.partition_epoch
        is_another = applied.partition_epoch == stored.partition_epoch and applied != stored
        if is_unknown or is_another:
            raise Violation(
                "I14",
                f"{self._names[key]}: broker {broker.broker_id} applied {applied}, stored is"
                f" {stored}",
            )

    def _audit_of(self, broker: Any, replica: Partition) -> ReplicaAudit:
        audit = self._audits.get(replica)
        if audit is None:
            key = (replica.topic_id, replica.partition)
            name = f"{replica.topic}-{replica.partition}"
            self._names.setdefault(key, name)
            who = f"broker {broker.settings.broker_id} ({broker.incarnation[:4]}) {name}"
            audit = ReplicaAudit(who, replica, self._committed_of(key), self._cluster)
            self._audits[replica] = audit
        return audit

    def _look_at_leader(self, broker: LiveBroker, replica: Partition, audit: ReplicaAudit) -> None:
        leader = replica.leader
        assert leader is not None
        key = (replica.topic_id, replica.partition)
        epoch = leader.leader_epoch
        known = self._leaders.get((key, epoch))
        if known is None:
            self._leaders[key, epoch] = broker.process
            self._on_new_leader(key, replica, leader, audit)
        elif known != broker.process:
            raise Violation(
                "I11",
                f"{self._names[key]}: processes {known} and {broker.process} both lead in leader"
                f" epoch {epoch}",
            )
        self._min_insync.look(replica, leader)

    def _on_new_leader(
        self,
        key: TopicPartition,
        replica: Partition,
        leader: PartitionLeader,
        audit: ReplicaAudit,
    ) -> None:
        committed, epoch = self._committed_of(key), leader.leader_epoch
        if committed.is_awaited(epoch):
            committed.begin_history(epoch, audit.parting_offset())
            self.coverage[NEW_HISTORIES] += 1
            audit.look()
        if (key, epoch) in self._awaited_grants:
            del self._awaited_grants[key, epoch]
            self._check_began(key, leader)
        audit.check_holds_acknowledged(f"elected in leader epoch {epoch}", before_epoch=epoch)
        producer_checks.check_knows_producers(audit, epoch)

    def _check_began(self, key: TopicPartition, leader: PartitionLeader) -> None:
        if self._cluster.has_flipped_bits:
            return  # one that is found cuts the log after it was reported
        for value in self._slices.values():
            if value.topic.topic_id == key[0] and key[1] in value.numbers:
                start_offset = leader.epoch_start_offset
                self._losses.on_begun(value, key[1], leader.leader_epoch, start_offset)

    # ---- entries (I6)

    def _check_entries(self, live: tuple[LiveBroker, ...]) -> None:
        by_id = {broker.broker_id: broker for broker in live}
        for key in self.states:
            self._check_entries_of(key, by_id)

    def _check_entries_of(self, key: TopicPartition, live: Mapping[BrokerId, LiveBroker]) -> None:
        state = self.states.get(key)
        if state is None or key in self._checker.restored:
            return
        if self._committed_of(key).acknowledged_end():
            self._entries.check(key, state, self._flushes[key], live)

    def _committed_of(self, key: TopicPartition) -> CommittedLog:
        committed = self._committed.get(key)
        if committed is None:
            name = self._names.get(key, f"{key[0]}-{key[1]}")
            self._committed[key] = committed = new_committed_log(name, self._cluster, key[0])
        return committed


def _replica_of(broker: Any, topic: str, partition: int) -> Partition | None:
    replica = broker.partitions._hosted.by_name.get((topic, partition))
    assert replica is None or isinstance(replica, Partition)
    return replica
