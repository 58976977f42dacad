"""Controlled shutdown: leadership first, in the election's order; who may stop is out at once."""

import asyncio

from tidemark_operator.api.kinds import BROKER
from tidemark_protocol.controller_messages import CommittedTruncation, ReplicaReport
from tidemark_protocol.ids import BrokerId, ControllerEpoch, LeaderEpoch, Offset

from tests.support.controller_harness import ORDERS, POOL, FakeBroker, Harness, evaluate
from tests.support.controller_values import members
from tests.support.waiting import HANG_SECONDS, run


def stored_state(harness: Harness, number: int) -> str:
    state: str = harness.store.objects[(BROKER.kind, "shop", f"default-{number}")]["status"][
        "state"
    ]
    return state


async def stop(harness: Harness, stopping: FakeBroker) -> None:
    """Until it is told that it may."""
    for _ in range(10):
        poll = stopping.heartbeat(wants_to_stop=True)
        await evaluate()
        for broker in harness.brokers:
            if broker is not stopping and (broker.poll is None or broker.poll.done()):
                await broker.catch_up()
        if not poll.done():
            await harness.advance(500, *(b for b in harness.brokers if b is not stopping))
        response = await poll
        stopping.apply(response)
        if response.may_stop:
            return
    raise AssertionError("never allowed to stop")


def test_a_broker_that_may_stop_is_fenced_at_once_and_its_session_is_over() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await stop(harness, harness.brokers[0])
        await evaluate()
        assert stored_state(harness, 0) == "Fenced"
        writes = harness.store.writes
        await harness.advance(4000, *harness.brokers[1:])
        assert harness.store.writes == writes  # nothing is left for the session's end to do

    run(scenario)


def test_it_is_draining_until_the_others_know() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        requesting = harness.brokers[0].heartbeat(wants_to_stop=True)
        await evaluate()
        assert not (await requesting).may_stop
        assert stored_state(harness, 0) == "Draining"

    run(scenario)


def test_an_answer_that_was_lost_is_given_again_to_the_fenced_broker() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await stop(harness, harness.brokers[0])
        await evaluate()
        again = await asyncio.wait_for(
            harness.brokers[0].heartbeat(wants_to_stop=True), HANG_SECONDS
        )
        assert again.may_stop
        assert stored_state(harness, 0) == "Fenced"

    run(scenario)


def test_leadership_goes_to_who_leads_least_and_then_in_the_order_of_assignment() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create(partitions=3)
        assert [harness.partition(number).leader for number in range(3)] == [0, 1, 2]
        await stop(harness, harness.brokers[0])
        state = harness.partition(0)
        assert state.replicas == (0, 1, 2)
        assert (state.leader, state.in_sync_replicas) == (1, members("1@2 2@3"))
        await stop(harness, harness.brokers[1])
        assert [harness.partition(number).leader for number in range(3)] == [2, 2, 2]

    run(scenario)


def test_a_stop_begun_under_one_controller_ends_under_the_next() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        harness.brokers[0].apply(await harness.brokers[0].heartbeat(wants_to_stop=True))
        await harness.service.step_down()
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        await stop(harness, harness.brokers[0])
        await evaluate()
        assert stored_state(harness, 0) == "Fenced"

    run(scenario)


def test_a_heartbeat_that_a_later_one_overtook_does_not_make_a_stopped_broker_active() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        late = harness.brokers[0]
        await stop(harness, late)  # numbered 0
        await evaluate()
        await late.poll_to_the_end(number=2, wants_to_stop=True)
        response = await late.poll_to_the_end(number=1)  # it wishes to serve
        await evaluate()
        assert stored_state(harness, 0) == "Fenced"
        assert (response.push, response.may_stop) == (None, False)

    run(scenario)


def test_what_an_overtaken_heartbeat_says_of_failed_replicas_is_not_believed() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        sick = harness.brokers[1]
        failed = (ReplicaReport(ORDERS, 0, LeaderEpoch(-1), Offset(-1), Offset(-1), failed=True),)
        newer = sick.heartbeat(number=2, failed_replicas=failed)
        await evaluate()
        assert 1 not in harness.partition().in_sync_ids
        older = sick.heartbeat(number=1, suspects=(BrokerId(2),))
        await evaluate()
        assert older.done()  # and the newer one goes on being its open poll
        notes = harness.service._pools[POOL].decisions.state.soft_state_of(sick.broker_id)
        assert notes.failed_replicas == {(ORDERS, 0)}
        assert harness.probe.requested == [
            harness.brokers[2].incarnation
        ]  # whom it suspected, it suspected
        newer.cancel()
        await asyncio.gather(newer, return_exceptions=True)

    run(scenario)


def test_wishes_that_wait_for_a_decision_are_forgotten_when_later_ones_come() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        starting = FakeBroker(harness, BrokerId(3), "3-a")
        await starting.register()
        pool = harness.service._pools[POOL].decisions
        cut = CommittedTruncation(
            ORDERS, 0, LeaderEpoch(0), Offset(0), LeaderEpoch(0), Offset(1), Offset(1)
        )
        async with pool.lock:
            serving = starting.heartbeat(number=1, committed_cuts=(cut,))
            await evaluate()
            stopping = starting.heartbeat(number=2, wants_to_serve=False, wants_to_stop=True)
            await evaluate()
        await evaluate()
        assert stored_state(harness, 3) == "Starting"
        await asyncio.gather(serving, stopping)

    run(scenario)
