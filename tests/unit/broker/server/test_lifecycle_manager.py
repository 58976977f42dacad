"""The session against a controller made of a few lines, over real HTTP on loopback."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tidemark_broker.log.disk import DiskSpace
from tidemark_broker.metadata.controller_channel import MAX_BACKGROUND_CALLS
from tidemark_broker.metadata.producer_id_manager import ProducerIdManager
from tidemark_broker.server import lifecycle_manager
from tidemark_broker.server.lifecycle_manager import RegistrationRejected
from tidemark_protocol.controller_messages import (
    AllocateProducerIdsResponse,
    HeartbeatResponse,
    MetadataPush,
    RegisterResponse,
    ReplicaReport,
    TopicPush,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import Member, PartitionState, TopicState
from tidemark_protocol.topic_messages import (
    CREATE_TOPICS_PATH,
    CreateTopicsRequest,
    NewTopic,
    TopicsResponse,
)

from tests.support.waiting import eventually
from tests.unit.broker.session_harness import (
    REGISTERED,
    SERVING,
    FakeController,
    Harness,
    polling,
    run,
)

ORDERS = TopicId("00000000-0000-0000-0000-000000000001")


def test_registration_notes_the_epochs_and_the_cluster_on_disk(tmp_path: Path) -> None:  # S16
    async def scenario(controller: FakeController, harness: Harness) -> None:
        assert await harness.session.register() == REGISTERED
        directory = harness.directory
        assert (directory.highest_broker_epoch, directory.highest_controller_epoch) == (7, 5)
        assert (directory.cluster_id, harness.partitions.broker_epoch) == ("c1", 7)

    run(tmp_path, scenario)


def test_registration_goes_on_over_dead_addresses_and_refusals(tmp_path: Path) -> None:
    async def scenario(controller: FakeController, harness: Harness) -> None:
        controller.registrations = [
            RegisterResponse(ErrorCode.REQUEST_TIMED_OUT),
            RegisterResponse(ErrorCode.NOT_CONTROLLER),
        ]
        assert await harness.session.register() == REGISTERED
        assert len(controller.registered) == 3

    run(tmp_path, scenario, extra_addresses=("127.0.0.1:1",))


def test_a_standby_that_names_the_leader_saves_the_search(tmp_path: Path) -> None:
    async def scenario(controller: FakeController, harness: Harness) -> None:
        leader = FakeController()
        runner = await leader.start()
        controller.registrations = [
            RegisterResponse(
                ErrorCode.NOT_CONTROLLER, controller_address=f"127.0.0.1:{leader.port}"
            )
        ]
        await harness.session.register()
        assert (len(controller.registered), len(leader.registered)) == (1, 1)
        await runner.cleanup()

    run(tmp_path, scenario)


def test_another_cluster_is_a_matter_for_humans(tmp_path: Path) -> None:
    async def scenario(controller: FakeController, harness: Harness) -> None:
        controller.registrations = [
            RegisterResponse(ErrorCode.INCONSISTENT_CLUSTER_ID, "cluster c2")
        ]
        with pytest.raises(RegistrationRejected, match="cluster c2"):
            await harness.session.register()

    run(tmp_path, scenario)


def test_heartbeat_reports_the_space_of_the_disk(tmp_path: Path) -> None:
    async def scenario(controller: FakeController, harness: Harness) -> None:
        async def polled() -> None:
            first = controller.polls[0][0]
            assert (first.disk_free_bytes, first.disk_size_bytes) == (-1, -1)  # not read yet
            harness.partitions.record_disk_space(DiskSpace(40, 100))
            controller.answer(0)
            await eventually(lambda: len(controller.polls) == 2)
            second = controller.polls[1][0]
            assert (second.disk_free_bytes, second.disk_size_bytes) == (40, 100)

        await polling(controller, harness, polled)

    run(tmp_path, scenario)


def test_a_poll_is_always_open(tmp_path: Path) -> None:
    async def scenario(controller: FakeController, harness: Harness) -> None:
        async def steps() -> None:
            for number in range(3):
                controller.answer(number)
                await eventually(lambda polls=number + 2: len(controller.polls) == polls)
            assert not harness.session.is_fenced

        await polling(controller, harness, steps)

    run(tmp_path, scenario)


def test_news_is_said_by_a_second_poll_while_the_first_is_open(tmp_path: Path) -> None:
    async def scenario(controller: FakeController, harness: Harness) -> None:
        async def steps() -> None:
            assert not controller.polls[0][0].wants_to_serve
            harness.session.serve()
            await eventually(lambda: len(controller.polls) == 2)
            assert controller.polls[1][0].wants_to_serve
            assert [poll[0].number for poll in controller.polls] == [1, 2]
            controller.answer(0, HeartbeatResponse(ErrorCode.NONE))  # makes room, says nothing
            harness.session.suspect(BrokerId(3))
            await eventually(lambda: len(controller.polls) == 3)
            assert controller.polls[2][0].suspects == (BrokerId(3),)
            controller.answer(1)
            controller.answer(2)
            await eventually(lambda: len(controller.polls) == 4)
            assert controller.polls[3][0].suspects == ()  # said once

        await polling(controller, harness, steps)

    run(tmp_path, scenario)


def test_a_push_is_applied_and_its_version_reported(tmp_path: Path) -> None:
    async def scenario(controller: FakeController, harness: Harness) -> None:
        async def steps() -> None:
            push = MetadataPush(ControllerEpoch(5), 12, True, (), ())
            response = HeartbeatResponse(
                ErrorCode.NONE, controller_epoch=ControllerEpoch(5), push=push
            )
            controller.answer(0, response)
            await eventually(lambda: len(controller.polls) == 2)
            request = controller.polls[1][0]
            assert (request.applied_controller_epoch, request.applied_image_version) == (5, 12)

        await polling(controller, harness, steps)

    run(tmp_path, scenario)


def test_a_push_waits_for_space_to_store_the_epoch_of_its_controller(tmp_path: Path) -> None:  # S16
    async def scenario(controller: FakeController, harness: Harness) -> None:
        async def steps() -> None:
            harness.disk.space_bytes = 0
            push = MetadataPush(ControllerEpoch(6), 12, True, (), ())
            controller.answer(
                0, HeartbeatResponse(ErrorCode.NONE, controller_epoch=ControllerEpoch(6), push=push)
            )
            await eventually(lambda: "No space left" in harness.session.problem)
            assert harness.partitions.metadata.image_version == -1
            assert not harness.partitions.is_stopped
            harness.disk.space_bytes = None
            await eventually(lambda: harness.partitions.metadata.image_version == 12)
            assert harness.directory.highest_controller_epoch == 6

        await polling(controller, harness, steps)

    run(tmp_path, scenario)


def test_a_role_that_a_full_disk_kept_from_being_taken_is_taken_later(tmp_path: Path) -> None:
    """No push names the partition again: seed 3000901 followed nobody for ever."""

    async def scenario(controller: FakeController, harness: Harness) -> None:
        async def steps() -> None:
            harness.disk.space_bytes = 0
            leader = Member(BrokerId(2), BrokerEpoch(3))
            partition = PartitionState(
                partition=0,
                replicas=(BrokerId(1), leader.broker_id),
                leader=leader.broker_id,
                leader_broker_epoch=leader.broker_epoch,
                leader_epoch=LeaderEpoch(0),
                in_sync_replicas=(leader,),
                eligible_leaders=(),
                partition_epoch=PartitionEpoch(0),
                min_insync_replicas=1,
            )
            topic = TopicPush(TopicState("orders", ORDERS, 1, 2), (partition,))
            push = MetadataPush(ControllerEpoch(5), 12, True, (), (topic,))
            controller.answer(
                0, HeartbeatResponse(ErrorCode.NONE, controller_epoch=ControllerEpoch(5), push=push)
            )
            await eventually(lambda: len(controller.polls) == 2)
            (failed,) = controller.polls[1][0].failed_replicas
            assert (failed.topic_id, failed.partition) == (ORDERS, 0)
            await harness.session.retry_failed_roles()
            assert not harness.partitions.replicas
            harness.disk.space_bytes = None
            await harness.session.retry_failed_roles()
            (replica,) = harness.partitions.replicas
            assert replica.role == "follower"
            assert harness.partitions.failed_replicas == {}

        await polling(controller, harness, steps)

    run(tmp_path, scenario)


def test_a_failure_is_heard_of_once_nobody_counts_on_it(tmp_path: Path) -> None:  # S9, I6
    """An answer may be given before that is stored: who cut its log by it might be a member."""

    async def scenario(controller: FakeController, harness: Harness) -> None:
        heard: list[tuple[TopicId, int]] = []
        harness.partitions.record_failures_acknowledged = heard.extend  # type: ignore[method-assign]
        harness.partitions.failed_replicas[ORDERS, 0] = "damaged"

        async def steps() -> None:
            controller.answer(0)
            await eventually(lambda: len(controller.polls) == 2)
            assert heard == []
            controller.answer(1, replace(SERVING, are_failures_settled=True))
            await eventually(lambda: len(controller.polls) == 3)
            assert heard == [(ORDERS, 0)]

        await polling(controller, harness, steps)

    run(tmp_path, scenario)


def test_a_deposed_controllers_answer_is_dropped(tmp_path: Path) -> None:  # I16
    async def scenario(controller: FakeController, harness: Harness) -> None:
        async def steps() -> None:
            push = MetadataPush(ControllerEpoch(4), 99, True, (), ())
            superseded = HeartbeatResponse(
                ErrorCode.NONE,
                controller_epoch=ControllerEpoch(4),
                is_fenced=False,
                may_stop=True,
                push=push,
            )
            harness.session.stop()
            controller.answer(0, superseded)
            await eventually(lambda: len(controller.polls) >= 2)
            assert harness.partitions.metadata.image_version == -1
            assert harness.session.is_fenced
            assert not harness.session.may_stop.is_set()

        await polling(controller, harness, steps)

    run(tmp_path, scenario)


def test_a_higher_controller_epoch_is_on_disk_before_its_push_counts(tmp_path: Path) -> None:
    async def scenario(controller: FakeController, harness: Harness) -> None:
        async def steps() -> None:
            response = HeartbeatResponse(ErrorCode.NONE, controller_epoch=ControllerEpoch(9))
            controller.answer(0, response)
            await eventually(lambda: len(controller.polls) == 2)
            assert harness.directory.highest_controller_epoch == 9

        await polling(controller, harness, steps)

    run(tmp_path, scenario)


def test_leave_to_stop_counts_only_when_it_was_asked_for(tmp_path: Path) -> None:
    async def scenario(controller: FakeController, harness: Harness) -> None:
        async def steps() -> None:
            leave = HeartbeatResponse(
                ErrorCode.NONE, controller_epoch=ControllerEpoch(5), may_stop=True
            )
            controller.answer(0, leave)
            await eventually(lambda: len(controller.polls) == 2)
            assert not harness.session.may_stop.is_set()
            harness.session.stop()
            await eventually(lambda: len(controller.polls) == 3)
            controller.answer(2, leave)
            await eventually(harness.session.may_stop.is_set)

        await polling(controller, harness, steps)

    run(tmp_path, scenario)


def test_a_stale_broker_epoch_ends_this_life(tmp_path: Path) -> None:
    async def scenario(controller: FakeController, harness: Harness) -> None:
        async def steps() -> None:
            stale = HeartbeatResponse(
                ErrorCode.STALE_BROKER_EPOCH, "replaced", controller_epoch=ControllerEpoch(5)
            )
            controller.answer(0, stale)
            await eventually(lambda: harness.stale == ["replaced"])

        await polling(controller, harness, steps)

    run(tmp_path, scenario)


def test_registered_again_as_another_life_it_ends_and_takes_nothing_on(tmp_path: Path) -> None:
    """Seed 37002807: a registration of the life before came late, and this one's next was a new
    life to the controller. What it led was granted to the old one (S2)."""

    async def scenario(controller: FakeController, harness: Harness) -> None:
        async def steps() -> None:
            other = replace(REGISTERED, broker_epoch=BrokerEpoch(9))
            controller.registrations = [other]
            requested = ErrorCode.BROKER_ID_NOT_REGISTERED
            controller.answer(0, HeartbeatResponse(requested, controller_epoch=ControllerEpoch(5)))
            await eventually(lambda: harness.stale == ["broker epoch 9 replaced broker epoch 7"])
            assert (harness.session.broker_epoch, harness.partitions.broker_epoch) == (7, 7)

        await polling(controller, harness, steps)

    run(tmp_path, scenario)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_registration_that_was_overtaken_is_the_end_of_its_process(
    tmp_path: Path, is_first: bool
) -> None:
    async def scenario(controller: FakeController, harness: Harness) -> None:
        if not is_first:
            await harness.session.register()
        epoch = harness.session.broker_epoch
        refused = RegisterResponse(ErrorCode.STALE_BROKER_EPOCH, "another one registered")
        controller.registrations = [refused]
        registering = asyncio.ensure_future(harness.session.register())
        await eventually(lambda: harness.stale == ["another one registered"])
        assert (harness.session.broker_epoch, registering.done()) == (epoch, False)
        registering.cancel()
        await asyncio.gather(registering, return_exceptions=True)

    run(tmp_path, scenario)


def test_producer_ids_come_from_the_leading_controller_only(tmp_path: Path) -> None:
    """A standby's, a refused and a deposed controller's answer (I16) are asked for again."""

    async def scenario(controller: FakeController, harness: Harness) -> None:
        await harness.session.register()
        producer_ids = ProducerIdManager(harness.channel.request_producer_ids)
        controller.blocks = [
            AllocateProducerIdsResponse(ErrorCode.NOT_CONTROLLER),
            AllocateProducerIdsResponse(ErrorCode.REQUEST_TIMED_OUT, "the write timed out"),
            *(
                AllocateProducerIdsResponse(
                    ErrorCode.NONE,
                    controller_epoch=ControllerEpoch(epoch),
                    first_producer_id=1000 * epoch,
                    count=1000,
                )
                for epoch in (4, 5)
            ),
        ]
        found = await producer_ids.init()
        assert (found.error, found.producer_id, controller.blocks) == (ErrorCode.NONE, 5000, [])

    run(tmp_path, scenario)


def test_slow_changes_of_topics_hold_up_no_heartbeat_however_many_there_are(
    tmp_path: Path,
) -> None:
    async def scenario(controller: FakeController, harness: Harness) -> None:
        async def steps() -> None:
            controller.topics_response = asyncio.get_running_loop().create_future()
            request = CreateTopicsRequest(
                harness.channel.requesting_broker(), "1", (NewTopic("orders"),)
            )
            requesting = [
                asyncio.create_task(
                    harness.channel.request_topics(CREATE_TOPICS_PATH, request, 600_000)
                )
                for _ in range(3 * MAX_BACKGROUND_CALLS)
            ]
            await eventually(lambda: controller.topics_requested == MAX_BACKGROUND_CALLS)
            for number in range(3):
                controller.answer(number)
                await eventually(lambda due=number + 2: len(controller.polls) == due)
            assert controller.topics_requested == MAX_BACKGROUND_CALLS
            done = TopicsResponse(ErrorCode.NONE, controller_epoch=ControllerEpoch(5))
            controller.topics_response.set_result(done)
            assert await asyncio.gather(*requesting) == [done] * len(requesting)

        await polling(controller, harness, steps)

    run(tmp_path, scenario)


def test_asked_for_a_report_it_registers_again_and_lives_on(tmp_path: Path) -> None:  # S14
    async def scenario(controller: FakeController, harness: Harness) -> None:
        async def steps() -> None:
            requested = HeartbeatResponse(
                ErrorCode.BROKER_ID_NOT_REGISTERED, controller_epoch=ControllerEpoch(5)
            )
            push = MetadataPush(ControllerEpoch(5), 12, True, (), ())
            controller.answer(0, replace(SERVING, push=push))
            await eventually(lambda: len(controller.polls) == 2)
            controller.answer(1, requested)
            await eventually(lambda: len(controller.registered) == 2)
            await eventually(lambda: len(controller.polls) == 3)
            assert harness.stale == []
            assert [
                (each.applied_controller_epoch, each.applied_image_version)
                for each in controller.registered
            ] == [(-1, -1), (5, 12)]

        await polling(controller, harness, steps)

    run(tmp_path, scenario)


def test_a_report_claims_the_version_of_before_its_first_log(  # S14
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle_manager, "REPORTS_AT_A_TIME", 1)

    async def scenario(controller: FakeController, harness: Harness) -> None:
        names = (("orders", ORDERS, 0), ("orders", ORDERS, 1))
        await asyncio.to_thread(harness.directory.create_logs, names)
        reporting = asyncio.ensure_future(harness.session.register())
        await asyncio.sleep(0)
        harness.partitions.apply_push(MetadataPush(ControllerEpoch(5), 12, True, (), ()))
        await reporting
        (request,) = controller.registered
        assert [report.partition for report in request.replicas] == [0, 1]
        assert (request.applied_controller_epoch, request.applied_image_version) == (-1, -1)
        assert harness.partitions.metadata.image_version == 12

    run(tmp_path, scenario)


def test_a_long_report_lets_others_run_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle_manager, "REPORTS_AT_A_TIME", 2)
    reported: list[int] = []
    report = lifecycle_manager.replica_report

    def counted(*arguments: Any) -> ReplicaReport:
        reported.append(len(turns))
        return report(*arguments)

    monkeypatch.setattr(lifecycle_manager, "replica_report", counted)
    turns: list[None] = []

    async def scenario(_: FakeController, harness: Harness) -> None:
        names = tuple(("orders", ORDERS, number) for number in range(5))
        await asyncio.to_thread(harness.directory.create_logs, names)
        registering = asyncio.ensure_future(harness.session.register())
        while not registering.done():
            await asyncio.sleep(0)
            turns.append(None)
        assert sorted(Counter(reported).values()) == [1, 2, 2]

    run(tmp_path, scenario)
