"""Moves of partitions between brokers (KIP-455): begin, complete, cancel, fail in the middle."""

from dataclasses import replace

import pytest
from tidemark_operator.api.kinds import PARTITION_SLICE
from tidemark_operator.controller.core.elections import LeaderCounts
from tidemark_operator.controller.core.reassignment import (
    CannotReassign,
    original_of,
    reassigned,
    target_of,
)
from tidemark_protocol.controller_messages import IsrProposal
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, ControllerEpoch
from tidemark_protocol.partition_state import Member, PartitionState

from tests.support.controller_harness import ORDERS, POOL, FakeBroker, Harness
from tests.support.controller_values import after, dead, eligibility, partition, shown, topic
from tests.support.waiting import run

ALL = eligibility("0@1", "1@2", "2@3", "3@4", "4@5")


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def moved(state: PartitionState, *target: int) -> PartitionState:
    return reassigned(topic(), state, ALL, ids(*target))


def placed(state: PartitionState) -> str:
    return f"{state.replicas} +{state.adding_replicas} -{state.removing_replicas}"


def joined(state: PartitionState, in_sync: str) -> PartitionState:
    return replace(state, in_sync_replicas=partition(in_sync).in_sync_replicas)


WHOLE = partition("0@1 1@2 2@3", leader="0@1")


def test_a_move_begins_with_everybody_a_replica_and_nobody_dropped() -> None:
    found = moved(WHOLE, 3, 1, 2)
    assert placed(found) == "(3, 1, 2, 0) +(3,) -(0,)"
    assert shown(found) == "leader 0@1 epoch 5 isr [0@1 1@2 2@3] eligible [] pe 10"
    assert (target_of(found), original_of(found)) == (ids(3, 1, 2), ids(1, 2, 0))


def test_nobody_leaves_before_the_whole_target_is_in_sync() -> None:
    state = joined(moved(WHOLE, 3, 4, 2), "0@1 1@2 2@3 3@4")
    assert after(state, ALL) is state


def test_the_last_one_coming_in_sync_completes_it_and_a_leader_that_leaves_is_replaced() -> None:
    state = joined(moved(WHOLE, 3, 1, 2), "0@1 1@2 2@3 3@4")
    found = after(state, ALL)
    assert placed(found) == "(3, 1, 2) +() -()"
    assert shown(found) == "leader 3@4 epoch 6 isr [1@2 2@3 3@4] eligible [] pe 11"


def test_who_leaves_when_a_move_completes_raises_the_leader_epoch_also_of_the_same_leader() -> None:
    state = joined(moved(WHOLE, 0, 1, 3), "0@1 1@2 2@3 3@4")  # S30
    found = after(state, ALL)
    assert shown(found) == "leader 0@1 epoch 6 isr [0@1 1@2 3@4] eligible [] pe 11"


def test_who_leaves_as_a_move_is_cancelled_or_replaced_raises_the_leader_epoch_once() -> None:
    state = moved(WHOLE, 0, 1, 3)  # S30
    cancelled = after(moved(state, 0, 1, 2), ALL)
    assert shown(cancelled) == "leader 0@1 epoch 6 isr [0@1 1@2 2@3] eligible [] pe 11"
    assert moved(state, 0, 1, 4).leader_epoch == 6
    assert moved(state, 0, 4, 3).leader_epoch == 5  # all are there still


def test_a_target_member_that_died_meanwhile_holds_the_move_up() -> None:
    state = joined(moved(WHOLE, 3, 1, 2), "0@1 1@2 2@3 3@4")
    found = after(state, eligibility("0@1", "1@2", "2@3", dead("3@4")))
    assert placed(found) == "(3, 1, 2, 0) +(3,) -(0,)"
    assert shown(found) == "leader 0@1 epoch 5 isr [0@1 1@2 2@3] eligible [] pe 11"


def test_with_commit_rule_isr_dead_members_that_stay_in_the_isr_complete_nothing() -> None:
    state = joined(moved(WHOLE, 3, 4, 2), "2@3 3@4 4@5")
    everybody = eligibility("0@1", "1@2", dead("2@3"), dead("3@4"), dead("4@5"))
    found = after(state, everybody, of=topic("Isr"))
    assert placed(found) == "(3, 4, 2, 0, 1) +(3, 4) -(0, 1)"


