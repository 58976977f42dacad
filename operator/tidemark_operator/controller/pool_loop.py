"""Run the controller commands of one pool in sequence.

Each public coroutine is one decision: it takes the pool's lock, so it sees the durable outcome of
the one before, decides by the pure core, writes the slices it changes concurrently, and notifies
brokers only once the result is stored. Run them to the end: a caller whose connection broke must
not interrupt one (service.py shields them).
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from tidemark_protocol.controller_messages import (
    CommittedTruncation,
    RegisterRequest,
    RegisterResponse,
    ReportedEpoch,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_EPOCH, BrokerEpoch, BrokerId, ControllerEpoch, TopicId

from tidemark_operator.api.broker import NO_ROUND, BrokerControlState, BrokerRecord, round_of
from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.controller.announcements import Announcements
from tidemark_operator.controller.core.broker_soft_state import BrokerSoftState
from tidemark_operator.controller.core.eligibility import BrokerEligibility
from tidemark_operator.controller.core.metadata_image import MetadataImage
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_operator.controller.core.registration import (
    Accepted,
    RegistrationError,
    decided,
    found_replicas,
    lost_replicas,
    report_of,
)
from tidemark_operator.controller.core.sessions import Sessions
from tidemark_operator.controller.core.settings import ControllerSettings
from tidemark_operator.controller.core.topic_views import TopicViews
from tidemark_operator.controller.core.views import PoolSettings, StateChange, TopicView
from tidemark_operator.controller.keyed_locks import KeyedLocks
from tidemark_operator.controller.slice_changes import SliceChanges
from tidemark_operator.controller.slice_store import Decide, Deferred, NamespaceDeleted, SliceStore
from tidemark_operator.controller.turns import Turns
from tidemark_operator.store.object_store import ObjectStore

logger = logging.getLogger(__name__)


class PoolLoop:
    def __init__(
        self,
        pool: str,
        controller_epoch: ControllerEpoch,
        store: ObjectStore,
        *,
        settings: ControllerSettings,
        now_ms: Callable[[], int],
        on_image: Callable[[], None],
        on_change: Callable[[StateChange], None],
        new_uuid: Callable[[], UUID],
    ) -> None:
        """Create an empty pool; `on_image` is called when its brokers may be notified."""
        self.state = PoolState(pool, controller_epoch)
        self._views = TopicViews(self.state)
        self.sessions = Sessions(settings)
        self.image = MetadataImage(
            controller_epoch, deleted_retained=settings.deleted_topics_retained
        )
        self.lock = Turns()
        self.topic_locks = KeyedLocks[TopicId]()  # taken before a turn
        # A decision was put off, or a take-over happened: the next tick looks at everything.
        self.is_dirty = True
        self.is_sweeping = False  # what deletions have left
        self._unsaved_brokers: set[BrokerId] = set()
        self._settings = settings
        self._now_ms = now_ms
        self._announcements = Announcements(on_image, on_change)
        self._new_uuid = new_uuid
        self.slice_store = SliceStore(
            store,
            settings,
            controller_epoch,
            on_durable=self._slice_is_durable,
            on_unknown=self._slice_is_unknown,
            on_vanished=self.forget_slice,
        )
        self._changes = SliceChanges(self.state, self.slice_store, on_deferred=self._record_dirty)

    # Decisions.

    def _lost_round(self, request: RegisterRequest, wall_clock_ms: int) -> int:
        """Return a round that is not below any that a lost Broker object may have recorded.

        The object of a broker that is not new is missing, or is from before its last epoch. The
        other brokers' disks know the blocks that it gave out, but not all may have registered yet;
        there were fewer than one a second.
        """
        stored = self.state.brokers.get(request.broker_id)
        if stored is not None:
            is_lost = request.highest_broker_epoch > stored.broker_epoch
        else:
            partitions = (p for value in self.state.slices.values() for p in value.partitions)
            is_lost = request.highest_broker_epoch != NO_EPOCH or any(
                request.broker_id in partition.replicas for partition in partitions
            )
        return wall_clock_ms // 1000 if is_lost else NO_ROUND

    async def register(self, request: RegisterRequest, wall_clock_ms: int) -> RegisterResponse:
        async with self.lock:
            stored = self.state.brokers.get(request.broker_id)
            outcome = decided(
                request,
                stored=stored,
                highest_epoch=self.state.highest_broker_epoch(),
                cluster_id=self.state.cluster_id() or request.cluster_id or str(self._new_uuid()),
                controller_epoch=self.state.controller_epoch,
                replaced=self.state.replaced.get(request.broker_id, ()),
                lost_round=self._lost_round(request, wall_clock_ms),
            )
            self.state.record_producer_id_round(round_of(request.highest_producer_id))
            if isinstance(outcome, RegistrationError):
                return RegisterResponse(outcome.error, outcome.message)
            try:
                await self._admit(request, stored, outcome)
            except Deferred as error:
                self.is_dirty = True
                return RegisterResponse(ErrorCode.REQUEST_TIMED_OUT, f"{error}: register again")
        record = outcome.record
        return RegisterResponse(
            ErrorCode.NONE,
            controller_epoch=self.state.controller_epoch,
            broker_epoch=record.broker_epoch,
            cluster_id=record.cluster_id,
            is_clean=outcome.is_clean,
            session_timeout_ms=self._settings.session_timeout_ms,
            heartbeat_interval_ms=self._settings.heartbeat_interval_ms,
        )

    async def confirm(self, broker_id: BrokerId) -> None:
        """Return if the broker is stored as we know it.

        Raises Deferred, Deposed.
        """
        async with self.lock:
            known = self.state.brokers.get(broker_id)
            if known is not None:
                await self.slice_store.confirm_broker(known)

    async def activate(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> None:
        """Unfence a broker: store the record, then run elections that may choose it."""
        async with self.lock:
            record = self.current(broker_id, broker_epoch)
            if record is None or record.is_live or record.state is BrokerControlState.GONE:
                return
            await self.save_broker(replace(record, state=BrokerControlState.ACTIVE))
            self.sessions.contact(broker_id, self._now_ms())
            self.image.set_brokers(self.state.broker_states())
            await self.evaluate()
            logger.info("broker active", extra=self._fields(broker_id))

    async def drain(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> None:
        """Move all leadership off a broker and remove it from each ISR (controlled shutdown)."""
        async with self.lock:
            record = self.current(broker_id, broker_epoch)
            notes = self.state.soft_state_of(broker_id)
            if record is None or not record.is_live or notes.drained_at_version is not None:
                return
            self.state.observations.planned_restarts.begin(broker_id, self._now_ms())
            self.state.brokers[broker_id] = replace(record, state=BrokerControlState.DRAINING)
            if await self._evaluate_and_save([broker_id]):
                # Set once (KAFKA-14292): who must have applied what.
                notes.drained_at_version = self.image.version
                notes.drained_at_ms = self._now_ms()
            logger.info("broker draining", extra=self._fields(broker_id))
        self._announcements.image()

    async def fence(self, lives: Iterable[tuple[BrokerId, BrokerEpoch]], reason: str) -> None:
        """Fence these brokers in one step, so that none of them is elected meanwhile."""
        async with self.lock:
            fenced = []
            for broker_id, broker_epoch in lives:
                record = self.current(broker_id, broker_epoch)
                if record is None or not record.is_live:
                    continue
                if not record.is_stopping:
                    self.state.observations.planned_restarts.end(broker_id)
                self.state.brokers[broker_id] = replace(record, state=BrokerControlState.FENCED)
                self.sessions.end(broker_id)
                fenced.append(broker_id)
                logger.info("broker fenced", extra={**self._fields(broker_id), "reason": reason})
            if fenced:
                await self._evaluate_and_save(fenced, leaving=fenced)

    async def storage_failed(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> None:
        """Invalidate all entries of a broker epoch; the next start is unclean (S8)."""
        async with self.lock:
            record = self.current(broker_id, broker_epoch)
            if record is None or record.clean_since > broker_epoch:
                return
            failed = replace(
                record,
                state=BrokerControlState.FENCED,
                clean_since=BrokerEpoch(broker_epoch + 1),
                disk_since=BrokerEpoch(broker_epoch + 1),
            )
            await self.save_broker(failed)
            self.sessions.end(broker_id)
            await self._evaluate_and_save([], leaving=[broker_id])
            logger.error("broker storage failed", extra=self._fields(broker_id))

    async def evaluate_failures(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> None:
        """Remove failed replicas from each set (S9).

        No earlier decision can be stored after that.
        """
        async with self.lock:
            if self.current(broker_id, broker_epoch) is None:
                return
            notes = self.state.soft_state_of(broker_id)
            failed = notes.failed_replicas  # a later heartbeat may say more while this is stored
            if notes.evaluated_failures != failed:
                notes.evaluated_failures = failed if await self.evaluate() else frozenset()

    async def record_truncations(self, truncations: tuple[CommittedTruncation, ...]) -> bool:
        """Store truncations that followers report, which are the cost of an unclean election.

        Returns False if that is deferred. Nothing is stored when a later election replaced it.
        """
        async with self.lock:
            ids = dict.fromkeys(cut.topic_id for cut in truncations)
            return await self.write(
                {
                    value.name: lambda stored: stored.with_truncations(truncations)
                    for topic_id in ids
                    for value in self.state.topic_slices(topic_id)
                }
            )

    async def evaluate_again(self) -> None:
        """Finish what an earlier decision deferred; writes nothing if all is as it should be."""
        async with self.lock:
            if self.is_dirty:
                self.is_dirty = False
                await self._evaluate_and_save(sorted(self._unsaved_brokers))

    async def balance(self) -> None:
        """Move leadership back to preferred replicas where that evens it out (L5)."""
        async with self.lock:
            await self._changes.balance()

    async def confirm_slices(self, topic_id: TopicId) -> None:
        """Forget the topic's slices that are missing in the store. Writes nothing."""
        async with self.topic_locks.hold(topic_id), self.lock.shared():
            for value in self.state.topic_slices(topic_id):
                await self.slice_store.confirm(value)

    # What decisions are made of. Callers hold the lock.

    def forget_slice(self, value: PartitionSlice) -> None:
        """Forget a slice that is missing in the store.

        Nothing is decided about it, brokers keep their data (S12), and its topic shows it as
        missing.
        """
        for state in value.partitions:
            self.state.record_known(value.topic.topic_id, state, version=self.image.version)
        self.state.slices.pop(value.name, None)
        logger.error(
            "PartitionSlice missing", extra={"slice": value.name, "topic": value.topic.topic}
        )
        self._announcements.change(StateChange("topic", self.state.pool, value.object_name))

    def forget_topic(self, topic_id: TopicId) -> None:
        """Forget a topic whose slices are deleted permanently."""
        self.state.forget_topic(topic_id)
        self._views.forget(topic_id)

    def topic_view(self, topic_id: TopicId) -> TopicView | None:
        return self._views.of(topic_id, self.slice_store.outcome_unknown)

    def topic_views(self) -> tuple[TopicView, ...]:
        return self._views_of(self.state.slices.topic_ids())

    def topic_views_named(self, topic: str) -> tuple[TopicView, ...]:
        return self._views_of(self.state.slices.topic_ids_named(topic))

    def _views_of(self, topic_ids: Iterable[TopicId]) -> tuple[TopicView, ...]:
        views = map(self.topic_view, topic_ids)
        return tuple(view for view in views if view is not None)

    def record_reported_epochs(self, held: tuple[ReportedEpoch, ...]) -> None:
        self.record_stale(self.state.record_reported_epochs(held, version=self.image.version))

    def record_stale(self, slices: tuple[PartitionSlice, ...]) -> None:
        """Report stale slices and read them again (S17).

        The epochs may also come from a deposed controller's write that we have not read.
        """
        for value in slices:
            self.slice_store.unsettle(value)
            logger.error(
                "PartitionSlice is older than the brokers' logs",
                extra={"pool": self.state.pool, "slice": value.name, "topic": value.topic.topic},
            )

    def load_slice(self, value: PartitionSlice) -> None:
        self._slice_is_durable(value)

    def current(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> BrokerRecord | None:
        """Return the record of that broker epoch, or None if it is not the registered one."""
        record = self.state.brokers.get(broker_id)
        return record if record is not None and record.broker_epoch == broker_epoch else None

    async def _admit(
        self, request: RegisterRequest, stored: BrokerRecord | None, outcome: Accepted
    ) -> None:
        """Store a registration and apply its report (S2, S9).

        First the earlier epoch is fenced and invalid entries are removed, then the new epoch is
        stored, then its report counts.
        """
        broker_id, record = request.broker_id, outcome.record
        report = report_of(request)
        self.record_stale(self.state.record_reported(request.replicas, version=self.image.version))
        notes = BrokerSoftState(
            lost_replicas=lost_replicas(report, self.state.assigned(), request),
            lost_below=record.broker_epoch,
            found_replicas=found_replicas(report),
        )
        if outcome.is_same_epoch:
            known = self.state.soft_state_of(broker_id)
            known.lost_replicas, known.lost_below = notes.lost_replicas, notes.lost_below
            known.found_replicas = notes.found_replicas
            known.applied_version = -1
        elif stored is not None:
            if not outcome.is_clean:
                # Of a life that a deposed controller registered this start may well be the proof:
                # its entries are not struck out by what we read before.
                await self.slice_store.confirm_broker(stored)
            self.state.soft_state_of(broker_id).report = None  # of a log as it was before
            self.state.observations.record_next_epoch(stored, request.clean_stop_epoch)
            leaving = BrokerEligibility(
                broker_id,
                stored.broker_epoch,
                record.clean_since,
                record.disk_since,
                is_live=False,
                lost_replicas=notes.lost_replicas,
                lost_below=notes.lost_below,
            )
            if not await self.evaluate(leaving):
                raise Deferred(f"broker {broker_id}: earlier broker epoch is not fenced yet")
        if not outcome.is_same_epoch:
            if stored is not None and request.clean_stop_epoch == stored.broker_epoch:
                # Known already, unless another controller led when it stopped.
                self.state.observations.planned_restarts.begin(broker_id, self._now_ms())
            await self.save_broker(record)
            if stored is not None:
                self.state.record_replaced(stored)
            self.state.notes[broker_id] = notes
            self.sessions.end(broker_id)
            logger.info(
                "broker registered",
                extra={
                    **self._fields(broker_id),
                    "clean": outcome.is_clean,
                    "clean_since": record.clean_since,
                    "disk_since": record.disk_since,
                },
            )
        known = self.state.soft_state_of(broker_id)
        known.report = report
        known.report_version = self._report_version(request, outcome)
        self.image.set_brokers(self.state.broker_states())
        await self.evaluate()  # the report may be the last one that an election waited for (S14)
        if self.state.reports_wanted >= 0:
            self._announcements.change(
                StateChange("broker", self.state.pool, str(broker_id))
            )  # or a Topic (S17)

    def _report_version(self, request: RegisterRequest, outcome: Accepted) -> int:
        """Return the image version up to which the report shows logs that do not change (S14).

        The request may be old when it is read, and its broker may have followed a leader meanwhile.
        """
        if not outcome.is_same_epoch and request.applied_image_version < 0:
            return self.image.version  # it leads and follows nothing yet
        is_ours = request.applied_controller_epoch == self.state.controller_epoch
        return request.applied_image_version if is_ours else -1

    async def evaluate(
        self, *overriding: BrokerEligibility, topics: Collection[TopicId] | None = None
    ) -> bool:
        """Evaluate all slices, or those of some topics.

        Returns False if one is deferred to a tick.
        """
        with self._announcements.changes_at_the_end():
            return await self._changes.evaluate(*overriding, topics=topics)

    async def write(self, decisions: Mapping[str, Decide]) -> bool:
        """Write slices by name; return False if one is deferred to a tick."""
        return await self._changes.write(decisions)

    async def _evaluate_and_save(
        self, broker_ids: Collection[BrokerId], *, leaving: Collection[BrokerId] = ()
    ) -> bool:
        """Write slices and Broker objects concurrently; `leaving` are the brokers just fenced.

        The objects only inform people, and a successor gives each broker a session anyway.
        """
        self._keep_from_joining(leaving)
        is_settled, *_ = await asyncio.gather(
            self.evaluate(), *(self._save_quietly(broker_id) for broker_id in broker_ids)
        )
        self.image.set_brokers(self.state.broker_states())
        for broker_id in broker_ids:
            self._announcements.change(StateChange("broker", self.state.pool, str(broker_id)))
        self._announcements.image()
        return bool(is_settled)

    # guard: leaving-broker-is-not-proposed (L1)
    def _keep_from_joining(self, leaving: Collection[BrokerId]) -> None:
        """Tell leaders, with the news that a broker left an ISR, that it may not rejoin.

        Otherwise thousands of leaders propose the broker while the last slices are written, and
        each refusal is one more write. That it is fenced is pushed at the end, as clients wait for
        that (0063).
        """
        self.image.set_brokers(self.state.broker_states(leaving=leaving))

    async def save_broker(self, record: BrokerRecord) -> None:
        stamped = replace(record, controller_epoch=self.state.controller_epoch)
        await self.slice_store.write_broker(stamped)
        self.state.brokers[record.broker_id] = stamped
        self._unsaved_brokers.discard(record.broker_id)
        self._announcements.change(StateChange("broker", self.state.pool, str(record.broker_id)))

    async def _save_quietly(self, broker_id: BrokerId) -> None:
        try:
            await self.save_broker(self.state.brokers[broker_id])
        except NamespaceDeleted:
            # Its object went with the namespace; kept here it would be written for ever.
            logger.info("broker removed with its namespace", extra=self._fields(broker_id))
            self.state.brokers.pop(broker_id, None)
            self._unsaved_brokers.discard(broker_id)
            self.sessions.end(broker_id)
        except Deferred as error:
            self.is_dirty = True
            self._unsaved_brokers.add(broker_id)
            logger.warning(
                "Broker object not stored, retrying",
                extra={"broker_id": broker_id, "error": str(error)},
            )

    def _slice_is_durable(self, value: PartitionSlice) -> None:
        self.state.observations.record_slice(
            self.state.slices.get(value.name), value, self.state.brokers
        )
        self.state.record_durable(value, version=self.image.version)
        topic_slices = self.state.topic_slices(value.topic.topic_id)
        count = max(each.topic.partition_count for each in topic_slices)
        self.image.set_partitions(
            value.topic.counting(count),
            value.partitions,
            is_retained=value.is_retained,
        )
        self.state.record_leaderless(value, version=self.image.version)
        self._announcements.change(StateChange("topic", self.state.pool, value.object_name))
        self._announcements.image()

    def _record_dirty(self) -> None:
        self.is_dirty = True

    def _slice_is_unknown(self, value: PartitionSlice) -> None:
        # What is stored may be another controller's decision, made for brokers as it knew them:
        # a read for another purpose does not settle it (L1).
        self.is_dirty = True
        self.image.withhold(value.topic.topic_id, value.numbers)

    def _fields(self, broker_id: BrokerId) -> dict[str, object]:
        record = self.state.brokers[broker_id]
        return {
            "pool": self.state.pool,
            "broker_id": broker_id,
            "broker_epoch": record.broker_epoch,
            "controller_epoch": self.state.controller_epoch,
        }

    def set_settings(self, settings: PoolSettings) -> None:
        self.image.set_settings(settings)
        self._announcements.image()

    def notify_brokers(self) -> None:
        self._announcements.image()
