"""A coordinator on a log that commits at once, or when told to, or refuses."""

import struct
from dataclasses import dataclass, replace

from tidemark_broker.coordinator.core.group_config import GroupSettings
from tidemark_broker.coordinator.core.group_coordinator_shard import (
    CoordinatorState,
    GroupCoordinatorShard,
)
from tidemark_broker.coordinator.core.offsets_records import OffsetsRecord
from tidemark_broker.coordinator.core.requests import (
    AppendRecords,
    ClockReading,
    Effect,
    GroupCounters,
    GroupRequest,
    GroupResponse,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    Protocol,
    Response,
    SyncGroup,
    SyncGroupResponse,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import LeaderEpoch

SESSION_MS = 10_000
REBALANCE_MS = 60_000
SETTINGS = GroupSettings(initial_rebalance_delay_ms=0)


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", 0)


def protocols(*names: str, topics: tuple[str, ...] = ("t",)) -> tuple[Protocol, ...]:
    return tuple(Protocol(name, subscription(*topics)) for name in names)


JOIN = JoinGroup(
    "g", "", "", "c", "/h", SESSION_MS, REBALANCE_MS, "consumer", protocols("range"),
    requires_member_id=False,
)  # fmt: skip


@dataclass
class Harness:
    coordinator: GroupCoordinatorShard
    log: list[OffsetsRecord]
    now_ms: int = 1_000_000
    wall_ahead_ms: int = 1_700_000_000_000
    commits_at_once: bool = True

    def __post_init__(self) -> None:
        self.answers: dict[int, GroupResponse] = {}
        self.responded_in: dict[int, int] = {}  # leader epochs
        self.appends: list[AppendRecords] = []
        self._next_request_id = 0
        self._next_member = 0

    @property
    def now(self) -> ClockReading:
        return self.after(0)

    def after(self, wait_ms: int) -> ClockReading:
        return ClockReading(self.now_ms + wait_ms, self.now_ms + wait_ms + self.wall_ahead_ms)

    def perform(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            if isinstance(effect, Response):
                assert effect.request_id not in self.answers, "answered twice"
                self.answers[effect.request_id] = effect.answer
                self.responded_in[effect.request_id] = self.coordinator.leader_epoch
            else:
                assert effect.leader_epoch == self.coordinator.leader_epoch
                self.appends.append(effect)
                if self.commits_at_once:
                    self.commit()

    def commit(self) -> None:
        append = self.appends.pop(0)
        self.log += append.records
        self.perform(self.coordinator.on_committed(append.append_id, self.now))

    def reject(self, error: ErrorCode) -> None:
        append = self.appends.pop(0)
        self.perform(self.coordinator.on_rejected(append.append_id, error, self.now))

    def lead(self, leader_epoch: int) -> None:
        epoch = LeaderEpoch(leader_epoch)
        self.perform(self.coordinator.become_leader(epoch, self.now))
        for record in self.log:
            self.coordinator.on_record(epoch, record.key, record.value)
        self.perform(self.coordinator.on_loaded(epoch, self.now))
        assert self.coordinator.state is CoordinatorState.ACTIVE

    def wait(self, wait_ms: int) -> None:
        """Deadlines in between are met at their times."""
        end_ms = self.now_ms + wait_ms
        for _ in range(1000):
            due_ms = self.coordinator.next_deadline_ms
            if due_ms is None or due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.perform(self.coordinator.on_tick(self.now))
        else:
            raise AssertionError("deadlines without end")
        self.now_ms = end_ms

    def send(self, request: GroupRequest) -> int:
        request_id = self._next_request_id
        self._next_request_id += 1
        self.perform(self.coordinator.on_request(request_id, request, self.now))
        return request_id

    def ask(self, request: GroupRequest) -> GroupResponse:
        return self.answers[self.send(request)]

    # Requests

    def send_join(self, join: JoinGroup = JOIN) -> int:
        self._next_member += 1
        return self.send(replace(join, new_member_id=f"m{self._next_member}"))

    def joined(self, request_id: int) -> JoinGroupResponse:
        response = self.answers[request_id]
        assert isinstance(response, JoinGroupResponse)
        return response

    def join(self, join: JoinGroup = JOIN) -> JoinGroupResponse:
        return self.joined(self.send_join(join))

    def sync(self, joined: JoinGroupResponse, **assignments: bytes) -> SyncGroupResponse:
        sync = SyncGroup(
            "g", joined.generation_id, joined.member_id, assignments=tuple(assignments.items())
        )
        response = self.ask(sync)
        assert isinstance(response, SyncGroupResponse)
        return response

    def heartbeat(self, member_id: str, generation_id: int, instance: str | None = None) -> str:
        response = self.ask(Heartbeat("g", generation_id, member_id, instance))
        assert isinstance(response, HeartbeatResponse)
        return response.error.name

    def leave(self, member_id: str) -> None:
        self.ask(LeaveGroup("g", (LeavingMember(member_id),)))

    def send_commit(
        self, offset: int, member_id: str = "", generation_id: int = -1, topic: str = "t"
    ) -> int:
        offsets = (OffsetToCommit(topic, 0, offset),)
        return self.send(OffsetCommit("g", offsets, generation_id, member_id))

    def committed(self, request_id: int) -> str:
        response = self.answers[request_id]
        assert isinstance(response, OffsetCommitResponse)
        return response.partitions[0].error.name

    def commit_offset(
        self, offset: int, member_id: str = "", generation_id: int = -1, topic: str = "t"
    ) -> str:
        return self.committed(self.send_commit(offset, member_id, generation_id, topic))

    def fetched(self) -> dict[str, int]:
        response = self.ask(OffsetFetch("g", None))
        assert isinstance(response, OffsetFetchResponse)
        return {
            found.topic: found.committed.offset
            for found in response.offsets
            if found.committed is not None
        }

    # Whole stories

    def state(self) -> str:
        return self.coordinator.describe_group("g").state

    def stable(self, *joins: JoinGroup) -> list[JoinGroupResponse]:
        """These are members and have their assignment; the first one leads."""
        request_ids = [self.send_join(join) for join in joins]
        self.wait(0)
        responses = [self.joined(request_id) for request_id in request_ids]
        self.sync(responses[0], **{response.member_id: b"yours" for response in responses})
        for response in responses[1:]:
            assert self.sync(response).assignment == b"yours"
        assert self.state() == "Stable"
        return responses


def a_harness(settings: GroupSettings = SETTINGS) -> Harness:
    harness = Harness(GroupCoordinatorShard(settings, GroupCounters()), [])
    harness.lead(1)
    return harness
