"""Write one pool's slices and Broker objects durably.

Each write is one compare-and-set. A slice whose write has an unknown outcome, or met another
writer's, is unreadable until a quorum read tells what is stored (S3); then the caller's decision is
made again from that. After `write_attempts` the decision is deferred, and the slice stays
unreadable until a later decision reads it.
"""

import asyncio
import logging
from collections.abc import Callable, Set
from dataclasses import replace

from tidemark_protocol.ids import BrokerId, ControllerEpoch, TopicId

from tidemark_operator.api.broker import (
    BrokerRecord,
    broker_object,
    broker_object_name,
    producer_id_round_of,
    read_broker,
)
from tidemark_operator.api.kinds import BROKER, PARTITION_SLICE, Object
from tidemark_operator.api.partition_slice import (
    MalformedObject,
    PartitionSlice,
    read_slice,
    read_slices,
    slice_object,
    split_pool,
)
from tidemark_operator.controller.core.decision import Decide, Deferred, NamespaceDeleted
from tidemark_operator.controller.core.deleted_topics import (
    Tombstone,
    is_tombstone,
    read_tombstone,
    tombstone_object,
)
from tidemark_operator.controller.core.settings import ControllerSettings
from tidemark_operator.store.object_store import (
    AlreadyExists,
    Conflict,
    NamespaceTerminating,
    ObjectStore,
    Rejected,
    StoreError,
)

logger = logging.getLogger(__name__)


class ControllerSuperseded(Exception):
    """An error: the store holds a later controller's write; stop deciding."""


