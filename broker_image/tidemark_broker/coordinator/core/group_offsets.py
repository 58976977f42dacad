"""How far one group has read: committed offsets, in the order of the log, and when they expire.

Only what the log holds committed is here, and of two the one later in the log, whatever the order
in which their ends are reported: replay gives the same (no committed offset ever goes back).

What the committed records of one partition come to: of each key the newest, or nothing.
"""

from collections.abc import Iterable

from tidemark_broker.coordinator.core.classic_group import ClassicGroup, GroupState
from tidemark_broker.coordinator.core.member import CONSUMER_PROTOCOL_TYPE
from tidemark_broker.coordinator.core.offsets_records import (
    CommittedOffset,
    GroupMetadata,
    MalformedGroupRecord,
    OffsetKey,
    decode_key,
    decode_metadata,
    decode_offset,
)
from tidemark_broker.coordinator.core.requests import FetchedOffset

TopicPartition = tuple[str, int]
_REPLAYED = -1  # earlier in the log than any append of ours


class GroupOffsets:
    def __init__(self) -> None:
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        self._order: dict[TopicPartition, int] = {}  # which append wrote or removed it last

    def __len__(self) -> int:
        return len(self._committed)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._committed

    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(self._committed)

    def load(self, partition: TopicPartition, committed: CommittedOffset) -> None:
        self._committed[partition] = committed

    def apply(
        self, append_id: int, partition: TopicPartition, committed: CommittedOffset | None
    ) -> None:
        """A committed record, in any order. None: a tombstone."""
        if not self._is_newest(append_id, partition):
            return
        self._order[partition] = append_id
        if committed is None:
            self._committed.pop(partition, None)
        else:
            self._committed[partition] = committed

    def _is_newest(self, append_id: int, partition: TopicPartition) -> bool:
        return append_id > self._order.get(partition, _REPLAYED)

    def forget_removed(self, before_append_id: int) -> None:
        """Order of removed ones, where no append from before is under way any more."""
        self._order = {
            key: order
            for key, order in self._order.items()
            if key in self._committed or order >= before_append_id
        }

    def fetch(self, partitions: Iterable[TopicPartition] | None) -> tuple[FetchedOffset, ...]:
        asked = self._committed if partitions is None else partitions
        return tuple(
            FetchedOffset(topic, partition, self._committed.get((topic, partition)))
            for topic, partition in asked
        )

    def expired(
        self, group: ClassicGroup, wall_ms: int, retention_ms: int
    ) -> tuple[TopicPartition, ...]:
        """What the group needs no longer (KIP-211)."""
        return tuple(
            key
            for key, committed in self._committed.items()
            if _may_expire(group, key[0])
            and _is_over(committed, _base_ms(group, committed), wall_ms, retention_ms)
        )


def _may_expire(group: ClassicGroup, topic: str) -> bool:
    """Nothing that a group with members may still read."""
    if group.state is GroupState.EMPTY:
        return True
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE or group.state is not GroupState.STABLE:
        return False
    return group.topics is not None and topic not in group.topics


def _base_ms(group: ClassicGroup, committed: CommittedOffset) -> int:
    """A group that had members keeps its offsets from when the last one left."""
    if group.state is GroupState.EMPTY and not group.is_simple and group.state_since_ms >= 0:
        return group.state_since_ms
    return committed.commit_ms


def _is_over(committed: CommittedOffset, base_ms: int, wall_ms: int, retention_ms: int) -> bool:
    if committed.expire_ms >= 0:
        return wall_ms >= committed.expire_ms
    return wall_ms - base_ms >= retention_ms


class Loading:
    """A record that cannot be read is passed over and counted: one must not hold up all groups.
    What its key said before it stays, so at worst a consumer reads some records again."""

    def __init__(self) -> None:
        self.offsets: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        self.groups: dict[str, GroupMetadata] = {}
        self.unreadable_records = 0

    def on_record(self, raw_key: bytes, value: bytes | None) -> None:
        try:
            self._note(raw_key, value)
        except MalformedGroupRecord:
            self.unreadable_records += 1

    def _note(self, raw_key: bytes, value: bytes | None) -> None:
        key = decode_key(raw_key)
        if key is None:
            return
        if isinstance(key, OffsetKey):
            offsets = self.offsets.setdefault(key.group_id, {})
            if value is None:
                offsets.pop((key.topic, key.partition), None)
            else:
                offsets[key.topic, key.partition] = decode_offset(value)
        elif value is None:
            self.groups.pop(key.group_id, None)
        else:
            self.groups[key.group_id] = decode_metadata(value)
