"""Hold what pages know of one pool, and encode it: snapshots in parts, and changes by version.

A topic is encoded when the first page needs it, and its bytes serve all pages until it changes. A
change is encoded once. The newest changes are kept, so that a page that comes back gets only what
it missed.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import is_

from tidemark_protocol.controller_messages import encode
from tidemark_protocol.ids import NO_BROKER, BrokerId, TopicId
from tidemark_protocol.partition_state import PartitionState

from tidemark_operator.controller.core.views import BrokerView, TopicView
from tidemark_operator.manager.web.catching_up import OutOfSync, PartitionKey
from tidemark_operator.manager.web.documents import (
    Document,
    Row,
    broker_document,
    changed_partitions,
    partition_row,
    topic_document,
)

PARTITIONS_PER_PART = 250  # of a snapshot: about a millisecond
TOPIC_COSTS = 8  # as much as so many partitions
MAX_KEPT_CHANGES = 512
UP_STATES = frozenset({"Active", "Draining"})
MAX_KEPT_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Message:
    """A server-sent event, encoded once for all pages."""

    body: bytes


def message(event: str, body: bytes, *, version: str = "") -> Message:
    """Return an event; with a version, a page that comes back says it to get what follows."""
    head = f"id: {version}\n" if version else ""
    return Message(b"%sevent: %s\ndata: %s\n\n" % (head.encode(), event.encode(), body))


@dataclass(slots=True)
class _Topic:
    view: TopicView
    parts: list[bytes | None] = field(default_factory=list)  # None: not encoded yet

    def __post_init__(self) -> None:
        self.parts = [None] * max(1, -(-len(self.view.partitions) // PARTITIONS_PER_PART))

    def part(self, topic_id: TopicId, index: int) -> bytes:
        found = self.parts[index]
        if found is None:
            first = index * PARTITIONS_PER_PART
            states = self.view.partitions[first : first + PARTITIONS_PER_PART]
            rows = [partition_row(state) for state in states]
            document: Document = {"id": topic_id, "rows": rows}
            if index == 0:
                document["head"] = topic_document(self.view)
            found = self.parts[index] = encode(document)
        return found

    def keep_parts_of(self, before: "_Topic") -> None:
        """Take over the encoded parts whose partitions, and the topic itself, did not change."""
        for index, part in enumerate(before.parts[: len(self.parts)]):
            if index == 0 and topic_document(before.view) != topic_document(self.view):
                continue
            first = index * PARTITIONS_PER_PART
            span = slice(first, first + PARTITIONS_PER_PART)
            if _are_the_same(before.view.partitions[span], self.view.partitions[span]):
                self.parts[index] = part


class PoolFeed:
    def __init__(self, pool: str, term: int) -> None:
        """Create an empty feed; versions of another term of a controller mean nothing here."""
        self.pool = pool
        self._term = term
        self._number = 0
        self._topics: dict[TopicId, _Topic] = {}
        self._ids: dict[str, dict[TopicId, None]] = {}  # by metadata.name of the Topic
        self.leaderless: set[TopicId] = set()  # topics: their views change with time
        self._out_of_sync = OutOfSync()
        self._brokers: dict[BrokerId, BrokerView] = {}
        self._kept: deque[tuple[int, Message]] = deque()
        self._kept_bytes = 0
        self._changed_topics: list[Document] = []
        self._changed_brokers: list[Document] = []
        self._deleted: list[TopicId] = []

    @property
    def version(self) -> str:
        return f"{self._term}.{self._number}"

    @property
    def topic_count(self) -> int:
        return len(self._topics)

    def topic_ids_of(self, object_name: str) -> tuple[TopicId, ...]:
        """Return the known topics that a Topic of that name has or had."""
        return tuple(self._ids.get(object_name, ()))

    def broker_views(self) -> tuple[BrokerView, ...]:
        return tuple(self._brokers.values())

    def topic_view(self, topic: str) -> TopicView | None:
        """Return the served topic of that name."""
        found = (each.view for each in self._topics.values() if each.view.topic.topic == topic)
        return next((view for view in found if not view.is_retained), None)

    def up(self) -> set[BrokerId]:
        """Return the brokers that run: a replica there that is not in sync catches up."""
        return {view.broker_id for view in self._brokers.values() if view.state in UP_STATES}

    def catching_up(self) -> dict[PartitionKey, tuple[str, PartitionState]]:
        """Return some partitions with replicas that catch up, with their topics' names."""
        return {
            key: (topic.view.topic.topic, state)
            for key, state in self._out_of_sync.catching_up(sorted(self.up())).items()
            if (topic := self._topics.get(key[0]))  # else it is being read
        }

    # Changes: `set_...` any number of times, then `seal`.

    def set_topic(self, topic_id: TopicId, view: TopicView | None) -> Iterator[None]:
        """Set a topic in steps of bounded work, each a turn of the loop if need be."""
        before = self._topics.get(topic_id)
        if view is None:
            if before is not None:
                self._remove_topic(topic_id, before)
            return
        if before is not None and before.view is view:
            return
        known = () if before is None else before.view.partitions
        changed, gone = changed_partitions(known, view.partitions)
        head = topic_document(view)
        is_head_new = before is None or topic_document(before.view) != head
        after = _Topic(view)
        if before is not None:
            after.keep_parts_of(before)
            if before.view.object_name != view.object_name:
                self._forget_name(before.view.object_name, topic_id)
        self._ids.setdefault(view.object_name, {})[topic_id] = None
        rows: list[Row] = []
        for first in range(0, len(changed), PARTITIONS_PER_PART):
            rows += map(partition_row, changed[first : first + PARTITIONS_PER_PART])
            if len(changed) > PARTITIONS_PER_PART:
                yield
        is_retained_before = before is not None and before.view.is_retained
        is_other = is_retained_before != view.is_retained
        yield from self._record_out_of_sync(view, view.partitions if is_other else changed, gone)
        self._topics[topic_id] = after
        self.leaderless.discard(topic_id)
        if not view.is_retained and NO_BROKER in [state.leader for state in view.partitions]:
            self.leaderless.add(topic_id)
        if rows or gone or is_head_new:
            document: Document = {"id": topic_id, "rows": rows}
            if gone:
                document["gone"] = gone
            if is_head_new:
                document["head"] = head
            self._changed_topics.append(document)

    def _remove_topic(self, topic_id: TopicId, before: _Topic) -> None:
        del self._topics[topic_id]
        for state in before.view.partitions:
            self._out_of_sync.forget(topic_id, state.partition)
        self._forget_name(before.view.object_name, topic_id)
        self.leaderless.discard(topic_id)
        self._changed_topics = [d for d in self._changed_topics if d["id"] != topic_id]
        self._deleted.append(topic_id)

    def _record_out_of_sync(
        self, view: TopicView, states: Sequence[PartitionState], gone: Sequence[int]
    ) -> Iterator[None]:
        """Record which of these replicas are not in sync; what is retained does not catch up."""
        topic_id = view.topic.topic_id
        for number in gone:
            self._out_of_sync.forget(topic_id, number)
        for index, state in enumerate(states, 1):
            if view.is_retained:
                self._out_of_sync.forget(topic_id, state.partition)
            else:
                self._out_of_sync.set(topic_id, state)
            if index % PARTITIONS_PER_PART == 0:
                yield

    def set_brokers(self, views: Sequence[BrokerView]) -> None:
        """Set all brokers; they are few."""
        after = {view.broker_id: view for view in views}
        for broker_id, view in after.items():
            if self._brokers.get(broker_id) != view:
                self._changed_brokers.append(broker_document(view))
        for broker_id in self._brokers.keys() - after.keys():
            self._changed_brokers.append({"id": broker_id, "state": "Gone"})
        self._brokers = after

    def seal(self, events: Sequence[Document] = ()) -> Message | None:
        """End a change and return it for all open pages; None if nothing is new."""
        topics, brokers, deleted = self._changed_topics, self._changed_brokers, self._deleted
        if not (topics or brokers or deleted or events):
            return None
        self._changed_topics, self._changed_brokers, self._deleted = [], [], []
        self._number += 1
        body = encode(
            {
                "version": self.version,
                "deleted": deleted,  # first: a topic may be back since then
                "topics": topics,
                "brokers": brokers,
                "events": events,
            }
        )
        sealed = message("change", body, version=self.version)
        self._keep(sealed)
        return sealed

    def forget_changes(self) -> None:
        """Begin with what is known now: no page has seen anything before."""
        self._changed_topics, self._changed_brokers, self._deleted = [], [], []

    def _keep(self, sealed: Message) -> None:
        self._kept.append((self._number, sealed))
        self._kept_bytes += len(sealed.body)
        while len(self._kept) > MAX_KEPT_CHANGES or self._kept_bytes > MAX_KEPT_BYTES:
            _, oldest = self._kept.popleft()
            self._kept_bytes -= len(oldest.body)

    def _forget_name(self, object_name: str, topic_id: TopicId) -> None:
        named = self._ids.get(object_name, {})
        named.pop(topic_id, None)
        if not named:
            self._ids.pop(object_name, None)

    # What a page gets.

    def changes_after(self, version: str) -> list[Message] | None:
        """Return what a page at that version missed, or None if it needs a snapshot."""
        term, _, number = version.partition(".")
        if term != str(self._term) or not number.isdecimal() or len(number) > 18:
            return None
        known = int(number)
        if known > self._number:
            return None
        if known == self._number:
            return []
        if not self._kept or self._kept[0][0] > known + 1:
            return None
        return [sealed for numbered, sealed in self._kept if numbered > known]

    def snapshot(self) -> Iterator[bytes]:
        """Return the pool in parts, JSON objects of bounded size, of this moment's version.

        Later changes do not alter it, so it may be sent while they arrive.
        """
        partitions = sum(len(topic.view.partitions) for topic in self._topics.values())
        first = encode(
            {
                "pool": self.pool,
                "version": self.version,
                "brokers": [broker_document(view) for view in self._brokers.values()],
                "topics": len(self._topics),
                "partitions": partitions,
            }
        )
        return _parts(first, tuple(self._topics.items()))


def _parts(first: bytes, topics: tuple[tuple[TopicId, _Topic], ...]) -> Iterator[bytes]:
    yield first
    some: list[bytes] = []
    rows = 0
    for topic_id, topic in topics:
        for index in range(len(topic.parts)):
            some.append(topic.part(topic_id, index))
            rows += min(PARTITIONS_PER_PART, len(topic.view.partitions)) + TOPIC_COSTS
            if rows >= PARTITIONS_PER_PART:
                yield b'{"topics":[%s]}' % b",".join(some)
                some, rows = [], 0
    if some:
        yield b'{"topics":[%s]}' % b",".join(some)


def _are_the_same(some: Sequence[PartitionState], others: Sequence[PartitionState]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))