def test_the_leader_dying_in_the_middle_is_followed_by_one_that_stays() -> None:
    state = moved(partition("0@1 1@2 2@3", leader="0@1"), 2, 3, 4)
    busy = LeaderCounts([partition("2@3", leader="2@3")] * 3)
    found = after(state, eligibility(dead("0@1"), "1@2", "2@3", "3@4", "4@5"), counts=busy)
    assert found.leader == 2  # 1 leads fewer, and is to leave
    assert placed(found) == "(2, 3, 4, 0, 1) +(3, 4) -(0, 1)"


def test_one_that_is_to_leave_leads_when_nobody_else_is_in_sync() -> None:
    state = moved(partition("0@1 1@2", leader="0@1"), 3, 4, 2)
    found = after(state, eligibility(dead("0@1"), "1@2", "2@3", "3@4", "4@5"))
    assert found.leader == 1


def test_the_original_target_cancels_and_returns_at_once() -> None:
    state = joined(moved(WHOLE, 3, 4, 2), "0@1 1@2 2@3 3@4")
    back = reassigned(topic(), state, ALL, original_of(state))
    found = after(back, ALL)
    assert placed(found) == "(2, 0, 1) +() -()"
    assert found.in_sync_ids == {0, 1, 2}
    assert found.leader == 0


def test_cancelling_takes_leadership_from_one_that_was_only_being_added() -> None:
    state = replace(joined(moved(WHOLE, 3, 4, 2), "1@2 3@4"), leader=BrokerId(3))
    back = reassigned(topic(), state, ALL, original_of(state))
    assert not back.has_leader
    assert after(back, ALL).leader == 1


def test_another_target_replaces_the_first_one() -> None:
    found = moved(moved(WHOLE, 3, 1, 2), 4, 1, 2)
    assert placed(found) == "(4, 1, 2, 0) +(4,) -(0,)"


def test_a_move_that_would_leave_nobody_in_sync_is_refused() -> None:
    state = replace(joined(moved(WHOLE, 3, 4, 2), "3@4"), leader=BrokerId(3))
    with pytest.raises(CannotReassign, match="is in sync: the move waits"):
        reassigned(topic(), state, ALL, ids(0, 1, 2))


@pytest.mark.parametrize("target", [(), (1, 1), tuple(range(11))])
def test_a_target_that_is_no_replica_set_is_refused(target: tuple[int, ...]) -> None:
    with pytest.raises(CannotReassign, match="distinct brokers"):
        moved(WHOLE, *target)


def test_without_a_leader_nothing_moves() -> None:
    with pytest.raises(CannotReassign, match="no leader"):
        moved(partition("", eligible="0@1"), 3, 1, 2)


def test_another_order_of_the_same_brokers_is_a_move_that_is_done_at_once() -> None:
    found = after(moved(WHOLE, 2, 0, 1), ALL)
    assert placed(found) == "(2, 0, 1) +() -()"
    assert found.partition_epoch > WHOLE.partition_epoch
    assert found.leader_epoch == WHOLE.leader_epoch


def test_fewer_replicas_leave_at_once_and_more_wait() -> None:
    fewer = after(moved(WHOLE, 0, 1), ALL)
    assert placed(fewer) == "(0, 1) +() -()"
    more = after(moved(WHOLE, 0, 1, 2, 3), ALL)
    assert placed(more) == "(0, 1, 2, 3) +(3,) -()"


# With the controller around it.


async def join(harness: Harness, leader: FakeBroker, joining: FakeBroker) -> ErrorCode:
    state = harness.partition()
    new = (*state.in_sync_replicas, Member(joining.broker_id, joining.epoch))
    response = await leader.alter(
        IsrProposal(ORDERS, 0, state.leader_epoch, state.partition_epoch, new)
    )
    return response.answers[0].error


async def moving_harness() -> Harness:
    harness = await Harness().start(4)
    topic_state = harness.topic_state()
    await harness.service.create_topic(POOL, topic_state, (ids(0, 1, 2),))
    for broker in harness.brokers:
        await broker.catch_up()
    await harness.service.reassign(POOL, ORDERS, {0: ids(3, 1, 2)})
    return harness