class SliceStore:
    """The slices and Broker objects of one pool.

    `on_durable` is called with each slice that is known to be stored, `on_unknown` with each slice
    whose state is unknown, `on_vanished` with each one that others deleted.
    """

    def __init__(
        self,
        store: ObjectStore,
        settings: ControllerSettings,
        controller_epoch: ControllerEpoch,
        *,
        on_durable: Callable[[PartitionSlice], None],
        on_unknown: Callable[[PartitionSlice], None],
        on_vanished: Callable[[PartitionSlice], None],
    ) -> None:
        self._store = store
        self._settings = settings
        self._controller_epoch = controller_epoch
        self._on_durable = on_durable
        self._on_unknown = on_unknown
        self._on_vanished = on_vanished
        self._outcome_unknown: set[str] = set()
        self._broker_objects: dict[BrokerId, Object] = {}

    @property
    def outcome_unknown(self) -> Set[str]:
        return self._outcome_unknown

    async def change(self, value: PartitionSlice, decide: Decide) -> PartitionSlice | None:
        """Apply `decide` to what is stored, and return what is stored then.

        `value` is as last known. `decide` returns its argument if there is nothing to write.
        Returns None for a slice that others deleted. Raises Deferred, Deposed.
        """
        current: PartitionSlice | None = value
        for attempt in range(self._settings.write_attempts):
            try:
                if value.name in self._outcome_unknown:
                    if attempt:
                        await asyncio.sleep(self._settings.evaluate_retry_ms / 1000)
                    current = await self._reread(value)
                if current is None:
                    return None
                wanted = decide(current)
                if wanted is current:
                    return current
                return await self._replace(current, wanted)
            except StoreError as error:
                # Conflict: read again, decide again. OutcomeUnknown, and any error that does not
                # promise that nothing was written: the same (S3).
                logger.warning("PartitionSlice write outcome unknown", extra=_fields(value, error))
                self.unsettle(value)
        raise Deferred(
            f"PartitionSlice {value.name}: outcome unknown after"
            f" {self._settings.write_attempts} attempts"
        )

    async def create(self, value: PartitionSlice) -> PartitionSlice:
        """Create a slice.

        Raises AlreadyExists when another topic has the name, Refused (a quota, a policy: retrying
        is useless before the user acts), Deferred.
        """
        stamped = _stamped(value, self._controller_epoch)
        for attempt in range(self._settings.write_attempts):
            try:
                if attempt:
                    await asyncio.sleep(self._settings.evaluate_retry_ms / 1000)
                    stored = await self._read(value)
                    if stored is not None:  # an earlier attempt of ours landed
                        return self._accepted_as_ours(stored, value)
                item = slice_object(stamped)
                created = await self._store.create(PARTITION_SLICE, item)
                return self._durable(_as_stored(stamped, item, created))
            except AlreadyExists:
                stored = await self._read(value)
                if stored is not None:
                    return self._accepted_as_ours(stored, value)
            except Rejected:
                stored = await self._read(value)  # one that landed late may have taken the quota
                if stored is None:
                    raise
                return self._accepted_as_ours(stored, value)
            except StoreError as error:
                logger.warning("PartitionSlice not created yet", extra=_fields(value, error))
        raise Deferred(
            f"PartitionSlice {value.name}: not created after {self._settings.write_attempts}"
            " attempts"
        )

    async def find(self, pool: str, topic_id: TopicId) -> tuple[PartitionSlice, ...]:
        """Return the topic's slices that can be read.

        Raises StoreError, Deposed.
        """
        stored = await self._store.list(PARTITION_SLICE, split_pool(pool)[0])
        found, flaws = read_slices(
            item
            for item in stored
            if item.get("topicId") == topic_id and item.get("pool") == pool
            if not is_tombstone(item)
        )
        for flaw in flaws:
            logger.error("PartitionSlice unreadable", extra={"error": flaw})
        for value in found:
            self._check_not_superseded(value)
        return tuple(found)

    async def read(self, value: PartitionSlice) -> PartitionSlice | None:
        """Return the slice as it is stored, or None if it is gone or another topic's.

        Raises StoreError, Deposed.
        """
        stored = await self._read(value)
        is_its_own = stored is not None and stored.topic.topic_id == value.topic.topic_id
        return stored if is_its_own else None

    async def confirm(self, value: PartitionSlice) -> None:
        """Check a slice by a live read, and call `on_vanished` if it is gone.

        Raises StoreError, Deposed.
        """
        if await self.read(value) is None:
            self._vanished(value)

    async def delete(self, value: PartitionSlice) -> None:
        """Delete a slice.

        Raises StoreError: then it may or may not be gone, and is unreadable.
        """
        namespace, _ = split_pool(value.pool)
        try:
            await self._store.delete(PARTITION_SLICE, namespace, value.name, uid=value.uid or None)
        except StoreError as error:
            if isinstance(error, Conflict) and await self._is_gone(value):
                return  # an answer was lost, and the name is another's by now
            self.unsettle(value)
            raise
        self._outcome_unknown.discard(value.name)

    async def _is_gone(self, value: PartitionSlice) -> bool:
        """Return whether that object is gone, whatever has its name now.

        A Conflict alone does not show it (52001012).
        """
        namespace, _ = split_pool(value.pool)
        try:
            stored = await self._store.get(PARTITION_SLICE, namespace, value.name)
        except StoreError:
            return False  # not known
        return stored is None or (bool(value.uid) and stored["metadata"].get("uid") != value.uid)

    async def store_deletion_record(self, tombstone: Tombstone) -> Tombstone:
        """Store a deletion record and return it.

        Raises Deferred.
        """
        namespace, _ = split_pool(tombstone.pool)
        item = tombstone_object(tombstone, self._controller_epoch)
        for attempt in range(self._settings.write_attempts):
            try:
                if attempt:
                    await asyncio.sleep(self._settings.evaluate_retry_ms / 1000)
                    stored = await self._store.get(PARTITION_SLICE, namespace, tombstone.name)
                    if stored is not None:
                        return read_tombstone(stored)
                return read_tombstone(await self._store.create(PARTITION_SLICE, item))
            except (StoreError, MalformedObject) as error:
                logger.warning(
                    "deletion record not stored yet",
                    extra={"topic": tombstone.topic, "error": str(error)},
                )
        raise Deferred(f"topic {tombstone.topic}: the deletion record cannot be stored")

    async def remove_deletion_record(self, tombstone: Tombstone) -> None:
        """Remove a deletion record.

        Raises StoreError.
        """
        namespace, _ = split_pool(tombstone.pool)
        await self._store.delete(
            PARTITION_SLICE, namespace, tombstone.name, uid=tombstone.uid or None
        )

    def unsettle(self, value: PartitionSlice) -> None:
        """Withhold a slice until it is read again."""
        self._outcome_unknown.add(value.name)
        self._on_unknown(value)

    def remember_broker(self, broker_id: BrokerId, item: Object) -> None:
        self._broker_objects[broker_id] = item

    async def write_broker(self, record: BrokerRecord) -> None:
        """Store a broker's record.

        A stored record that is not ours is overwritten only if that lowers no epoch. Raises
        Deferred, NamespaceDeleted, Deposed.
        """
        for attempt in range(self._settings.write_attempts):
            try:
                if attempt:
                    await asyncio.sleep(self._settings.evaluate_retry_ms / 1000)
                    if await self._reread_broker(record):
                        return
                stored = self._broker_objects.get(record.broker_id)
                item = broker_object(record, stored)
                if stored is None:
                    written = await self._store.create(BROKER, item)
                else:
                    written = await self._store.replace(BROKER, item)
                self._broker_objects[record.broker_id] = written
                return
            except NamespaceTerminating as error:
                raise NamespaceDeleted(f"broker {record.broker_id}: {error}") from error
            except StoreError as error:
                logger.warning(
                    "Broker object write outcome unknown",
                    extra={"broker_id": record.broker_id, "error": str(error)},
                )
        raise Deferred(f"broker {record.broker_id}: the Broker object cannot be written")

    # guard: broker-confirmed-before-void (S2)
    async def confirm_broker(self, known: BrokerRecord) -> None:
        """Return if no other controller registered that broker since its object was read.

        Raises Deferred, Deposed.
        """
        try:
            await self._reread_broker(known)
        except StoreError as error:
            raise Deferred(f"broker {known.broker_id}: the Broker object cannot be read") from error

    # guard: slice-written-by-compare-and-set (S3)
    async def _replace(self, current: PartitionSlice, wanted: PartitionSlice) -> PartitionSlice:
        stamped = _stamped(wanted, self._controller_epoch)
        item = slice_object(stamped)
        try:
            written = await self._store.replace(PARTITION_SLICE, item)
        except BaseException:  # also when cancelled: it may have been written (S3)
            self.unsettle(current)
            raise
        return self._durable(_as_stored(stamped, item, written))

    async def _reread(self, value: PartitionSlice) -> PartitionSlice | None:
        stored = await self.read(value)
        if stored is None:
            self._vanished(value)
            return None
        return self._durable(stored)

    def _vanished(self, value: PartitionSlice) -> None:
        self._outcome_unknown.discard(value.name)
        self._on_vanished(value)

    async def _read(self, value: PartitionSlice) -> PartitionSlice | None:
        namespace, _ = split_pool(value.pool)
        item = await self._store.get(PARTITION_SLICE, namespace, value.name)
        if item is None:
            return None
        try:
            stored = read_slice(item)
        except MalformedObject as error:
            # As at a take-over: one unreadable slice must not hold up the pool (S12).
            logger.error("PartitionSlice unreadable", extra={"error": str(error)})
            return None
        self._check_not_superseded(stored)
        return stored

    # guard: read-tells-later-controller (I16)
    def _check_not_superseded(self, stored: PartitionSlice) -> None:
        if stored.controller_epoch > self._controller_epoch:  # I16
            raise ControllerSuperseded(
                f"PartitionSlice {stored.name} was written by controller epoch"
                f" {stored.controller_epoch}, later than epoch {self._controller_epoch} of"
                " this controller"
            )

    async def _reread_broker(self, record: BrokerRecord) -> bool:
        """Read a broker's object again; return whether the record is already stored."""
        namespace, _ = split_pool(record.pool)
        item = await self._store.get(BROKER, namespace, broker_object_name(record))
        if item is None:
            self._broker_objects.pop(record.broker_id, None)
            return False
        try:
            stored = read_broker(item)
        except MalformedObject as error:
            logger.error("Broker object unreadable", extra={"error": str(error)})
            stored = None  # written anew
        if stored is not None and stored != record:
            self._check_may_write_over(stored, record)
        # Not before: a task that still decides while this controller stands by would write with it.
        self._broker_objects[record.broker_id] = item
        return stored == record

    # guard: later-life-is-not-overwritten (I14)
    def _check_may_write_over(self, stored: BrokerRecord, record: BrokerRecord) -> None:
        if stored.controller_epoch > self._controller_epoch:
            raise ControllerSuperseded(
                f"broker {record.broker_id} was written by controller epoch"
                f" {stored.controller_epoch}, later than epoch {self._controller_epoch} of"
                " this controller"
            )
        is_other_epoch = stored.incarnation != record.incarnation
        if stored.broker_epoch > record.broker_epoch - is_other_epoch:
            # I14: a deposed controller registered it after we had read everything, or a write of
            # ours landed after all. Two lives never share an epoch (S2).
            raise ControllerSuperseded(
                f"broker {record.broker_id}: stored broker epoch is {stored.broker_epoch},"
                f" expected {record.broker_epoch}: the controller reads all state again"
            )
        if stored.clean_since > record.clean_since or stored.disk_since > record.disk_since:
            # S2, S8: what was declared void, and perhaps told to be, would prove something again.
            raise ControllerSuperseded(
                f"broker {record.broker_id}: stored cleanSince is {stored.clean_since},"
                f" expected {record.clean_since}: the controller reads all state again"
            )
        if self._is_used_by_another(stored):  # S5
            raise ControllerSuperseded(
                f"broker {record.broker_id}: a superseded controller allocated producer ID"
                f" round {stored.producer_id_round}: the controller reads all state again"
            )

    # guard: producer-ids-of-another-controller (S5)
    def _is_used_by_another(self, stored: BrokerRecord) -> bool:
        """Return whether the stored round is above the known one and not our own write."""
        known = self._broker_objects.get(stored.broker_id, {})
        return (
            stored.producer_id_round > producer_id_round_of(known)
            and stored.controller_epoch != self._controller_epoch
        )

    def _accepted_as_ours(self, stored: PartitionSlice, value: PartitionSlice) -> PartitionSlice:
        if stored.topic.topic_id != value.topic.topic_id:
            raise AlreadyExists(
                f"PartitionSlice {value.name}: expected topic ID {value.topic.topic_id},"
                f" found {stored.topic.topic_id} (topic {stored.topic.topic}, retained:"
                f" {stored.is_retained}): adopt that topic ID, or delete those PartitionSlice"
                " objects"
            )
        self._on_unknown(stored)  # made some time ago: its leader may be gone since (L1)
        return self._durable(stored)

    def _durable(self, value: PartitionSlice) -> PartitionSlice:
        self._outcome_unknown.discard(value.name)
        self._on_durable(value)
        return value


def _stamped(value: PartitionSlice, controller_epoch: ControllerEpoch) -> PartitionSlice:
    if value.controller_epoch == controller_epoch:
        return value
    return replace(value, controller_epoch=controller_epoch)


def _as_stored(value: PartitionSlice, sent: Object, stored: Object) -> PartitionSlice:
    """Return the slice that a write's response shows.

    Usually the store kept it as it was sent: then only the metadata is read, because parsing
    thousands of partitions again costs as much as deciding about them.
    """
    fields = {**stored, "metadata": sent["metadata"]}
    metadata = stored["metadata"]
    if fields != sent or not metadata.get("resourceVersion"):
        return read_slice(stored)
    return replace(value, resource_version=metadata["resourceVersion"], uid=metadata.get("uid", ""))


def _fields(value: PartitionSlice, error: Exception) -> dict[str, str]:
    return {"slice": value.name, "topic": value.topic.topic, "error": str(error)}
