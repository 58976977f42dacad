"""Named scenarios of docs/design/safety.md: start proofs, missing slices, last resort."""

import pytest
from tidemark_operator.api.kinds import PARTITION_SLICE
from tidemark_operator.controller.service import SliceMissing
from tidemark_protocol.controller_messages import ReplicaReport
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import (
    BrokerId,
)
from tidemark_protocol.partition_state import Member

from tests.support.controller_harness import ORDERS, POOL, FakeBroker, Harness, evaluate
from tests.support.controller_steps import clean_restart, expand, held
from tests.support.controller_values import shown
from tests.support.waiting import run

# S8, S9


def test_s8_failed_storage_voids_this_life_and_makes_the_next_start_unclean() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.kill(harness.brokers[1])
        await harness.kill(harness.brokers[2])
        io_failure = harness.brokers[0]
        response = await io_failure.heartbeat(storage_failed=True)
        assert response.is_fenced
        assert shown(harness.partition()) == "leader -1@-1 epoch 1 isr [] eligible [2@3] pe 3"
        again = FakeBroker(harness, BrokerId(0), "0-b")
        assert not (await again.register(clean_stop_epoch=io_failure.epoch)).is_clean

    run(scenario)


@pytest.mark.parametrize(
    "replicas", [(), (held(0, 5, 9),)], ids=["directory lost", "behind its own checkpoint"]
)
def test_s9_a_clean_broker_that_lost_one_partition_is_void_for_it(
    replicas: tuple[ReplicaReport, ...],
) -> None:
    async def scenario() -> None:
        harness = await Harness().start(2)
        await harness.create(replicas=2)
        first, second = harness.brokers
        await first.heartbeat(wants_to_stop=True)
        await second.heartbeat(wants_to_stop=True)
        await evaluate()
        assert shown(harness.partition()) == "leader -1@-1 epoch 2 isr [] eligible [0@1 1@2] pe 2"
        await clean_restart(harness, first, *replicas)
        assert shown(harness.partition()) == "leader -1@-1 epoch 2 isr [] eligible [1@2] pe 3"
        await clean_restart(harness, second, held(0, 9, 9))
        assert shown(harness.partition()) == "leader 1@4 epoch 3 isr [1@4] eligible [] pe 4"

    run(scenario)


def test_s9_a_lost_replica_may_join_again_under_its_new_epoch() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        first = harness.brokers[0]
        await first.heartbeat(wants_to_stop=True)
        again = await clean_restart(harness, first)
        state = harness.partition()
        leader = harness.brokers[state.leader]
        response = await leader.alter(expand(state, Member(BrokerId(0), again.epoch)))
        assert response.answers[0].error is ErrorCode.NONE
        await harness.advance(100, *harness.brokers[1:])
        assert 0 in harness.partition().in_sync_ids

    run(scenario)


# S12


@pytest.mark.parametrize("had_slices", [True, False], ids=["status says so", "a disk says so"])
def test_s12_a_topic_id_that_once_had_slices_never_gets_new_ones(had_slices: bool) -> None:
    async def scenario() -> None:
        harness = await Harness().start(0)
        broker = FakeBroker(
            harness, BrokerId(0), "0-a", replicas=() if had_slices else (held(3, 9),)
        )
        await broker.register()
        await broker.catch_up()
        with pytest.raises(SliceMissing, match="restore"):
            await harness.service.create_topic(
                POOL, harness.topic_state(1, 1), ((BrokerId(0),),), had_slices=had_slices
            )
        assert harness.service.topic(POOL, ORDERS) is None

    run(scenario)


def test_s12_a_slice_deleted_by_hand_is_shown_as_missing_and_no_broker_hears_of_a_deletion() -> (
    None
):
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create(200)
        del harness.store.objects[(PARTITION_SLICE.kind, "shop", "orders-1")]
        await harness.kill(harness.brokers[0])
        view = harness.service.topic(POOL, ORDERS)
        assert view is not None
        assert view.missing_slices == ("orders-1",)
        response = await harness.brokers[1].poll_to_the_end(applied_image_version=-1)
        assert response.push is not None
        assert [t.is_deleted for t in response.push.topics] == [False]
        assert len(response.push.topics[0].partitions) == 128  # the others only are not spoken of

    run(scenario)


# S14


def test_s14_when_everybody_was_killed_the_longest_log_leads_and_a_notice_says_so() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        for broker in harness.brokers:
            await harness.kill(broker)
        assert not harness.partition().has_leader
        ends = [(0, 30), (0, 70), (0, 50)]
        for number, end in enumerate(ends):
            again = FakeBroker(harness, BrokerId(number), f"{number}-b", replicas=(held(*end),))
            await again.register()
            await again.catch_up()
        assert shown(harness.partition()) == "leader 1@5 epoch 4 isr [1@5] eligible [] pe 6"
        view = harness.service.topic(POOL, ORDERS)
        assert view is not None
        assert len(view.notices) == 1
        assert view.notices[0].startswith(
            "partition 0: no replica was known to hold all committed records, so the replica with"
            " the longest log was elected; broker 1 is leader since leader epoch 4 and offset 70;"
        )

    run(scenario)


def test_s14_a_report_older_than_the_leaderlessness_is_asked_for_again() -> None:
    async def scenario() -> None:
        harness = await Harness().start(2)
        await harness.create(replicas=2, **{"min.insync.replicas": "1"})
        first, second = harness.brokers
        await harness.kill(second)
        harness.clock.ms += 10
        harness.brokers[1] = second = await harness.new_broker(
            1, life="b"
        )  # follows again, not in sync
        harness.clock.ms += 10
        await harness.kill(first)
        assert shown(harness.partition()) == "leader -1@-1 epoch 1 isr [] eligible [0@1] pe 2"
        harness.clock.ms += 10
        again = FakeBroker(harness, BrokerId(0), "0-b", replicas=(held(0, 5),))
        await again.register()
        await again.catch_up()
        assert second.poll is not None
        requested = await second.poll
        while requested.error is ErrorCode.NONE:
            second.apply(requested)
            requested = await second.heartbeat()
        assert requested.error is ErrorCode.BROKER_ID_NOT_REGISTERED
        assert not harness.partition().has_leader
        second.replicas = (held(0, 60),)
        response = await second.register()
        assert response.broker_epoch == second.epoch == 3  # the same life keeps its epoch
        assert harness.partition().leader == 1

    run(scenario)
