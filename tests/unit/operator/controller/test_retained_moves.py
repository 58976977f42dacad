"""Moves of retained partitions: led for the time of the move, by nobody before and after."""

from dataclasses import replace

import pytest
from tidemark_operator.controller.core.reassignment import CannotReassign
from tidemark_protocol.controller_messages import IsrProposal
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_BROKER, BrokerId, ControllerEpoch

from tests.support.command_player import pool_state, slice_of
from tests.support.controller_harness import ORDERS, POOL, Harness
from tests.support.controller_steps import held
from tests.support.controller_values import REPLICA, partition, topic
from tests.support.waiting import run
from tests.unit.operator.controller.core.test_reassignment import ids, join, placed


async def retained_harness(*, replicas: int = 2, **config: str) -> Harness:
    """On brokers 0 and 1 of four; nobody leads."""
    harness = await Harness().start(4)
    topic = harness.topic_state(1, replicas, **config)
    await harness.service.create_topic(POOL, topic, (ids(0, 1),))
    await catch_up(harness)
    await harness.service.delete_topic(POOL, ORDERS, retain=True)
    await catch_up(harness)
    assert harness.partition().leader == NO_BROKER
    return harness


async def catch_up(harness: Harness) -> None:
    for broker in harness.brokers:
        await broker.catch_up()


async def move(harness: Harness, *target: int) -> None:
    await harness.service.reassign(POOL, ORDERS, {0: ids(*target)})


def test_a_retained_partition_is_led_until_its_move_is_complete() -> None:
    async def scenario() -> None:
        harness = await retained_harness()
        at_rest = harness.partition()
        await move(harness, 2, 1)
        moving = harness.partition()
        assert placed(moving) == "(2, 1, 0) +(2,) -(0,)"
        assert moving.leader == 1  # 0 is to leave
        assert moving.leader_epoch > at_rest.leader_epoch
        assert await join(harness, harness.brokers[1], harness.brokers[2]) is ErrorCode.NONE
        moved = harness.partition()
        assert placed(moved) == "(2, 1) +() -()"
        assert (moved.leader, moved.in_sync_ids) == (NO_BROKER, {1, 2})
        assert moved.leader_epoch > moving.leader_epoch  # S30
        assert harness.stored_slice()["retained"] is True

    run(scenario)


def test_a_move_of_retained_data_that_is_cancelled_ends_its_leadership() -> None:
    async def scenario() -> None:
        harness = await retained_harness()
        await move(harness, 2, 1, 0)
        moving = harness.partition()
        assert placed(moving) == "(2, 1, 0) +(2,) -()"
        assert moving.has_leader
        await move(harness, 0, 1)
        cancelled = harness.partition()
        assert (placed(cancelled), cancelled.leader) == ("(0, 1) +() -()", NO_BROKER)
        assert cancelled.leader_epoch == moving.leader_epoch + 1  # one write, one step (I14)
        assert cancelled.in_sync_ids == {0, 1}

    run(scenario)


def test_a_successor_goes_on_with_the_move_and_begins_none_unconfirmed() -> None:
    async def scenario() -> None:
        harness = await retained_harness()
        await harness.service.step_down()
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        with pytest.raises(CannotReassign, match="have reported their logs"):  # S17
            await move(harness, 2, 1)
        await catch_up(harness)
        await move(harness, 2, 1)
        await harness.service.step_down()
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(3))
        await harness.advance(100, *harness.brokers)
        assert await join(harness, harness.brokers[1], harness.brokers[2]) is ErrorCode.NONE
        assert placed(harness.partition()) == "(2, 1) +() -()"
        assert not harness.partition().has_leader

    run(scenario)


def test_a_leader_that_dies_in_the_move_is_replaced_by_one_in_sync() -> None:
    async def scenario() -> None:
        harness = await retained_harness()
        await move(harness, 2, 1)
        await harness.kill(harness.brokers[1])
        state = harness.partition()
        assert (placed(state), state.leader) == ("(2, 1, 0) +(2,) -(0,)", 0)

    run(scenario)


