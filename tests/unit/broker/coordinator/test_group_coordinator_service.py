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
    GroupOffset,
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
        responses: list[GroupResponse] = []
        self.groups[to].send(request, responses.append)
        return responses

    def ask(self, request: GroupRequest, kind: type[Found], to: int = 1) -> Found:
        responses = self.send(request, to)
        self.settle()
        (response,) = responses
        assert isinstance(response, kind)
        return response

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
        (response,) = self.send(OffsetFetch("g", (("orders", 0),)), to)
        assert isinstance(response, OffsetFetchResponse)
        if response.error is not ErrorCode.NONE:
            return response.error
        committed = response.offsets[0].committed
        return -1 if committed is None else committed.offset

    def heartbeat(self, to: int = 1) -> ErrorCode:
        return self.ask(Heartbeat("g", 1, "m"), HeartbeatResponse, to).error


def error_of(answers: list[GroupResponse]) -> ErrorCode:
    (response,) = answers
    assert isinstance(response, OffsetCommitResponse)
    return response.partitions[0].error


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    found = Harness(tmp_path)
    yield found
    for number in list(found.pool.brokers):
        found.pool.kill(number)


def test_a_commit_is_answered_and_seen_once_it_is_committed(harness: Harness) -> None:
    responses = harness.commit(7)
    assert responses == []
    assert harness.committed() == -1
    harness.settle()
    assert error_of(responses) is ErrorCode.NONE
    assert harness.committed() == 7


def test_the_next_coordinator_knows_members_and_offsets(harness: Harness) -> None:
    harness.join()
    commit = OffsetCommit("g", (OffsetToCommit("orders", 0, 7),), 1, "m")
    harness.ask(commit, OffsetCommitResponse)
    harness.pool.kill(1)
    harness.pool.lead(2, in_sync=(2, 3))
    assert harness.committed(to=2) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    harness.settle()
    assert harness.committed(to=2) == 7
    assert harness.heartbeat(to=2) is ErrorCode.NONE
    assert harness.committed(to=3) is ErrorCode.NOT_COORDINATOR


def test_groups_wait_until_all_that_was_in_the_log_is_committed(harness: Harness) -> None:
    early = harness.commit(7)
    for number in (2, 3):
        harness.pool.replicate(number)
    assert harness.pool.brokers[2].replica().log.log_end_offset == 1
    harness.pool.kill(1)
    assert error_of(early) is ErrorCode.NOT_COORDINATOR
    harness.pool.lead(2, in_sync=(2, 3))
    harness.pool.time.run(2_000)
    assert harness.committed(to=2) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    harness.settle()
    assert harness.committed(to=2) == 7


def test_a_commit_that_took_too_long_counts_all_the_same_once_it_is_committed(
    harness: Harness,
) -> None:
    responses = harness.commit(7)
    harness.pool.time.run(6_000)
    assert error_of(responses) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.committed() == -1
    harness.settle()
    assert harness.committed() == 7


