"""Keep the groups of one coordinator in one leader epoch: find, create, expire, delete, describe.

What a request does to the members of a group is decided in `classic_group` and `join_and_leave`.
"""

from dataclasses import dataclass

from tidemark_protocol.error_codes import ErrorCode

from tidemark_broker.coordinator.core.classic_group import ClassicGroup, GroupState
from tidemark_broker.coordinator.core.group_config import GroupSettings
from tidemark_broker.coordinator.core.group_offsets import GroupOffsets, Loading, TopicPartition
from tidemark_broker.coordinator.core.join_and_leave import GroupMembership
from tidemark_broker.coordinator.core.member import CONSUMER_PROTOCOL_TYPE
from tidemark_broker.coordinator.core.offsets_records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    OffsetsRecord,
    decode_key,
    encode_key,
    encode_offset,
)
from tidemark_broker.coordinator.core.pending_appends import (
    PendingAppends,
    Settle,
    group_error,
    offsets_error,
)
from tidemark_broker.coordinator.core.requests import (
    ClockReading,
    DeleteGroup,
    DeleteGroupResponse,
    DescribedGroup,
    DescribedMember,
    FetchedOffset,
    GroupCounters,
    GroupGauges,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    LeaveGroup,
    LeaveGroupResponse,
    ListedGroup,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    PartitionError,
    SyncGroup,
)
from tidemark_broker.coordinator.core.validation import rejection

MAX_TOPIC_NAME = 249  # as Kafka
_LAST_MS = 2**63 - 1  # that a record can name


@dataclass(frozen=True, slots=True)
class _Coordinated:
    group: ClassicGroup
    membership: GroupMembership
    offsets: GroupOffsets

    @property
    def is_idle(self) -> bool:
        """Return whether the group has no members, no pending members and no committed offsets."""
        is_empty = self.group.state is GroupState.EMPTY
        return is_empty and not self.group.pending_members and not len(self.offsets)


