"""The world as its judges see it: living replicas and what the store holds. It changes nothing.

The one place that knows how `Cluster` is built; invariants and promises ask here.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

import msgspec
from tidemark_broker.kafka_wire.records.record_batch import CorruptBatch, read_header
from tidemark_broker.log.partition_log import PartitionLog
from tidemark_broker.log.segment import Segment
from tidemark_broker.replication.replica_manager import ReplicaManager
from tidemark_operator.api.broker import BrokerRecord, read_broker
from tidemark_operator.api.elect_annotation import LeaderChoice
from tidemark_operator.api.kinds import BROKER, LEASE, PARTITION_SLICE
from tidemark_operator.api.partition_slice import PartitionSlice, read_slice
from tidemark_operator.controller.core.broker_soft_state import BrokerSoftState
from tidemark_operator.controller.core.deleted_topics import is_tombstone, read_tombstone
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_operator.controller.core.views import TopicView
from tidemark_operator.store.lease import CONTROLLER_EPOCH_ANNOTATION, LeaseSettings
from tidemark_protocol.ids import NO_EPOCH, BrokerId, ControllerEpoch, Offset, TopicId
from tidemark_protocol.partition_state import Member, PartitionState

from tests.simulation.engine.disk import SimulatedFile
from tests.simulation.engine.disk_image import FileNode
from tests.simulation.engine.loop import SimulatedLoop
from tests.simulation.engine.processes import SimulatedProcess
from tests.simulation.engine.simulated_cluster import Cluster
from tests.simulation.engine.timeline import Runnable

EPOCH_BYTES = range(12, 16)  # of a batch's header: its leader epoch


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A broker process that is neither dead nor without logs; it may be frozen or cut off."""

    broker_id: BrokerId
    process: int  # its number: two lives of a broker never share one
    partitions: ReplicaManager
    broker: Any  # the production `Broker`
    loop: SimulatedLoop

    @property
    def is_dead(self) -> bool:
        return self.loop.is_dead