def test_no_last_resort_is_taken_for_retained_data() -> None:
    """Nobody waits for it: it waits for the broker that surely has everything."""

    async def scenario() -> None:
        harness = await retained_harness(**{"unclean.leader.election.enable": "true"})
        await move(harness, 2, 1)
        for number in (0, 1):
            await harness.kill(harness.brokers[number])
        await harness.advance(1000, *harness.brokers[2:])
        state = harness.partition()
        assert not state.has_leader
        assert placed(state) == "(2, 1, 0) +(2,) -(0,)"

    run(scenario)


@pytest.mark.parametrize("is_retained", [True, False])
def test_reports_elect_nobody_for_retained_data_that_moves(is_retained: bool) -> None:
    """Of the brokers that live, which no entry names, although unclean elections are allowed."""
    moving = partition("", eligible="0@7 1@7", adding=(2,))
    value = slice_of(moving, is_retained=is_retained)
    allowed = topic(**{"unclean.leader.election.enable": "true"})
    value = replace(value, topic=allowed)
    pool = pool_state(value, live=(2,), fenced=(0, 1))
    pool.record_leaderless(value, version=0)
    pool.soft_state_of(BrokerId(2)).report = {REPLICA: held(5, 9)}
    after = pool.slice_after_elections(value, pool.eligibility(), pool.leader_counts())
    assert after.partitions[0].has_leader is not is_retained


def test_a_topic_that_is_deleted_while_it_moves_is_moved_to_the_end() -> None:
    async def scenario() -> None:
        harness = await Harness().start(4)
        await harness.service.create_topic(POOL, harness.topic_state(1, 2), (ids(0, 1),))
        await catch_up(harness)
        await move(harness, 2, 1)
        await harness.service.delete_topic(POOL, ORDERS, retain=True)
        leader = harness.partition().leader
        assert leader == 1
        assert await join(harness, harness.brokers[leader], harness.brokers[2]) is ErrorCode.NONE
        assert placed(harness.partition()) == "(2, 1) +() -()"
        assert not harness.partition().has_leader

    run(scenario)


def test_a_topic_that_takes_moving_data_again_gets_a_new_leader_epoch() -> None:
    """From it on brokers serve: what a broker led for a move alone had no group coordinator."""

    async def scenario() -> None:
        harness = await retained_harness()
        await move(harness, 2, 1)
        moving = harness.partition()
        await harness.service.create_topic(
            POOL, harness.topic_state(1, 2), (ids(0, 1),), had_slices=True
        )
        state = harness.partition()
        assert harness.stored_slice()["retained"] is False
        assert state.has_leader
        assert state.leader_epoch > moving.leader_epoch
        assert placed(state) == placed(moving)

    run(scenario)


def test_data_that_rests_takes_no_proposal() -> None:
    async def scenario() -> None:
        harness = await retained_harness()
        state = harness.partition()
        proposal = IsrProposal(
            ORDERS, 0, state.leader_epoch, state.partition_epoch, state.in_sync_replicas
        )
        response = await harness.brokers[0].alter(proposal)
        assert response.answers[0].error is ErrorCode.UNKNOWN_TOPIC_ID

    run(scenario)


def test_the_data_of_an_eligible_leader_moves_too() -> None:
    """Deleted while nobody was in sync: the one that waits below the minimum has everything."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.service.create_topic(POOL, harness.topic_state(1, 1), (ids(0),))
        await catch_up(harness)
        await harness.brokers[0].heartbeat(wants_to_stop=True)
        assert harness.partition().in_sync_ids == frozenset()
        await harness.service.delete_topic(POOL, ORDERS, retain=True)
        await move(harness, 1)
        assert placed(harness.partition()) == "(1, 0) +(1,) -(0,)"
        assert [each.broker_id for each in harness.partition().eligible_leaders] == [BrokerId(0)]

    run(scenario)