class GroupMetadataManager:
    def __init__(
        self, settings: GroupSettings, pending_appends: PendingAppends, counts: GroupCounters
    ) -> None:
        self._settings = settings
        self._pending_appends = pending_appends
        self._counts = counts
        self._groups: dict[str, _Coordinated] = {}

    def find(self, group_id: str) -> ClassicGroup | None:
        found = self._groups.get(group_id)
        return None if found is None else found.group

    def all(self) -> tuple[ClassicGroup, ...]:
        return tuple(coordinated.group for coordinated in self._groups.values())

    def offsets_of(self, group_id: str) -> tuple[FetchedOffset, ...]:
        return self._groups[group_id].offsets.fetch(None)

    def count(self, gauges: GroupGauges) -> None:
        for coordinated in self._groups.values():
            gauges.groups[coordinated.group.state.value] += 1
            gauges.members += len(coordinated.group.members)
            gauges.offsets += len(coordinated.offsets)

    def _add(self, group_id: str, now: ClockReading) -> _Coordinated:
        group = ClassicGroup(
            group_id, self._settings, self._pending_appends, now, counts=self._counts
        )
        added = _Coordinated(group, GroupMembership(group), GroupOffsets())
        self._groups[group_id] = added
        return added

    def load(self, loading: Loading, now: ClockReading) -> None:
        for group_id, metadata in loading.groups.items():
            self._add(group_id, now).group.load(metadata, now)
        for group_id, offsets in loading.offsets.items():
            if not offsets:
                continue
            coordinated = self._groups.get(group_id) or self._add(group_id, now)
            for partition, committed in offsets.items():
                coordinated.offsets.load(partition, committed)

    def resign(self) -> None:
        for coordinated in self._groups.values():
            coordinated.group.resign()

    # Membership

    def on_join(self, request_id: int, join: JoinGroup, now: ClockReading) -> None:
        coordinated = self._groups.get(join.group_id)
        if coordinated is None:
            error = ErrorCode.NONE
            if join.member_id:
                error = ErrorCode.UNKNOWN_MEMBER_ID
            elif self._is_full():
                error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if error is not ErrorCode.NONE:
                self._pending_appends.answer(request_id, rejection(join, error))
                return
            coordinated = self._add(join.group_id, now)
        coordinated.membership.on_join(request_id, join, now)

    def _is_full(self) -> bool:
        return len(self._groups) >= self._settings.max_groups

    def on_sync(self, request_id: int, sync: SyncGroup, now: ClockReading) -> None:
        group = self.find(sync.group_id)
        if group is None:
            self._pending_appends.answer(request_id, rejection(sync, ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            group.on_sync(request_id, sync, now)

    def on_heartbeat(self, request_id: int, heartbeat: Heartbeat, now: ClockReading) -> None:
        group = self.find(heartbeat.group_id)
        error = ErrorCode.UNKNOWN_MEMBER_ID
        if group is not None:
            error = group.on_heartbeat(heartbeat, now)
        self._pending_appends.answer(request_id, HeartbeatResponse(error))

    def on_leave(self, request_id: int, leave: LeaveGroup, now: ClockReading) -> None:
        coordinated = self._groups.get(leave.group_id)
        if coordinated is None:
            members = tuple((member, ErrorCode.UNKNOWN_MEMBER_ID) for member in leave.members)
        else:
            members = coordinated.membership.on_leave(leave, now)
        self._pending_appends.answer(request_id, LeaveGroupResponse(ErrorCode.NONE, members))

    # Offsets

    def on_commit(self, request_id: int, commit: OffsetCommit, now: ClockReading) -> None:
        coordinated = self._groups.get(commit.group_id)
        if coordinated is not None:
            error = coordinated.group.check_commit(commit, now)
        elif commit.generation_id >= 0:
            error = ErrorCode.ILLEGAL_GENERATION
        else:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE if self._is_full() else ErrorCode.NONE
        if error is not ErrorCode.NONE:
            self._pending_appends.answer(request_id, rejection(commit, error))
            return
        offsets = GroupOffsets() if coordinated is None else coordinated.offsets
        errors = self._check_offsets(commit.offsets, offsets)
        self._commit(request_id, commit, errors, now)

    def _commit(
        self,
        request_id: int,
        commit: OffsetCommit,
        errors: tuple[ErrorCode, ...],
        now: ClockReading,
    ) -> None:
        """Append offsets; they are answered and visible once the log holds them committed."""
        expire_ms = -1
        if commit.retention_ms >= 0:
            expire_ms = min(now.wall_ms + commit.retention_ms, _LAST_MS)
        taken = {
            (requested.topic, requested.partition): CommittedOffset(
                requested.offset, requested.leader_epoch, requested.metadata, now.wall_ms, expire_ms
            )
            for requested, error in zip(commit.offsets, errors, strict=True)
            if error is ErrorCode.NONE
        }

        def settle(error: ErrorCode, _now: ClockReading) -> None:
            if error is ErrorCode.NONE:
                self._counts.committed_offsets += len(taken)
            responded = tuple(
                PartitionError(
                    requested.topic,
                    requested.partition,
                    offsets_error(error) if own is ErrorCode.NONE else own,
                )
                for requested, own in zip(commit.offsets, errors, strict=True)
            )
            self._pending_appends.answer(request_id, OffsetCommitResponse(responded))

        records = tuple(
            OffsetsRecord(encode_key(OffsetKey(commit.group_id, *key)), encode_offset(committed))
            for key, committed in taken.items()
        )
        if not records:
            settle(ErrorCode.NONE, now)
        elif sum(_size_bytes(record) for record in records) > self._settings.max_group_bytes:
            settle(ErrorCode.RECORD_LIST_TOO_LARGE, now)
        else:
            append_id = self._pending_appends.next_append_id

            def apply(applied: ClockReading) -> None:
                coordinated = self._groups.get(commit.group_id)
                if coordinated is None:
                    coordinated = self._add(commit.group_id, applied)
                for key, committed in taken.items():
                    coordinated.offsets.apply(append_id, key, committed)

            self._pending_appends.append(records, settle, apply)

    def _check_offsets(
        self, requested: tuple[OffsetToCommit, ...], offsets: GroupOffsets
    ) -> tuple[ErrorCode, ...]:
        room = self._settings.max_offsets - len(offsets)
        errors = []
        for offset in requested:
            error = self._check_offset(offset)
            if error is ErrorCode.NONE and (offset.topic, offset.partition) not in offsets:
                room -= 1
                if room < 0:
                    error = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            errors.append(error)
        return tuple(errors)

    def _check_offset(self, offset: OffsetToCommit) -> ErrorCode:
        if not 0 < len(offset.topic) <= MAX_TOPIC_NAME or offset.partition < 0:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if len(offset.metadata) > self._settings.max_offset_metadata:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        return ErrorCode.NONE

    def on_fetch(self, request_id: int, fetch: OffsetFetch) -> None:
        coordinated = self._groups.get(fetch.group_id)
        offsets = GroupOffsets() if coordinated is None else coordinated.offsets
        response = OffsetFetchResponse(ErrorCode.NONE, offsets.fetch(fetch.partitions))
        self._pending_appends.answer(request_id, response)

    def on_delete_offsets(self, request_id: int, delete: OffsetDelete, now: ClockReading) -> None:
        coordinated = self._groups.get(delete.group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND
        if coordinated is not None:
            error = _check_deletion(coordinated.group)
        if coordinated is None or error is not ErrorCode.NONE:
            self._pending_appends.answer(request_id, OffsetDeleteResponse(error))
            return
        errors = tuple(_deletion_of(coordinated.group, topic) for topic, _ in delete.partitions)

        def settle(error: ErrorCode, _now: ClockReading) -> None:
            if error is not ErrorCode.NONE:
                self._pending_appends.answer(request_id, OffsetDeleteResponse(offsets_error(error)))
                return
            responded = tuple(
                PartitionError(topic, partition, own)
                for (topic, partition), own in zip(delete.partitions, errors, strict=True)
            )
            self._pending_appends.answer(
                request_id, OffsetDeleteResponse(ErrorCode.NONE, responded)
            )

        known = frozenset(self._offsets_to_be(delete.group_id, self._under_way(delete.group_id)))
        removed = tuple(
            key
            for key, own in zip(delete.partitions, errors, strict=True)
            if own is ErrorCode.NONE and key in known
        )
        if removed:
            self._append_tombstones(delete.group_id, removed, settle)
        else:
            settle(ErrorCode.NONE, now)

    # The end of offsets and groups

    def on_delete_group(self, request_id: int, delete: DeleteGroup) -> None:
        coordinated = self._groups.get(delete.group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND
        if coordinated is not None:
            is_empty = coordinated.group.state is GroupState.EMPTY
            error = ErrorCode.NONE if is_empty else ErrorCode.NON_EMPTY_GROUP
        if coordinated is None or error is not ErrorCode.NONE:
            self._pending_appends.answer(request_id, DeleteGroupResponse(error))
            return

        def settle(error: ErrorCode, _now: ClockReading) -> None:
            self._pending_appends.answer(request_id, DeleteGroupResponse(group_error(error)))

        offsets = self._offsets_to_be(delete.group_id, self._under_way(delete.group_id))
        self._append_tombstones(delete.group_id, offsets, settle, with_group=True)

    def _under_way(self, only_of: str = "") -> dict[str, list[TopicPartition]]:
        """Return the partitions with a commit under way, by group.

        A tombstone that is appended now comes after them in the log.
        """
        coming: dict[str, list[TopicPartition]] = {}
        name = only_of.encode()  # looked for in the bytes: there may be many of other groups
        for encoded in self._pending_appends.keys_under_way():
            key = decode_key(encoded) if name in encoded else None
            if isinstance(key, OffsetKey):
                coming.setdefault(key.group_id, []).append((key.topic, key.partition))
        return coming

    def _offsets_to_be(
        self, group_id: str, coming: dict[str, list[TopicPartition]]
    ) -> tuple[TopicPartition, ...]:
        coordinated = self._groups.get(group_id)
        committed = () if coordinated is None else coordinated.offsets.partitions()
        return tuple(dict.fromkeys((*committed, *coming.get(group_id, ()))))

    def _append_tombstones(
        self,
        group_id: str,
        partitions: tuple[TopicPartition, ...],
        settle: Settle,
        *,
        with_group: bool = False,
    ) -> None:
        """Append tombstones in batches, because there may be many.

        `settle` is called for the last batch, which has the group's own tombstone if `with_group`:
        a group is removed only after its offsets.
        """
        size = self._settings.records_per_append
        batches = [partitions[at : at + size] for at in range(0, len(partitions), size)] or [()]
        for batch in batches[:-1]:
            self._append_batch(group_id, batch, lambda _error, _now: None)
        self._append_batch(group_id, batches[-1], settle, with_group=with_group)

    def _append_batch(
        self,
        group_id: str,
        partitions: tuple[TopicPartition, ...],
        settle: Settle,
        *,
        with_group: bool = False,
    ) -> None:
        append_id = self._pending_appends.next_append_id
        records = [OffsetsRecord(encode_key(OffsetKey(group_id, *key)), None) for key in partitions]
        if with_group:
            records.append(OffsetsRecord(encode_key(GroupKey(group_id)), None))

        def apply(_now: ClockReading) -> None:
            coordinated = self._groups.get(group_id)
            if coordinated is None:
                return
            for key in partitions:
                coordinated.offsets.apply(append_id, key, None)
            if with_group and coordinated.is_idle:
                del self._groups[group_id]

        self._pending_appends.append(tuple(records), settle, apply)

    def on_topics_deleted(self, topics: frozenset[str]) -> None:
        if not topics:
            return
        coming = self._under_way()
        for group_id in dict.fromkeys((*self._groups, *coming)):
            offsets = self._offsets_to_be(group_id, coming)
            removed = tuple(key for key in offsets if key[0] in topics)
            if removed:
                self._append_tombstones(group_id, removed, lambda _error, _now: None)

    def on_expiry(self, now: ClockReading) -> None:
        """Append tombstones for what has expired.

        A key with a record under way is left alone: a tombstone would follow that record in the log
        and undo a commit that is then answered as done.
        """
        retention_ms = self._settings.offsets_retention_ms
        under_way = {decode_key(key) for key in self._pending_appends.keys_under_way()}
        groups_under_way = {key.group_id for key in under_way if key is not None}
        for group_id, coordinated in tuple(self._groups.items()):
            group, offsets = coordinated.group, coordinated.offsets
            offsets.forget_removed(self._pending_appends.oldest_append_id)
            expired = tuple(
                key
                for key in offsets.expired(group, now.wall_ms, retention_ms)
                if OffsetKey(group_id, *key) not in under_way
            )
            is_over = (
                group.state is GroupState.EMPTY
                and group_id not in groups_under_way
                and not group.pending_members
                and len(expired) == len(offsets)
            )
            if expired or is_over:
                self._append_tombstones(
                    group_id, expired, lambda _error, _now: None, with_group=is_over
                )

    # Time

    @property
    def next_deadline_ms(self) -> int | None:
        deadlines = (coordinated.group.next_deadline_ms for coordinated in self._groups.values())
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def on_tick(self, now: ClockReading) -> None:
        for group_id, coordinated in tuple(self._groups.items()):
            coordinated.group.on_tick(now)
            # Ids were given out, nobody came, and the log knows nothing of it.
            if coordinated.is_idle and coordinated.group.generation_id == 0:
                del self._groups[group_id]


def _check_deletion(group: ClassicGroup) -> ErrorCode:
    """Return whether the group's offsets of a topic may be deleted, as an error code.

    Only for consumers it is known which topics they read; for others (Connect) it is not.
    """
    if group.state is GroupState.EMPTY or group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        return ErrorCode.NONE
    return ErrorCode.NON_EMPTY_GROUP


def _deletion_of(group: ClassicGroup, topic: str) -> ErrorCode:
    if group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if group.topics is None or topic in group.topics:
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.NONE


def _size_bytes(record: OffsetsRecord) -> int:
    return len(record.key) + len(record.value or b"")


NO_SUCH_GROUP = ErrorCode.GROUP_ID_NOT_FOUND


def listed(group: ClassicGroup) -> ListedGroup:
    return ListedGroup(group.group_id, group.protocol_type or "", group.state.value)


def describe(group: ClassicGroup) -> DescribedGroup:
    """Describe a group. Members' metadata and assignments are included only while it is stable."""
    is_stable = group.state is GroupState.STABLE
    members = tuple(
        DescribedMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.metadata_of(group.protocol) if is_stable else b"",
            member.assignment if is_stable else b"",
        )
        for member in group.members.values()
    )
    protocol = (group.protocol or "") if is_stable else ""
    return DescribedGroup(
        ErrorCode.NONE,
        group.group_id,
        group.state.value,
        group.protocol_type or "",
        protocol,
        members,
    )
