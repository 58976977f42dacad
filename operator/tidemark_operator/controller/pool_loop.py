"""Run the controller commands of one pool, and perform the decisions that they yield.

A command has a turn of the pool, so it sees the durable outcome of the one before. It decides by
the pure core; here its slices and Broker objects are written, and brokers are notified only once
that is stored. Run them to the end: a caller whose connection broke must not interrupt one
(decision_tasks.py shields them).
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, closing
from dataclasses import asdict, replace
from typing import Concatenate, ParamSpec
from uuid import UUID

from tidemark_protocol.controller_messages import (
    RegisterRequest,
    RegisterResponse,
    ReportedEpoch,
)
from tidemark_protocol.ids import BrokerEpoch, BrokerId, ControllerEpoch, TopicId

from tidemark_operator.api.broker import BrokerRecord
from tidemark_operator.api.kinds import Object
from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.controller.announcements import Announcements
from tidemark_operator.controller.commands import broker_state, delete_topic, register_broker
from tidemark_operator.controller.core.decision import (
    ChangeSlice,
    ChangeSlices,
    ConfirmBroker,
    CreateSlice,
    Decision,
    Deferred,
    DeleteSlices,
    Evaluate,
    EvaluateAndSave,
    EvaluateLater,
    FindSlices,
    LoadSlice,
    NamespaceDeleted,
    NotifyBrokers,
    Outcome,
    ReadSlice,
    RemoveTombstones,
    ReportChange,
    Result,
    SaveBroker,
    SliceAccess,
    Steps,
    StoreTombstone,
    Turn,
    UnsettleSlices,
)
from tidemark_operator.controller.core.deleted_topics import Tombstone
from tidemark_operator.controller.core.eligibility import BrokerEligibility
from tidemark_operator.controller.core.metadata_image import MetadataImage
from tidemark_operator.controller.core.observations import in_sync_changes
from tidemark_operator.controller.core.pool_state import PoolState
from tidemark_operator.controller.core.sessions import Sessions
from tidemark_operator.controller.core.settings import ControllerSettings
from tidemark_operator.controller.core.timeline import Timeline, TopicRetired
from tidemark_operator.controller.core.topic_views import TopicViews
from tidemark_operator.controller.core.views import PoolSettings, StateChange, TopicView
from tidemark_operator.controller.keyed_locks import KeyedLocks
from tidemark_operator.controller.slice_changes import SliceChanges
from tidemark_operator.controller.slice_store import SliceStore
from tidemark_operator.controller.turns import Turns
from tidemark_operator.store.object_store import ObjectStore, StoreError

logger = logging.getLogger(__name__)

Arguments = ParamSpec("Arguments")


class PoolLoop:
    def __init__(
        self,
        pool: str,
        controller_epoch: ControllerEpoch,
        store: ObjectStore,
        *,
        settings: ControllerSettings,
        now_ms: Callable[[], int],
        wall_clock_ms: Callable[[], int],
        announcements: Announcements,
        new_uuid: Callable[[], UUID],
    ) -> None:
        """Create an empty pool; `announcements` notify its brokers and the reconcilers."""
        self.image = MetadataImage(
            controller_epoch, deleted_retained=settings.deleted_topics_retained
        )
        self.sessions = Sessions(settings)
        self.state = PoolState(
            pool, controller_epoch, self.image, self.sessions, Timeline(wall_clock_ms)
        )
        self._views = TopicViews(self.state)
        self.lock = Turns()
        self.topic_locks = KeyedLocks[TopicId]()  # taken before a turn
        # A decision was put off, or a take-over happened: the next tick looks at everything.
        self.is_dirty = True
        self._is_sweeping = False  # what deletions have left
        self._unsaved_brokers: set[BrokerId] = set()
        self._settings = settings
        self._now_ms = now_ms
        self._wall_clock_ms = wall_clock_ms
        self._announcements = announcements
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

    # Commands (commands/).

    async def run(
        self,
        command: Callable[Concatenate[PoolState, Arguments], Steps[Result]],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Run a command while no other decision about the pool is made.

        Raises what the command raises, Deposed.
        """
        return await self._drive(command(self.state, *arguments, **named), Turn.ALONE)

    async def run_on_topic(
        self,
        topic_id: TopicId,
        command: Callable[Concatenate[PoolState, Arguments], Steps[Result]],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Run a command that holds its topic, and takes turns of the pool by itself.

        Raises what the command raises, Deposed.
        """
        async with self.topic_locks.hold(topic_id):
            return await self._drive(command(self.state, *arguments, **named), Turn.NONE)

    async def _drive(self, steps: Steps[Result], first: Turn) -> Result:
        """Perform what a command yields; it goes on with the outcome, or gets the error."""
        async with AsyncExitStack() as turn:
            await self._take(turn, first)
            with closing(steps):
                try:
                    decision = next(steps)
                    while True:
                        try:
                            outcome = await self._perform(decision, turn)
                        except Exception as error:
                            decision = steps.throw(error)
                        else:
                            decision = steps.send(outcome)
                except StopIteration as end:
                    result: Result = end.value
                    return result

    async def _take(self, turn: AsyncExitStack, wanted: Turn) -> None:
        await turn.aclose()
        match wanted:
            case Turn.SHARED:
                await turn.enter_async_context(self.lock.shared())
            case Turn.ALONE:
                await turn.enter_async_context(self.lock)

    async def _perform(self, decision: Decision, turn: AsyncExitStack) -> Outcome:
        match decision:
            case Turn():
                await self._take(turn, decision)
            case LoadSlice(value):
                self.load_slice(value)
                self.is_dirty = True
            case SaveBroker(record):
                await self.save_broker(record)
            case ConfirmBroker(record):
                await self.slice_store.confirm_broker(record)
            case Evaluate(topics, overriding):
                return Outcome(is_complete=await self.evaluate(*overriding, topics=topics))
            case EvaluateAndSave(broker_ids, leaving):
                is_complete = await self._evaluate_and_save(broker_ids, leaving=leaving)
                return Outcome(is_complete=is_complete)
            case EvaluateLater():
                self.is_dirty = True
            case UnsettleSlices(values):
                self.record_stale(values)
            case ReportChange(change):
                self._announcements.change(change)
            case NotifyBrokers():
                self._announcements.image()
            case _:
                return await self._access(decision)
        return Outcome()

    async def _access(self, decision: SliceAccess) -> Outcome:
        match decision:
            case ChangeSlice(value, decide):
                return _stored(await self.slice_store.change(value, decide))
            case ChangeSlices(changes):
                return await self._changes.write(changes)
            case CreateSlice(value):
                return _stored(await self.slice_store.create(value))
            case FindSlices(topic_id):
                return _stored(*await self.slice_store.find(self.state.pool, topic_id))
            case ReadSlice(value):
                return _stored(await self.slice_store.read(value))
            case StoreTombstone(tombstone):
                self.load_tombstone(await self.slice_store.store_deletion_record(tombstone))
                self.state.timeline.record(TopicRetired(tombstone.topic_state, is_retained=False))
            case DeleteSlices(values):
                await asyncio.gather(*map(self._delete, values))
            case RemoveTombstones(tombstones):
                await asyncio.gather(*map(self._remove_deletion_record, tombstones))
        return Outcome()

    async def _delete(self, value: PartitionSlice) -> None:
        try:
            await self.slice_store.delete(value)
        except StoreError as error:
            logger.warning(
                "PartitionSlice of a deleted topic not removed yet",
                extra={"slice": value.name, "error": str(error)},
            )
            return
        self.state.leftovers.pop(value.name, None)

    async def _remove_deletion_record(self, tombstone: Tombstone) -> None:
        try:
            await self.slice_store.remove_deletion_record(tombstone)
        except StoreError as error:
            logger.warning(
                "deletion record not removed yet",
                extra={"topic": tombstone.topic, "error": str(error)},
            )
            return
        self.state.tombstones.pop(tombstone.topic_id, None)
        self.image.finish_deletion(tombstone.topic_id)

    @property
    def is_sweep_due(self) -> bool:
        return not self._is_sweeping and delete_topic.is_due(self.state)

    async def sweep(self) -> None:
        """Delete some of what deletions left, concurrently with commands that create topics."""
        self._is_sweeping = True
        try:
            await self._drive(delete_topic.sweep(self.state), Turn.SHARED)
        finally:
            self._is_sweeping = False

    # Shorter names of commands, and what is no command.

    async def register(self, request: RegisterRequest) -> RegisterResponse:
        return await self.run(
            register_broker.register,
            request,
            self._settings,
            wall_clock_ms=self._wall_clock_ms(),
            now_ms=self._now_ms,
            new_uuid=self._new_uuid,
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
        await self.run(broker_state.activate, broker_id, broker_epoch, self._now_ms)

    async def drain(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> None:
        await self.run(broker_state.drain, broker_id, broker_epoch, self._now_ms)

    async def fence(
        self,
        lives: Iterable[tuple[BrokerId, BrokerEpoch]],
        reason: str,
        silence_ms: Mapping[BrokerId, int] = broker_state.NO_SILENCE,
    ) -> None:
        await self.run(broker_state.fence, lives, reason, silence_ms)

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
        self._serve(value)

    def load_broker(self, broker_id: BrokerId, record: BrokerRecord | None, item: Object) -> None:
        """Load a Broker object after a takeover; one without a record is written anew."""
        self.slice_store.remember_broker(broker_id, item)
        if record is not None:
            self.state.brokers[broker_id] = record

    def load_leftover(self, value: PartitionSlice) -> bool:
        """Load a slice of a deleted topic after a takeover; return False for another topic's."""
        tombstone, _ = self.state.tombstones.get(value.topic.topic_id, (None, 0))
        if tombstone is None:
            return False
        if tombstone.covers(value):
            self.state.leftovers[value.name] = value
        else:
            logger.error(
                "PartitionSlice of a deleted topic ignored, its replicas are erased",
                extra={"slice": value.name, "topic": value.topic.topic},
            )
        return True

    def load_tombstone(self, tombstone: Tombstone) -> None:
        """Serve the topic of a durable deletion record no longer; brokers are told."""
        self.image.delete(tombstone.topic_state)
        self.state.tombstones[tombstone.topic_id] = (tombstone, self.image.version)
        self._views.forget(tombstone.topic_id)
        self._announcements.image()

    def current(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> BrokerRecord | None:
        """Return the record of that broker epoch, or None if it is not the registered one."""
        return self.state.current(broker_id, broker_epoch)

    async def evaluate(
        self, *overriding: BrokerEligibility, topics: Collection[TopicId] | None = None
    ) -> bool:
        """Evaluate all slices, or those of some topics.

        Returns False if one is deferred to a tick.
        """
        with self._announcements.changes_at_the_end():
            return await self._changes.evaluate(*overriding, topics=topics)

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
        previous = self.state.slices.get(value.name)
        elected = self.state.observations.record_slice(previous, value, self.state.brokers)
        self.state.timeline.record_slice(previous, value, elected)
        if moved := in_sync_changes(previous, value):
            logger.info(
                "in-sync replicas changed",
                extra={
                    "pool": self.state.pool,
                    "topic": value.topic.topic,
                    "partitions": [asdict(change) for change in moved],
                },
            )
        if elected:
            # One line for a slice: after a kill thousands of partitions get another leader.
            logger.info(
                "leaders elected",
                extra={
                    "pool": self.state.pool,
                    "topic": value.topic.topic,
                    "partitions": [asdict(change) for change in elected],
                },
            )
        self._serve(value)

    def _serve(self, value: PartitionSlice) -> None:
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


def _stored(*values: PartitionSlice | None) -> Outcome:
    return Outcome({value.name: value for value in values if value is not None})