def test_nothing_is_written_while_too_few_replicas_are_in_sync(harness: Harness) -> None:
    harness.pool.kill(2)
    harness.pool.kill(3)
    harness.pool.lead(1, in_sync=(1,))
    harness.pool.time.run(100)
    end_offset = harness.pool.brokers[1].replica().log.log_end_offset
    assert error_of(harness.commit(7)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert harness.pool.brokers[1].replica().log.log_end_offset == end_offset


def test_a_report_says_when_leadership_moved_before_its_end(harness: Harness) -> None:
    harness.commit(7)
    harness.settle()
    assert not harness.groups[1].report().is_partial()
    begun = harness.groups[1].report()
    harness.pool.lead(2)
    assert list(begun.groups) == []
    assert begun.is_partial()
    assert harness.groups[2].report().is_partial()
    harness.settle()
    whole = harness.groups[2].report()
    assert [report.described.group_id for report in whole.groups] == ["g"]
    assert not whole.is_partial()


def test_who_waits_is_told_when_leadership_moves(harness: Harness) -> None:
    responses = harness.commit(7)
    harness.pool.lead(2)
    assert error_of(responses) is ErrorCode.NOT_COORDINATOR
    assert harness.committed() is ErrorCode.NOT_COORDINATOR


def test_a_request_that_nobody_foresaw_waits_for_nothing(harness: Harness) -> None:
    half_a_character = "\ud800"  # no wire carries it, no record holds it
    responses = harness.send(OffsetCommit("g", (OffsetToCommit(half_a_character, 0, 7),)))
    assert error_of(responses) is ErrorCode.UNKNOWN_SERVER_ERROR
    harness.commit(7)
    harness.settle()
    assert harness.committed() == 7
    harness.pool.lead(2)
    assert harness.committed() is ErrorCode.NOT_COORDINATOR


def test_a_former_leadership_answers_nothing_twice_when_this_broker_leads_again(
    harness: Harness,
) -> None:
    responses = harness.commit(7)
    harness.pool.lead(1)
    assert error_of(responses) is ErrorCode.NOT_COORDINATOR
    harness.settle()
    assert harness.committed() == 7


def test_a_member_without_heartbeats_is_removed_at_the_end_of_its_session(harness: Harness) -> None:
    harness.join()
    harness.pool.time.run(SESSION_MS - 10_000)
    assert harness.groups[1].describe_group("g").state == "Stable"
    harness.pool.time.run(10_000)
    assert harness.groups[1].describe_group("g").state == "Empty"


@pytest.mark.parametrize("jump_s", [-3_600.0, 3_600.0])
def test_setting_the_wall_clock_ends_no_session(harness: Harness, jump_s: float) -> None:
    harness.join()
    harness.wall.now_s += jump_s
    harness.pool.time.run(SESSION_MS - 10_000)
    assert harness.heartbeat() is ErrorCode.NONE
    harness.pool.time.run(SESSION_MS + 100)
    assert harness.groups[1].describe_group("g").state == "Empty"


@pytest.mark.parametrize("jump_s", [-3_600.0, 3_600.0])
def test_who_leads_again_after_the_wall_clock_was_set_counts_sessions_all_the_same(
    harness: Harness, jump_s: float
) -> None:
    harness.join()
    harness.wall.now_s += jump_s
    harness.pool.lead(1)
    harness.settle()
    harness.pool.time.run(SESSION_MS - 10_000)
    assert harness.heartbeat() is ErrorCode.NONE
    harness.pool.time.run(SESSION_MS + 100)
    assert harness.groups[1].describe_group("g").state == "Empty"


def test_what_is_written_has_the_wall_clocks_time(harness: Harness) -> None:
    harness.wall.now_s += 3_600.0
    harness.commit(7)
    harness.settle()
    (response,) = harness.send(OffsetFetch("g", None))
    assert isinstance(response, OffsetFetchResponse)
    assert response.offsets[0].committed == CommittedOffset(
        7, commit_ms=int(harness.wall.now_s * 1000)
    )


def test_groups_are_deleted_side_by_side(harness: Harness) -> None:
    names = ("a", "b", "c")
    for name in names:
        harness.send(OffsetCommit(name, (OffsetToCommit("orders", 0, 7),)))
    harness.settle()

    async def scenario() -> None:
        deletion = asyncio.create_task(delete_all(harness.groups[1], (*names, "nobody")))
        for _ in range(3):
            await asyncio.sleep(0)
        harness.settle()  # once: none waits for another's wait
        responses = {each["group_id"]: each["error"] for each in await deletion}
        assert responses == dict.fromkeys(names, ErrorCode.NONE) | {
            "nobody": ErrorCode.GROUP_ID_NOT_FOUND
        }

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_clients_cannot_write_the_offsets_topic(harness: Harness) -> None:
    (result,) = harness.pool.brokers[1].produce_bytes(a_batch("x"), topic=OFFSETS_TOPIC)
    assert result.error is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_large_log_is_loaded_in_steps(harness: Harness) -> None:
    for number in range(40):
        metadata = "x" * 4_000
        commit = OffsetCommit("g", (OffsetToCommit("orders", number, 7, metadata=metadata),))
        harness.ask(commit, OffsetCommitResponse)
    harness.pool.lead(1)
    harness.pool.replicate(rounds=3)
    harness.settle()
    (response,) = harness.send(OffsetFetch("g", None))
    assert isinstance(response, OffsetFetchResponse)
    assert [found.partition for found in response.offsets] == list(range(40))


def test_metrics_tell_groups_members_rebalances_and_commits(harness: Harness) -> None:
    harness.join()
    harness.ask(OffsetCommit("g", (OffsetToCommit("orders", 0, 7),), 1, "m"), OffsetCommitResponse)
    harness.ask(OffsetCommit("simple", (OffsetToCommit("orders", 0, 7),)), OffsetCommitResponse)
    groups = harness.groups[1]
    assert groups.gauges() == GroupGauges(Counter(Stable=1, Empty=1), members=1, offsets=2)
    assert groups.counts == GroupCounters(completed_rebalances=1, committed_offsets=2)
    harness.pool.lead(2)
    harness.settle()
    assert groups.gauges() == GroupGauges()
    assert groups.counts.committed_offsets == 2
    assert harness.groups[2].gauges().members == 1


def test_committed_offsets_are_told_with_the_lag_where_the_coordinator_leads(
    harness: Harness,
) -> None:
    existing, deleted = OffsetToCommit(OFFSETS_TOPIC, 0, 1), OffsetToCommit("deleted", 0, 7)
    harness.ask(OffsetCommit("g", (existing, deleted)), OffsetCommitResponse)
    ahead = OffsetToCommit(OFFSETS_TOPIC, 0, 99)
    harness.ask(OffsetCommit("h", (ahead,)), OffsetCommitResponse)
    end = harness.pool.brokers[1].replica().high_watermark
    told = harness.groups[1].offsets(10)
    assert told == (
        GroupOffset("g", OFFSETS_TOPIC, TOPIC_ID, 0, 1, end - 1),
        GroupOffset("h", OFFSETS_TOPIC, TOPIC_ID, 0, 99, 0),
    )
    assert harness.groups[1].offsets(1) == told[:1]
    assert harness.groups[2].offsets(10) == ()


def test_retained_offsets_that_are_led_for_a_move_have_no_coordinator_and_do_not_expire(
    harness: Harness,
) -> None:
    harness.commit(7)
    harness.settle()
    harness.pool.is_retained = True
    harness.pool.lead(2)
    harness.settle()
    log = harness.pool.brokers[2].replica().log
    end = log.log_end_offset
    harness.wall.now_s += 2 * SETTINGS.offsets_retention_ms / 1000
    harness.pool.time.run(2 * SETTINGS.expiry_check_ms)
    harness.settle()
    assert harness.groups[2].gauges() == GroupGauges()
    assert log.log_end_offset == end
