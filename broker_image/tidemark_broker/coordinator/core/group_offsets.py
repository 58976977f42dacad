"""Keep the committed offsets of one group, in the order of the log, and tell which have expired.

Only what is committed in the log is here. Of two commits of a partition the later one in the log
counts, in whatever order their results are reported; a replay gives the same, so a committed offset
never goes back.

`Loading` replays the records of a partition: the newest value of each key, or none.
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
        """Apply a committed record; records may come in any order. None is a tombstone."""
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
        """Forget the order of removed partitions that no append before this one concerns."""
        self._order = {
            key: order
            for key, order in self._order.items()
            if key in self._committed or order >= before_append_id
        }

    def fetch(self, partitions: Iterable[TopicPartition] | None) -> tuple[FetchedOffset, ...]:
        requested = self._committed if partitions is None else partitions
        return tuple(
            FetchedOffset(topic, partition, self._committed.get((topic, partition)))
            for topic, partition in requested
        )

    def expired(
        self, group: ClassicGroup, wall_ms: int, retention_ms: int
    ) -> tuple[TopicPartition, ...]:
        """Return the partitions whose offsets have expired (KIP-211)."""
        return tuple(
            key
            for key, committed in self._committed.items()
            if _may_expire(group, key[0])
            and _is_over(committed, _base_ms(group, committed), wall_ms, retention_ms)
        )


def _may_expire(group: ClassicGroup, topic: str) -> bool:
    """Return whether no member of the group may still read this topic."""
    if group.state is GroupState.EMPTY:
        return True
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE or group.state is not GroupState.STABLE:
        return False
    return group.topics is not None and topic not in group.topics


def _base_ms(group: ClassicGroup, committed: CommittedOffset) -> int:
    """Return the time from which retention counts.

    For a group that had members that is when the last one left.
    """
    if group.state is GroupState.EMPTY and not group.is_simple and group.state_since_ms >= 0:
        return group.state_since_ms
    return committed.commit_ms


def _is_over(committed: CommittedOffset, base_ms: int, wall_ms: int, retention_ms: int) -> bool:
    if committed.expire_ms >= 0:
        return wall_ms >= committed.expire_ms
    return wall_ms - base_ms >= retention_ms


class Loading:
    """The state of a load.

    A record that cannot be read is skipped and counted, because one record must not block all
    groups. The earlier value of its key stays, so at worst a consumer reads some records again.
    """

    def __init__(self) -> None:
        self.offsets: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        self.groups: dict[str, GroupMetadata] = {}
        self.unreadable_records = 0

    def on_record(self, raw_key: bytes, value: bytes | None) -> None:
        try:
            self._record(raw_key, value)
        except MalformedGroupRecord:
            self.unreadable_records += 1

    def _record(self, raw_key: bytes, value: bytes | None) -> None:
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
