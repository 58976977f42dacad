"""Group coordinators on real logs of several brokers: leadership, loading, late commits, time."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from tidemark_broker.coordinator.core.group_config import GroupSettings
from tidemark_broker.coordinator.core.offsets_records import CommittedOffset
from tidemark_broker.coordinator.core.requests import (
    GroupCounters,
    GroupGauges,
    GroupRequest,
    GroupResponse,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    OffsetToCommit,
    Protocol,
    SyncGroup,
    SyncGroupResponse,
)
from tidemark_broker.coordinator.group_coordinator_service import GroupCoordinatorService
from tidemark_broker.kafka.apis.group_admin import delete_all
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.partition_state import TopicState
from tidemark_protocol.topic_names import OFFSETS_TOPIC

from tests.support.fake_controller import FakeController
from tests.support.in_process_pool import TOPIC_ID, WALL_CLOCK_S, InProcessPool, a_batch

SETTINGS = GroupSettings(initial_rebalance_delay_ms=0)
SESSION_MS = 60_000

Found = TypeVar("Found")


@dataclass
class Wall:
    now_s: float = WALL_CLOCK_S


class Harness:
    """Three brokers with one partition of the offsets topic; broker 1 leads at first."""

    def __init__(self, path: Path) -> None:
        topic = TopicState(OFFSETS_TOPIC, TOPIC_ID, 1, 3, config={"cleanup.policy": "compact"})
        self.pool = InProcessPool(path, topic=topic)
        self.wall = Wall()
        self.groups = {number: self.coordinators(number) for number in self.pool.brokers}
        self.pool.lead(1)
        self.settle()

    def coordinators(self, number: int) -> GroupCoordinatorService:
        broker = self.pool.brokers[number]
        groups = GroupCoordinatorService(
            broker.partitions,
            FakeController().topic_admin(broker.partitions.metadata),
            SETTINGS,
            scheduler=self.pool.time,
            wall_clock_s=lambda: self.wall.now_s,
            clock=self.pool.time.clock,
        )
        broker.observers.add(groups)
        return groups

    def settle(self) -> None:
        """Followers have everything and know that it is committed; timers of now have run."""
        for _ in range(4):
            self.pool.replicate()
            self.pool.time.run(100)

    def send(self, request: GroupRequest, to: int = 1) -> list[GroupResponse]:
        """The list gets its one answer when there is one."""
        answers: list[GroupResponse] = []
        self.groups[to].send(request, answers.append)
        return answers

    def ask(self, request: GroupRequest, kind: type[Found], to: int = 1) -> Found:
        answers = self.send(request, to)
        self.settle()
        (answer,) = answers
        assert isinstance(answer, kind)
        return answer

    # ---- what members do

    def join(self) -> JoinGroupResponse:
        protocols = (Protocol("range", b""),)
        join = JoinGroup(
            "g", "", "m", "c", "/h", SESSION_MS, 60_000, "consumer", protocols,
            requires_member_id=False,
        )  # fmt: skip
        joined = self.ask(join, JoinGroupResponse)
        assert joined.error is ErrorCode.NONE
        sync = SyncGroup("g", joined.generation_id, "m", assignments=(("m", b"all"),))
        assert self.ask(sync, SyncGroupResponse).assignment == b"all"
        return joined

    def commit(self, offset: int, to: int = 1) -> list[GroupResponse]:
        return self.send(OffsetCommit("g", (OffsetToCommit("orders", 0, offset),)), to)

    def committed(self, to: int = 1) -> int | ErrorCode:
        (answer,) = self.send(OffsetFetch("g", (("orders", 0),)), to)
        assert isinstance(answer, OffsetFetchResponse)
        if answer.error is not ErrorCode.NONE:
            return answer.error
        committed = answer.offsets[0].committed
        return -1 if committed is None else committed.offset

    def heartbeat(self, to: int = 1) -> ErrorCode:
        return self.ask(Heartbeat("g", 1, "m"), HeartbeatResponse, to).error


def error_of(answers: list[GroupResponse]) -> ErrorCode:
    (answer,) = answers
    assert isinstance(answer, OffsetCommitResponse)
    return answer.partitions[0].error


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Harness]:
    found = Harness(tmp_path)
    yield found
    for number in list(found.pool.brokers):
        found.pool.kill(number)


def test_a_commit_is_answered_and_seen_once_it_is_committed(rig: Harness) -> None:
    answers = rig.commit(7)
    assert answers == []
    assert rig.committed() == -1
    rig.settle()
    assert error_of(answers) is ErrorCode.NONE
    assert rig.committed() == 7


def test_the_next_coordinator_knows_members_and_offsets(rig: Harness) -> None:
    rig.join()
    commit = OffsetCommit("g", (OffsetToCommit("orders", 0, 7),), 1, "m")
    rig.ask(commit, OffsetCommitResponse)
    rig.pool.kill(1)
    rig.pool.lead(2, in_sync=(2, 3))
    assert rig.committed(to=2) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    rig.settle()
    assert rig.committed(to=2) == 7
    assert rig.heartbeat(to=2) is ErrorCode.NONE
    assert rig.committed(to=3) is ErrorCode.NOT_COORDINATOR


def test_groups_wait_until_all_that_was_in_the_log_is_committed(rig: Harness) -> None:
    early = rig.commit(7)
    for number in (2, 3):
        rig.pool.replicate(number)
    assert rig.pool.brokers[2].replica().log.log_end_offset == 1
    rig.pool.kill(1)
    assert error_of(early) is ErrorCode.NOT_COORDINATOR
    rig.pool.lead(2, in_sync=(2, 3))
    rig.pool.time.run(2_000)
    assert rig.committed(to=2) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    rig.settle()
    assert rig.committed(to=2) == 7


def test_a_commit_that_took_too_long_counts_all_the_same_once_it_is_committed(rig: Harness) -> None:
    answers = rig.commit(7)
    rig.pool.time.run(6_000)
    assert error_of(answers) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.committed() == -1
    rig.settle()
    assert rig.committed() == 7


def test_nothing_is_written_while_too_few_replicas_are_in_sync(rig: Harness) -> None:
    rig.pool.kill(2)
    rig.pool.kill(3)
    rig.pool.lead(1, in_sync=(1,))
    rig.pool.time.run(100)
    end_offset = rig.pool.brokers[1].replica().log.log_end_offset
    assert error_of(rig.commit(7)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert rig.pool.brokers[1].replica().log.log_end_offset == end_offset


def test_a_report_says_when_leadership_moved_before_its_end(rig: Harness) -> None:
    rig.commit(7)
    rig.settle()
    assert not rig.groups[1].report().is_partial()
    begun = rig.groups[1].report()
    rig.pool.lead(2)
    assert list(begun.groups) == []
    assert begun.is_partial()
    assert rig.groups[2].report().is_partial()
    rig.settle()
    whole = rig.groups[2].report()
    assert [report.described.group_id for report in whole.groups] == ["g"]
    assert not whole.is_partial()


def test_who_waits_is_told_when_leadership_moves(rig: Harness) -> None:
    answers = rig.commit(7)
    rig.pool.lead(2)
    assert error_of(answers) is ErrorCode.NOT_COORDINATOR
    assert rig.committed() is ErrorCode.NOT_COORDINATOR


def test_a_request_that_nobody_foresaw_waits_for_nothing(rig: Harness) -> None:
    half_a_character = "\ud800"  # no wire carries it, no record holds it
    answers = rig.send(OffsetCommit("g", (OffsetToCommit(half_a_character, 0, 7),)))
    assert error_of(answers) is ErrorCode.UNKNOWN_SERVER_ERROR
    rig.commit(7)
    rig.settle()
    assert rig.committed() == 7
    rig.pool.lead(2)
    assert rig.committed() is ErrorCode.NOT_COORDINATOR


def test_a_former_leadership_answers_nothing_twice_when_this_broker_leads_again(
    rig: Harness,
) -> None:
    answers = rig.commit(7)
    rig.pool.lead(1)
    assert error_of(answers) is ErrorCode.NOT_COORDINATOR
    rig.settle()
    assert rig.committed() == 7


def test_a_member_without_heartbeats_is_removed_at_the_end_of_its_session(rig: Harness) -> None:
    rig.join()
    rig.pool.time.run(SESSION_MS - 10_000)
    assert rig.groups[1].describe_group("g").state == "Stable"
    rig.pool.time.run(10_000)
    assert rig.groups[1].describe_group("g").state == "Empty"


@pytest.mark.parametrize("jump_s", [-3_600.0, 3_600.0])
def test_setting_the_wall_clock_ends_no_session(rig: Harness, jump_s: float) -> None:
    rig.join()
    rig.wall.now_s += jump_s
    rig.pool.time.run(SESSION_MS - 10_000)
    assert rig.heartbeat() is ErrorCode.NONE
    rig.pool.time.run(SESSION_MS + 100)
    assert rig.groups[1].describe_group("g").state == "Empty"


@pytest.mark.parametrize("jump_s", [-3_600.0, 3_600.0])
def test_who_leads_again_after_the_wall_clock_was_set_counts_sessions_all_the_same(
    rig: Harness, jump_s: float
) -> None:
    rig.join()
    rig.wall.now_s += jump_s
    rig.pool.lead(1)
    rig.settle()
    rig.pool.time.run(SESSION_MS - 10_000)
    assert rig.heartbeat() is ErrorCode.NONE
    rig.pool.time.run(SESSION_MS + 100)
    assert rig.groups[1].describe_group("g").state == "Empty"


def test_what_is_written_has_the_wall_clocks_time(rig: Harness) -> None:
    rig.wall.now_s += 3_600.0
    rig.commit(7)
    rig.settle()
    (answer,) = rig.send(OffsetFetch("g", None))
    assert isinstance(answer, OffsetFetchResponse)
    assert answer.offsets[0].committed == CommittedOffset(7, commit_ms=int(rig.wall.now_s * 1000))


def test_groups_are_deleted_side_by_side(rig: Harness) -> None:
    names = ("a", "b", "c")
    for name in names:
        rig.send(OffsetCommit(name, (OffsetToCommit("orders", 0, 7),)))
    rig.settle()

    async def scenario() -> None:
        deletion = asyncio.create_task(delete_all(rig.groups[1], (*names, "nobody")))
        for _ in range(3):
            await asyncio.sleep(0)
        rig.settle()  # once: none waits for another's wait
        answers = {each["group_id"]: each["error"] for each in await deletion}
        assert answers == dict.fromkeys(names, ErrorCode.NONE) | {
            "nobody": ErrorCode.GROUP_ID_NOT_FOUND
        }

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_clients_cannot_write_the_offsets_topic(rig: Harness) -> None:
    (result,) = rig.pool.brokers[1].produce_bytes(a_batch("x"), topic=OFFSETS_TOPIC)
    assert result.error is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_large_log_is_loaded_in_steps(rig: Harness) -> None:
    for number in range(40):
        metadata = "x" * 4_000
        commit = OffsetCommit("g", (OffsetToCommit("orders", number, 7, metadata=metadata),))
        rig.ask(commit, OffsetCommitResponse)
    rig.pool.lead(1)
    rig.pool.replicate(rounds=3)
    rig.settle()
    (answer,) = rig.send(OffsetFetch("g", None))
    assert isinstance(answer, OffsetFetchResponse)
    assert [found.partition for found in answer.offsets] == list(range(40))


def test_metrics_tell_groups_members_rebalances_and_commits(rig: Harness) -> None:
    rig.join()
    rig.ask(OffsetCommit("g", (OffsetToCommit("orders", 0, 7),), 1, "m"), OffsetCommitResponse)
    rig.ask(OffsetCommit("simple", (OffsetToCommit("orders", 0, 7),)), OffsetCommitResponse)
    groups = rig.groups[1]
    assert groups.gauges() == GroupGauges(Counter(Stable=1, Empty=1), members=1, offsets=2)
    assert groups.counts == GroupCounters(completed_rebalances=1, committed_offsets=2)
    rig.pool.lead(2)
    rig.settle()
    assert groups.gauges() == GroupGauges()
    assert groups.counts.committed_offsets == 2
    assert rig.groups[2].gauges().members == 1


def test_retained_offsets_that_are_led_for_a_move_have_no_coordinator_and_do_not_expire(
    rig: Harness,
) -> None:
    rig.commit(7)
    rig.settle()
    rig.pool.is_retained = True
    rig.pool.lead(2)
    rig.settle()
    log = rig.pool.brokers[2].replica().log
    end = log.log_end_offset
    rig.wall.now_s += 2 * SETTINGS.offsets_retention_ms / 1000
    rig.pool.time.run(2 * SETTINGS.expiry_check_ms)
    rig.settle()
    assert rig.groups[2].gauges() == GroupGauges()
    assert log.log_end_offset == end