class ClusterObserver:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._version = -1
        self._stored: dict[tuple[str, str, str], bytes] = {}
        self._records: dict[BrokerId, BrokerRecord] = {}
        self._slices: list[tuple[str, PartitionSlice | None]] = []
        self._values: dict[str, PartitionSlice] = {}
        self._buried: dict[TopicId, None] = {}
        self._brokers: list[tuple[BrokerRecord | None, BrokerRecord]] = []
        self._seen: dict[SimulatedProcess, LiveBroker] = {}
        self._by_loop: dict[Runnable, LiveBroker] = {}
        self._lost_below: dict[tuple[TopicId, int, BrokerId], int] = {}
        self._failed_below: dict[tuple[TopicId, int, BrokerId], int] = {}
        # By controller and epoch: what it sent last may be stored when it is gone.
        self._known_states: dict[tuple[str, ControllerEpoch], PoolState] = {}

    @property
    def now_us(self) -> int:
        return self.cluster.now_us

    def note(self, text: str) -> None:
        self.cluster.note("judge", text)

    # ---- the store

    @property
    def has_written(self) -> bool:
        """To the store, since the last look."""
        return self.cluster.store.version != self._version

    def look_at_store(self) -> None:
        store = self.cluster.store
        self._version = store.version
        self.remember_lost()
        self._slices.clear()
        self._brokers.clear()
        kinds = (PARTITION_SLICE.kind, BROKER.kind)
        for key, data in store._stored.items():
            if key[0] in kinds and self._stored.get(key) is not data:
                self._stored[key] = data
                self._read(key[0], data)
        for key in [key for key in self._stored if key not in store._stored]:
            del self._stored[key]
            if key[0] == PARTITION_SLICE.kind and key[2] in self._values:
                self._slices.append((key[2], None))
                del self._values[key[2]]

    def _read(self, kind: str, data: bytes) -> None:
        item = msgspec.json.decode(data)
        if kind == PARTITION_SLICE.kind:
            if is_tombstone(item):
                self._store_deletion_record(read_tombstone(item).topic_id)
                return
            value = read_slice(item)
            if value.topic.topic_id not in self._buried:
                self._slices.append((value.name, value))
                self._values[value.name] = value
            return
        record = read_broker(item)
        if record is not None:
            self._brokers.append((self._records.get(record.broker_id), record))
            self._records[record.broker_id] = record

    def _store_deletion_record(self, topic_id: TopicId) -> None:
        """Deleted from here on, whenever its slices go (S12)."""
        self._buried[topic_id] = None
        for value in [v for v in self._values.values() if v.topic.topic_id == topic_id]:
            self._slices.append((value.name, None))
            del self._values[value.name]

    def changed_slices(self) -> list[tuple[str, PartitionSlice | None]]:
        """(name, value; None when deleted) of the last look."""
        return self._slices

    def changed_brokers(self) -> list[tuple[BrokerRecord | None, BrokerRecord]]:
        return self._brokers

    def broker_records(self) -> dict[BrokerId, BrokerRecord]:
        return self._records

    def served_partitions(self) -> list[tuple[str, TopicId, PartitionState]]:
        """("topic-partition", topic id, state) of all that is stored and not retained."""
        return [
            (f"{value.topic.topic}-{state.partition}", value.topic.topic_id, state)
            for _, value in sorted(self._values.items())
            if not value.is_retained
            for state in value.partitions
        ]

    def unserved(self) -> str:
        """Which topic that its user wants has not all its partitions, or is retained still."""
        served = Counter(topic_id for _, topic_id, _ in self.served_partitions())
        for desired_topic in self.cluster.topics:
            if (
                desired_topic.is_wanted
                and (found := served[desired_topic.topic_id]) < desired_topic.partitions
            ):
                complaint = f"{found} of {desired_topic.partitions} partitions are served"
                return f"{desired_topic.topic}: {complaint}"
        return ""

    def was_requested_to_delete(self, topic_id: TopicId) -> bool:
        return any(
            desired_topic.topic_id == topic_id and desired_topic.is_deleted
            for desired_topic in self.cluster.topics
        )

    def is_lost_by_hand(self, slice_name: str) -> bool:
        """Somebody deleted the object, and will put it back."""
        return slice_name in self.cluster.lost_slices

    def take_restored(self, slice_name: str) -> bool:
        """Its last write was a backup's that somebody put back. Asked once for each."""
        found = slice_name in self.cluster.restored_slices
        self.cluster.restored_slices.pop(slice_name, None)
        return found

    def lease_epoch(self) -> ControllerEpoch:
        """NO_EPOCH: there is no Lease."""
        settings = LeaseSettings(self.cluster.namespace)
        stored = self.cluster.store.get(LEASE, settings.namespace, settings.name)
        if stored is None:
            return ControllerEpoch(NO_EPOCH)
        return ControllerEpoch(int(stored["metadata"]["annotations"][CONTROLLER_EPOCH_ANNOTATION]))

    def gone_again(self) -> Iterator[str]:
        """Slices of deleted topics that somebody put back, and that are no longer there."""
        for name, uid in self.cluster.left_alone.items():
            stored = self.cluster.store.get(PARTITION_SLICE, self.cluster.namespace, name)
            if stored is None or stored["metadata"]["uid"] != uid:
                yield name

    def topic_views(self) -> Iterator[TopicView]:
        """As the leading operator would write them into conditions."""
        slot = self.cluster.leading_controller
        if slot is not None and slot.service is not None:
            for pool in slot.service.pools():
                yield from slot.service.topics(pool)

    def is_lost(
        self,
        topic_id: TopicId,
        partition: int,
        member: Member,
        known_to: ControllerEpoch | None = None,
        *,
        surely: bool = False,
    ) -> bool:
        """A controller was told so: by a registration (S9), which is for ever, or by the last
        heartbeat of that life of the broker that it knows. `known_to`: only what this controller
        was told by heartbeats, as another one's may be of long ago; None: any. `surely`: and what
        is stored now it decided knowing it; what a heartbeat says it may hear while it writes."""
        self.remember_lost()
        replica = (topic_id, partition)
        if member.broker_epoch < self._lost_below.get((*replica, member.broker_id), -1):
            return True
        return any(
            replica in _failed_replicas(state.notes[member.broker_id], surely=surely)
            and member.broker_epoch < _failed_below(state, member.broker_id)
            for state in (self._pool_states() if known_to is None else self._states_of(known_to))
            if member.broker_id in state.notes
        )

    def known_broker(self, broker_id: BrokerId, to: ControllerEpoch) -> BrokerRecord | None:
        """As the controller of that epoch knows it now."""
        states = (state for state in self._pool_states() if state.controller_epoch == to)
        return next(
            (state.brokers[broker_id] for state in states if broker_id in state.brokers), None
        )

    def last_known_broker(self, broker_id: BrokerId, to: ControllerEpoch) -> BrokerRecord | None:
        """The same, also of a controller that is gone: as it knew it in the end."""
        return next(
            (s.brokers[broker_id] for s in self._states_of(to) if broker_id in s.brokers), None
        )

    def _states_of(self, epoch: ControllerEpoch) -> list[PoolState]:
        """Of that controller, which may have died or been deposed since it sent a write."""
        living = [state for state in self._pool_states() if state.controller_epoch == epoch]
        return living or [state for (_, e), state in self._known_states.items() if e == epoch]

    def cannot_write(self, broker_id: BrokerId, to: ControllerEpoch) -> bool:
        """As the controller of that epoch knows it now (S20)."""
        return any(
            state.notes[broker_id].is_write_stalled
            for state in self._pool_states()
            if state.controller_epoch == to and broker_id in state.notes
        )

    def is_chosen(self, topic_id: TopicId, before: PartitionState, leader: BrokerId) -> bool:
        """A human named that leader for that leader epoch (B4)."""
        choice = LeaderChoice(before.partition, leader, before.leader_epoch)
        return any(
            desired_topic.choices.get(before.partition) == choice
            for desired_topic in self.cluster.topics
            if desired_topic.topic_id == topic_id
        )

    def led_at_rest(
        self,
    ) -> Iterator[tuple[BrokerRecord | None, PartitionSlice, PartitionState]]:
        """Partitions with a leader, and how that broker stands to the leading controller;
        only of slices about which it has nothing left to decide: one from long ago is touched
        when every live broker has said what it holds (S17)."""
        slot = self.cluster.leading_controller
        if slot is None or slot.service is None:
            return
        for pool in slot.service._pools.values():
            decisions = pool.decisions
            if decisions.lock.locked() or decisions.is_dirty:
                continue
            for value in decisions.state.slices.values():
                if value != self._values.get(value.name):
                    continue
                for state in value.partitions:
                    replica = (value.topic.topic_id, state.partition)
                    if decisions.state.is_stale_slice(replica, state):
                        continue
                    if state.has_leader:
                        yield decisions.state.brokers.get(state.leader), value, state

    def was_lost(self, topic_id: TopicId, partition: int, member: Member) -> bool:
        """At any time: what a heartbeat reported may have been mended since."""
        self.remember_lost()
        key = (topic_id, partition, member.broker_id)
        below = max(self._lost_below.get(key, -1), self._failed_below.get(key, -1))
        return member.broker_epoch < below

    def _pool_states(self) -> list[PoolState]:
        """Of all that lead, or believe so."""
        found = {
            (slot.name, pool.decisions.state.controller_epoch): pool.decisions.state
            for slot in self.cluster.controllers
            if slot.service is not None
            for pool in slot.service._pools.values()
        }
        self._known_states.update(found)
        return list(found.values())

    def is_missing(self, topic_id: TopicId, partition: int, member: Member) -> bool:
        """Its broker runs again, in a later life or before its registration, without it."""
        broker = self.live_broker(member.broker_id)
        return (
            broker is not None
            and broker.partitions.broker_epoch != member.broker_epoch
            and broker.partitions.hosted(topic_id, partition) is None
        )

    def has_flipped_epoch(self, topic: str, partition: int, epoch: int) -> bool:
        """Some batch on a broker's volume says that leader epoch, by a bit that flipped. Whoever
        registered with it may be dead by now."""
        directory = f"/{topic}-{partition}/"
        volumes = (slot.machine.volume for slot in self.cluster.brokers.values())
        return any(
            epoch in _flipped_epochs(file)
            for volume in volumes
            for path, file in volume.files()
            if directory in path and path.endswith(".log")
        )

    def remember_lost(self) -> None:
        """A controller's notes go with it, and with the broker's next registration. Who was told
        of it and wrote at once may be gone when that is stored."""
        self._pool_states()  # known from now on
        for state in self._known_states.values():
            for broker_id, notes in state.notes.items():
                for replica in notes.lost_replicas:
                    _raise(self._lost_below, (*replica, broker_id), notes.lost_below)
                for replica in notes.failed_replicas:
                    below = _failed_below(state, broker_id)
                    _raise(self._failed_below, (*replica, broker_id), below)

    # ---- brokers

    def live_brokers(self) -> tuple[LiveBroker, ...]:
        """Also those of deleted pods that still run."""
        for slot in self.cluster.brokers.values():
            for process, broker in slot.lives.items():
                if process not in self._seen:
                    found = LiveBroker(
                        slot.broker_id, process.process_id, broker.partitions, broker, process.loop
                    )
                    self._seen[process] = found
                    self._by_loop[process.loop] = found
        for process in [process for process in self._seen if not process.is_alive]:
            del self._by_loop[process.loop]
            del self._seen[process]
        return tuple(self._seen.values())

    def live_broker(self, broker_id: BrokerId) -> LiveBroker | None:
        """The one that its slot would call its own."""
        slot = self.cluster.brokers.get(broker_id)
        if slot is None or slot.process is None or slot.broker is None:
            return None
        self.live_brokers()
        return self._seen.get(slot.process)

    def restart(self, broker: LiveBroker, why: str) -> None:
        """As people do, and it is counted."""
        process = self.cluster.brokers[broker.broker_id].process
        if process is not None and process.process_id == broker.process:
            self.note(f"broker {broker.broker_id}: {why}")
            self.cluster.coverage[why] += 1
            process.kill()

    def touched_broker(self) -> LiveBroker | None:
        """The one whose state the last step may have changed; it may have died in that step."""
        ran = self.cluster.timeline.ran
        return None if ran is None else self._by_loop.get(ran)

    def has_touched_controller(self) -> bool:
        """Whether the last step may have changed what a controller knows."""
        ran = self.cluster.timeline.ran
        return ran is not None and ran not in self._by_loop

    @staticmethod
    def open_volume(broker: LiveBroker) -> str | None:
        """The volume whose log directory this process holds open."""
        directory = broker.broker.directory
        if directory is None or directory._lock._node is None:
            return None
        return f"node-{broker.broker_id}"

    def cut_off_us(self, broker_id: BrokerId) -> int:
        """For how long by now nothing of other brokers and controllers has reached it; 0: it may
        have."""
        since_us = self.cluster.cut_off_since_us.get(broker_id)
        return 0 if since_us is None else self.now_us - since_us

    @property
    def has_flipped_bits(self) -> bool:
        """Of any broker, while it ran."""
        return any(slot.machine.volume.is_unreliable for slot in self.cluster.brokers.values())

    def has_retention(self, topic_id: TopicId) -> bool:
        """The topic asks for records to go while a run lasts."""
        names = ("retention.ms", "retention.bytes")
        return any(
            name in desired_topic.config
            for desired_topic in self.cluster.topics
            if desired_topic.topic_id == topic_id
            for name in names
        )

    def oldest_retained_ms(self, topic_id: TopicId) -> int | None:
        """Of a topic with retention by time alone: from which time on records stay."""
        for desired_topic in self.cluster.topics:
            if desired_topic.topic_id == topic_id and "retention.bytes" not in desired_topic.config:
                retention_ms = desired_topic.config.get("retention.ms")
                return None if retention_ms is None else self.latest_wall_ms() - int(retention_ms)
        return None

    def producers_expire_ms(self, topic_id: TopicId) -> float:
        """inf: not within a run."""
        for desired_topic in self.cluster.topics:
            if desired_topic.topic_id == topic_id:
                return float(desired_topic.config.get("producer.id.expiration.ms", inf))
        return inf

    def is_compacted(self, topic_id: TopicId) -> bool:
        """From its start on, as no run changes that."""
        return any(
            "compact" in desired_topic.config.get("cleanup.policy", "")
            for desired_topic in self.cluster.topics
            if desired_topic.topic_id == topic_id
        )

    def latest_wall_ms(self) -> int:
        """The latest that any broker was told it is."""
        clocks = (slot.machine.clock for slot in self.cluster.brokers.values())
        return max(clock.latest_wall_us for clock in clocks) // 1000

    def log_counts(self) -> Counter[str]:
        """Of all replicas that are open: what of their logs has several files, or begins later."""
        found: Counter[str] = Counter()
        for broker in self.live_brokers():
            for replica in broker.partitions.replicas:
                found["logs of several segments"] += len(replica.log.segments) > 1
                found["segments in the end"] += len(replica.log.segments)
                found["logs that begin past 0"] += replica.log.log_start_offset > 0
        return +found

    @staticmethod
    def segment_bytes(segment: Segment) -> bytearray:
        """What processes would read of the file, without reading it."""
        return _file_of(segment).data

    @staticmethod
    def is_unreliable(log: PartitionLog) -> bool:
        file = log._segments[-1].file
        assert isinstance(file, SimulatedFile)
        return file.is_unreliable

    @staticmethod
    def flipped_positions(segment: Segment) -> set[int]:
        """Of bytes in which a fault flipped a bit, whatever was written there since."""
        return _file_of(segment).flipped_positions

    @staticmethod
    def is_unreadable(log: PartitionLog, offset: int) -> bool:
        """Of the segment that holds it, a byte cannot be read."""
        return bool(_file_of(log._segments.holding(Offset(offset))).bad_positions)


def _flipped_epochs(file: FileNode) -> Iterator[int]:
    position = 0
    while file.flipped_positions and position < len(file.data):
        try:
            header = read_header(file.data, position)
        except CorruptBatch:
            return
        if any(position + at in file.flipped_positions for at in EPOCH_BYTES):
            yield header.partition_leader_epoch
        position += header.size_bytes


def _file_of(segment: Segment) -> FileNode:
    file = segment.file
    assert isinstance(file, SimulatedFile)
    return file.node


def _failed_replicas(notes: BrokerSoftState, *, surely: bool) -> frozenset[tuple[TopicId, int]]:
    if surely:
        return notes.failed_replicas & notes.evaluated_failures
    return notes.failed_replicas | notes.evaluated_failures


def _failed_below(state: PoolState, broker_id: BrokerId) -> int:
    """A heartbeat tells of the life that its controller knows, and of none after it."""
    record = state.brokers.get(broker_id)
    return 0 if record is None else record.broker_epoch + 1


def _raise(
    epochs: dict[tuple[TopicId, int, BrokerId], int],
    key: tuple[TopicId, int, BrokerId],
    epoch: int,
) -> None:
    epochs[key] = max(epoch, epochs.get(key, -1))
