"""Coordinate all groups whose offsets are in one partition of `__consumer_offsets`.

An instance is active while this broker leads that partition. In each leader epoch it loads what is
committed in the log, answers COORDINATOR_LOAD_IN_PROGRESS until then and NOT_COORDINATOR
afterwards, and names its epoch in each append, so that a deposed coordinator writes nothing. The
shell performs the effects in order and reports the results of appends.
"""

from collections.abc import Iterator
from enum import Enum

from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_EPOCH, LeaderEpoch

from tidemark_broker.coordinator.core.classic_group import GroupState
from tidemark_broker.coordinator.core.group_config import GroupSettings
from tidemark_broker.coordinator.core.group_metadata_manager import (
    NO_SUCH_GROUP,
    GroupMetadataManager,
    describe,
    listed,
)
from tidemark_broker.coordinator.core.group_offsets import Loading
from tidemark_broker.coordinator.core.pending_appends import PendingAppends
from tidemark_broker.coordinator.core.requests import (
    ClockReading,
    DeleteGroup,
    DescribedGroup,
    Effect,
    FetchedOffset,
    GroupCounters,
    GroupGauges,
    GroupReport,
    GroupRequest,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListedGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Response,
    SyncGroup,
)
from tidemark_broker.coordinator.core.validation import check_request, rejection


class CoordinatorState(Enum):
    RESIGNED = "resigned"
    LOADING = "loading"
    ACTIVE = "active"


