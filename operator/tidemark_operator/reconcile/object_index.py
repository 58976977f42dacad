"""Index Topic objects and PartitionSlices by what they claim, in memory.

It is filled by everything that passes through the `IndexedStore`, by watch events and by sweeps. It
may lag behind the store, so it only says which objects to read: decisions about a topic's data are
made from live reads of these objects (S12). Entries are small; the objects are not kept.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from tidemark_protocol.ids import TopicId

from tidemark_operator.api.kinds import PARTITION_SLICE, TOPIC, Object, ResourceKind
from tidemark_operator.reconcile.topic.slice_owners import SliceOwner, topic_object_name
from tidemark_operator.reconcile.work_queue import WorkKey

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value", bound=Hashable)

SliceKey = tuple[str, str]  # namespace and name


@dataclass(frozen=True, slots=True)
class TopicEntry:
    key: WorkKey
    uid: str
    pool: str  # namespace/name
    topic_name: str
    created: str  # RFC 3339, to the second
    is_going: bool  # it has a deletionTimestamp
    topic_ids: frozenset[TopicId]  # its UID, and every id that its status was seen to record

    def claims(self, owner: SliceOwner) -> bool:
        """Return whether this Topic object has, or will adopt, the data of those slices.

        By id, or by the name that it wants in the same pool.
        """
        is_namesake = (self.pool, self.topic_name) == (owner.pool, owner.topic_name)
        return owner.topic_id in self.topic_ids or is_namesake


@dataclass(frozen=True, slots=True)
class SliceEntry:
    key: SliceKey
    uid: str
    version: int  # its resourceVersion as a number; -1: it is none
    topic_id: TopicId
    pool: str
    topic_name: str
    owner: WorkKey  # the Topic object that its data is for
    is_retained: bool


class _Lookup(Generic[Key, Value]):
    """Values by key, in the order in which they came."""

    def __init__(self) -> None:
        self._values: dict[Key, dict[Value, None]] = {}

    def add(self, key: Key, value: Value) -> None:
        self._values.setdefault(key, {})[value] = None

    def remove(self, key: Key, value: Value) -> None:
        values = self._values.get(key, {})
        values.pop(value, None)
        if not values:
            self._values.pop(key, None)

    def get(self, key: Key) -> tuple[Value, ...]:
        return tuple(self._values.get(key, ()))


class ObjectIndex:
    def __init__(self) -> None:
        self._topics: dict[WorkKey, TopicEntry] = {}
        self._topics_by_name: _Lookup[tuple[str, str], WorkKey] = _Lookup()
        self._topics_by_id: _Lookup[TopicId, WorkKey] = _Lookup()
        self._slices: dict[SliceKey, SliceEntry] = {}
        self._slices_by_id: _Lookup[TopicId, SliceKey] = _Lookup()
        self._slices_by_name: _Lookup[tuple[str, str], SliceKey] = _Lookup()
        self._slices_by_owner: _Lookup[WorkKey, SliceKey] = _Lookup()
        self._moment = 0  # counts what was noted, for sweeps
        self._recorded_at: dict[SliceKey, int] = {}
        self._unlisted: set[SliceKey] = set()  # a sweep lacked them; no read has told since

    # What is there.

    def topic(self, key: WorkKey) -> TopicEntry | None:
        return self._topics.get(key)

    def topic_keys(self, namespace: str | None = None) -> tuple[WorkKey, ...]:
        return tuple(key for key in self._topics if namespace in (None, key.namespace))

    def topics_named(self, pool: str, topic_name: str) -> tuple[TopicEntry, ...]:
        return tuple(self._topics[key] for key in self._topics_by_name.get((pool, topic_name)))

    def topics_with_id(self, topic_id: TopicId) -> tuple[TopicEntry, ...]:
        return tuple(self._topics[key] for key in self._topics_by_id.get(topic_id))

    def has_slice(self, namespace: str, name: str) -> bool:
        return (namespace, name) in self._slices

    def slices_with_id(self, topic_id: TopicId) -> tuple[SliceEntry, ...]:
        return tuple(self._slices[key] for key in self._slices_by_id.get(topic_id))

    def ids_named(self, pool: str, topic_name: str) -> tuple[TopicId, ...]:
        """Return topic ids of slices with that topicName, in order."""
        keys = self._slices_by_name.get((pool, topic_name))
        return tuple(sorted({self._slices[key].topic_id for key in keys}))

    def ids_of_owner(self, owner: WorkKey) -> tuple[TopicId, ...]:
        """Return topic ids of slices whose data is for that Topic object, in order."""
        keys = self._slices_by_owner.get(owner)
        return tuple(sorted({self._slices[key].topic_id for key in keys}))

    def served_ids_of_owner(self, owner: WorkKey) -> frozenset[TopicId]:
        """Return those that are not retained."""
        entries = (self._slices[key] for key in self._slices_by_owner.get(owner))
        return frozenset(entry.topic_id for entry in entries if not entry.is_retained)

    def has_slices(self, namespace: str, names: Iterable[str], topic_id: TopicId) -> bool:
        """Return whether all of these slices exist with that topic id, as far as known.

        If not, one of them may be gone.
        """
        keys = [(namespace, name) for name in names]
        entries = (self._slices.get(key) for key in keys)
        return self._unlisted.isdisjoint(keys) and all(
            entry is not None and entry.topic_id == topic_id for entry in entries
        )

    def owners(self, namespace: str | None = None) -> tuple[WorkKey, ...]:
        """Return the Topic objects that slices serve, as far as known."""
        owners = (entry.owner for entry in self._slices.values() if not entry.is_retained)
        found = dict.fromkeys(owner for owner in owners if owner.name)
        return tuple(owner for owner in found if namespace in (None, owner.namespace))

    # What was read or written.

    def note(self, kind: ResourceKind, item: Object) -> None:
        if kind is TOPIC:
            self._record_topic(item)
        elif kind is PARTITION_SLICE:
            self._record_slice(item)

    def record_gone(
        self, kind: ResourceKind, namespace: str, name: str, *, uid: str | None = None
    ) -> None:
        """Record that there is no such object, or none with that UID."""
        if kind is TOPIC:
            topic = self._topics.get(WorkKey(TOPIC.kind, namespace, name))
            if topic is not None and uid in (None, topic.uid):
                self._remove_topic(topic)
        elif kind is PARTITION_SLICE:
            entry = self._slices.get((namespace, name))
            if entry is not None and uid in (None, entry.uid):
                self._remove_slice(entry)

    def moment(self) -> int:
        """Return a mark to take before a sweep lists slices: later records were not listed."""
        return self._moment

    def doubt_slices_unseen_since(self, moment: int, namespace: str | None) -> None:
        """Mark slices that a list lacked to be read in the next turn of their Topic.

        A list may be partial, so they are still found as before.
        """
        for key, recorded_at in self._recorded_at.items():
            if recorded_at <= moment and namespace in (None, key[0]):
                self._unlisted.add(key)

    def _record_topic(self, item: Object) -> None:
        entry = topic_entry(item)
        known = self._topics.get(entry.key)
        if known is not None and known.uid == entry.uid:
            # An older read may come later than a newer one: neither of these is ever undone.
            entry = replace(
                entry,
                topic_ids=entry.topic_ids | known.topic_ids,
                is_going=entry.is_going or known.is_going,
            )
            if entry == known:
                return
        if known is not None:
            self._remove_topic(known)
        self._topics[entry.key] = entry
        self._topics_by_name.add((entry.pool, entry.topic_name), entry.key)
        for topic_id in entry.topic_ids:
            self._topics_by_id.add(topic_id, entry.key)

    def _remove_topic(self, entry: TopicEntry) -> None:
        del self._topics[entry.key]
        self._topics_by_name.remove((entry.pool, entry.topic_name), entry.key)
        for topic_id in entry.topic_ids:
            self._topics_by_id.remove(topic_id, entry.key)

    def _record_slice(self, item: Object) -> None:
        entry = slice_entry(item)
        known = self._slices.get((item["metadata"]["namespace"], item["metadata"]["name"]))
        if entry is None:  # a tombstone, or nothing that can be told whose it is
            if known is not None:
                self._remove_slice(known)
            return
        self._moment += 1
        self._recorded_at[entry.key] = self._moment
        self._unlisted.discard(entry.key)
        if known is not None and known.uid == entry.uid and known.version >= entry.version >= 0:
            return
        if known is not None:
            self._remove_slice(known)
            self._recorded_at[entry.key] = self._moment
        self._slices[entry.key] = entry
        self._slices_by_id.add(entry.topic_id, entry.key)
        self._slices_by_name.add((entry.pool, entry.topic_name), entry.key)
        self._slices_by_owner.add(entry.owner, entry.key)

    def _remove_slice(self, entry: SliceEntry) -> None:
        del self._slices[entry.key]
        self._recorded_at.pop(entry.key, None)
        self._unlisted.discard(entry.key)
        self._slices_by_id.remove(entry.topic_id, entry.key)
        self._slices_by_name.remove((entry.pool, entry.topic_name), entry.key)
        self._slices_by_owner.remove(entry.owner, entry.key)


def topic_entry(item: Object) -> TopicEntry:
    """Return the entry of a Topic, which claims its data also when its spec is invalid."""
    metadata, spec = item["metadata"], item.get("spec") or {}
    namespace, name = metadata["namespace"], metadata["name"]
    uid = metadata.get("uid", "")
    recorded = (item.get("status") or {}).get("topicId")
    return TopicEntry(
        key=WorkKey(TOPIC.kind, namespace, name),
        uid=uid,
        pool=f"{namespace}/{spec.get('brokerPool', 'default')}",
        topic_name=str(spec.get("topicName", name)),
        created=metadata.get("creationTimestamp") or "",
        is_going=metadata.get("deletionTimestamp") is not None,
        topic_ids=frozenset(TopicId(each) for each in (uid, recorded) if each),
    )


def slice_entry(item: Object) -> SliceEntry | None:
    """Return the entry of a slice; None for a deletion record or without an owner."""
    metadata = item["metadata"]
    if item.get("deleted") or not all(item.get(each) for each in ("topicId", "pool", "topicName")):
        return None
    version = metadata.get("resourceVersion", "")
    namespace, name = metadata["namespace"], metadata["name"]
    return SliceEntry(
        key=(namespace, name),
        uid=metadata.get("uid", ""),
        version=int(version) if version.isdecimal() else -1,
        topic_id=TopicId(item["topicId"]),
        pool=str(item["pool"]),
        topic_name=str(item["topicName"]),
        owner=WorkKey(TOPIC.kind, namespace, topic_object_name(item)),
        is_retained=bool(item.get("retained")),
    )