def test_a_move_completes_with_the_expand_that_it_waited_for() -> None:
    async def scenario() -> None:
        harness = await moving_harness()
        assert placed(harness.partition()) == "(3, 1, 2, 0) +(3,) -(0,)"
        assert await join(harness, harness.brokers[0], harness.brokers[3]) is ErrorCode.NONE
        assert placed(harness.partition()) == "(3, 1, 2) +() -()"
        assert harness.partition().leader in (1, 2, 3)
        (stored,) = harness.stored_slice()["partitions"]
        assert (stored["replicas"], stored["adding"], stored["removing"]) == ([3, 1, 2], [], [])

    run(scenario)


def test_a_successor_goes_on_with_a_move() -> None:
    async def scenario() -> None:
        harness = await moving_harness()
        await harness.service.step_down()
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        await harness.advance(100, *harness.brokers)
        assert await join(harness, harness.brokers[0], harness.brokers[3]) is ErrorCode.NONE
        assert placed(harness.partition()) == "(3, 1, 2) +() -()"

    run(scenario)


def test_a_successor_moves_nothing_by_a_slice_that_its_brokers_have_not_confirmed() -> None:
    async def scenario() -> None:
        harness = await moving_harness()
        await harness.service.step_down()
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        previous = harness.partition()
        with pytest.raises(CannotReassign, match="have reported their logs"):  # S17
            await harness.service.reassign(POOL, ORDERS, {0: ids(0, 1, 2)})
        assert harness.partition() == previous
        for broker in harness.brokers:
            await broker.catch_up()
        await harness.service.reassign(POOL, ORDERS, {0: ids(0, 1, 2)})
        assert placed(harness.partition()) == "(0, 1, 2) +() -()"

    run(scenario)


def test_the_joining_broker_restarting_in_the_middle_joins_as_its_new_life() -> None:
    async def scenario() -> None:
        harness = await moving_harness()
        again = await harness.new_broker(3, life="b")
        assert (
            await join(harness, harness.brokers[0], harness.brokers[3])
            is ErrorCode.INELIGIBLE_REPLICA
        )
        assert await join(harness, harness.brokers[0], again) is ErrorCode.NONE
        assert placed(harness.partition()) == "(3, 1, 2) +() -()"

    run(scenario)


def test_a_broker_that_never_registered_is_no_target() -> None:
    async def scenario() -> None:
        harness = await moving_harness()
        with pytest.raises(CannotReassign, match="not registered"):
            await harness.service.reassign(POOL, ORDERS, {0: ids(9, 1, 2)})

    run(scenario)


def test_moves_that_cannot_begin_are_named_and_hold_up_no_other() -> None:
    async def scenario() -> None:
        harness = await Harness().start(4)
        await harness.create(partitions=9)
        impossible = {number: ids(9, 1, 2) for number in range(7)}
        with pytest.raises(CannotReassign) as refused:
            await harness.service.reassign(
                POOL, ORDERS, {**impossible, 8: ids(3, 1, 2), 40: ids(0)}
            )
        first, *others, last = str(refused.value).split("; ")
        assert first == "partition 0: brokers [9] are not registered: start them first"
        assert (len(others), last) == (4, "and 3 more partitions")
        assert (target_of(harness.partition(8)), target_of(harness.partition(0))) == (
            ids(3, 1, 2),
            ids(0, 1, 2),
        )

    run(scenario)


def test_no_move_begins_under_a_leader_that_was_fenced_and_has_no_successor_yet() -> None:
    """Who leaves raises the leader epoch (S30): that would be a grant to the dead (I12, seed
    17000538)."""

    async def scenario() -> None:
        harness = await moving_harness()
        harness.store.faults[PARTITION_SLICE.kind] = ["lost"] * harness.settings.write_attempts
        await harness.kill(harness.brokers[0])
        harness.store.faults.clear()
        previous = harness.stored_slice()
        assert previous["partitions"][0]["leader"] == 0
        with pytest.raises(CannotReassign, match="its leader 0 is stopping"):
            await harness.service.reassign(POOL, ORDERS, {0: ids(0, 1, 2)})
        assert harness.stored_slice() == previous
        await harness.tick()
        assert harness.partition().leader in (1, 2)
        await harness.service.reassign(POOL, ORDERS, {0: ids(0, 1, 2)})
        assert placed(harness.partition()) == "(0, 1, 2) +() -()"

    run(scenario)