class GroupCoordinatorShard:
    def __init__(self, settings: GroupSettings, counts: GroupCounters) -> None:
        """Create a resigned coordinator; `counts` is shared by all coordinators of the broker."""
        self.state = CoordinatorState.RESIGNED
        self.leader_epoch = LeaderEpoch(NO_EPOCH)
        self.unreadable_records = 0  # of the last load; the shell tells somebody
        self._settings = settings
        self._counts = counts
        self._pending_appends = PendingAppends(self.leader_epoch, 0)
        self._loading = Loading()
        self._deleted_while_loading: frozenset[str] = frozenset()
        self._groups = GroupMetadataManager(settings, self._pending_appends, counts)

    # Leadership

    def become_leader(self, leader_epoch: LeaderEpoch, now: ClockReading) -> tuple[Effect, ...]:
        """Begin to load in this leader epoch.

        The caller then passes all committed records to `on_record`, in order, and calls
        `on_loaded`.
        """
        if leader_epoch <= self.leader_epoch:
            return ()  # known already, or out of date
        effects = self._resign(now)
        self.leader_epoch = leader_epoch
        self.state = CoordinatorState.LOADING
        self._pending_appends = PendingAppends(leader_epoch, self._pending_appends.next_append_id)
        self._loading = Loading()
        self._deleted_while_loading = frozenset()
        self._groups = GroupMetadataManager(self._settings, self._pending_appends, self._counts)
        return effects

    def on_record(self, leader_epoch: LeaderEpoch, key: bytes, value: bytes | None) -> None:
        if self._is_loading(leader_epoch):
            self._loading.on_record(key, value)

    def on_loaded(self, leader_epoch: LeaderEpoch, now: ClockReading) -> tuple[Effect, ...]:
        if not self._is_loading(leader_epoch):
            return ()
        self.unreadable_records = self._loading.unreadable_records
        self._groups.load(self._loading, now)
        self._loading = Loading()
        self.state = CoordinatorState.ACTIVE
        self._groups.on_topics_deleted(self._deleted_while_loading)
        return self._pending_appends.take()

    def resign(self, leader_epoch: LeaderEpoch, now: ClockReading) -> tuple[Effect, ...]:
        """Stop coordinating: another broker leads from this epoch on, or the replica is removed."""
        if leader_epoch < self.leader_epoch:
            return ()
        self.leader_epoch = leader_epoch
        return self._resign(now)

    def _resign(self, now: ClockReading) -> tuple[Effect, ...]:
        self.state = CoordinatorState.RESIGNED
        self._groups.resign()
        self._pending_appends.resign(now)
        effects = self._pending_appends.take()
        assert all(isinstance(effect, Response) for effect in effects)  # it may not write any more
        self._groups = GroupMetadataManager(self._settings, self._pending_appends, self._counts)
        return effects

    def _is_loading(self, leader_epoch: LeaderEpoch) -> bool:
        return self.state is CoordinatorState.LOADING and leader_epoch == self.leader_epoch

    # Requests

    def on_request(
        self, request_id: int, request: GroupRequest, now: ClockReading
    ) -> tuple[Effect, ...]:
        error = check_request(request, self._settings)
        if error is ErrorCode.NONE:
            error = self._absence()
        if error is not ErrorCode.NONE:
            return (Response(request_id, rejection(request, error)),)
        self._handle(request_id, request, now)
        return self._pending_appends.take()

    def _handle(self, request_id: int, request: GroupRequest, now: ClockReading) -> None:
        groups = self._groups
        match request:
            case JoinGroup():
                groups.on_join(request_id, request, now)
            case SyncGroup():
                groups.on_sync(request_id, request, now)
            case Heartbeat():
                groups.on_heartbeat(request_id, request, now)
            case LeaveGroup():
                groups.on_leave(request_id, request, now)
            case OffsetCommit():
                groups.on_commit(request_id, request, now)
            case OffsetFetch():
                groups.on_fetch(request_id, request)
            case OffsetDelete():
                groups.on_delete_offsets(request_id, request, now)
            case DeleteGroup():
                groups.on_delete_group(request_id, request)

    def _absence(self) -> ErrorCode:
        if self.state is CoordinatorState.LOADING:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if self.state is CoordinatorState.RESIGNED:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE

    def list_groups(
        self, states: frozenset[str] = frozenset()
    ) -> tuple[ErrorCode, tuple[ListedGroup, ...]]:
        """Return the groups in one of `states`; an empty set means all (KIP-518).

        States are compared without case.
        """
        error = self._absence()
        if error is ErrorCode.NOT_COORDINATOR:
            return ErrorCode.NONE, ()  # every broker lists its own
        groups = self._groups.all()
        return error, tuple(listed(group) for group in groups if _is_wanted(group.state, states))

    def describe_group(self, group_id: str) -> DescribedGroup:
        error = self._absence() if group_id else ErrorCode.INVALID_GROUP_ID
        if error is not ErrorCode.NONE:
            return DescribedGroup(error, group_id)
        group = self._groups.find(group_id)
        if group is None:
            return DescribedGroup(NO_SUCH_GROUP, group_id, GroupState.DEAD.value)
        return describe(group)

    def count(self, gauges: GroupGauges) -> None:
        """Add this coordinator's groups to the census; none before they are loaded."""
        self._groups.count(gauges)

    def group_ids(self) -> tuple[str, ...]:
        """Return the ids of all groups; none before they are loaded."""
        return tuple(group.group_id for group in self._groups.all())

    def offsets(self) -> Iterator[tuple[str, FetchedOffset]]:
        """Yield the committed offsets of all groups, each with its group."""
        for group_id in self.group_ids():
            for fetched in self._groups.offsets_of(group_id):
                yield group_id, fetched

    def report(self, group_id: str) -> GroupReport | None:
        """Return the group with its committed offsets, or None if it does not exist here."""
        group = self._groups.find(group_id)
        if group is None:
            return None
        return GroupReport(describe(group), self._groups.offsets_of(group_id))

    # The log

    def on_committed(self, append_id: int, now: ClockReading) -> tuple[Effect, ...]:
        """Apply the records of an append that is committed: each later coordinator loads them."""
        self._pending_appends.on_committed(append_id, now)
        return self._pending_appends.take()

    def on_rejected(
        self, append_id: int, error: ErrorCode, now: ClockReading
    ) -> tuple[Effect, ...]:
        """Drop an append whose records are not in the log and never will be."""
        self._pending_appends.on_rejected(append_id, error, now)
        return self._pending_appends.take()

    def on_late(self, append_id: int, now: ClockReading) -> tuple[Effect, ...]:
        """Answer the request of an append that was not committed in time; it may commit later."""
        self._pending_appends.on_late(append_id, now)
        return self._pending_appends.take()

    # Time

    @property
    def next_deadline_ms(self) -> int | None:
        return self._groups.next_deadline_ms

    def on_tick(self, now: ClockReading) -> tuple[Effect, ...]:
        if self.state is CoordinatorState.ACTIVE:
            self._groups.on_tick(now)
        return self._pending_appends.take()

    def on_topics_deleted(self, topics: frozenset[str]) -> tuple[Effect, ...]:
        """Drop the offsets of topics that were deleted with their data.

        While loading, the topics are remembered until loading is done.
        """
        if self.state is CoordinatorState.LOADING:
            self._deleted_while_loading |= topics
        elif self.state is CoordinatorState.ACTIVE:
            self._groups.on_topics_deleted(topics)
        return self._pending_appends.take()

    def on_expiry(self, now: ClockReading) -> tuple[Effect, ...]:
        """Delete expired offsets and groups. Call it at offsets.retention.check.interval.ms."""
        if self.state is CoordinatorState.ACTIVE:
            self._groups.on_expiry(now)
        return self._pending_appends.take()


def _is_wanted(state: GroupState, states: frozenset[str]) -> bool:
    return not states or state.value.lower() in {wanted.lower() for wanted in states}
