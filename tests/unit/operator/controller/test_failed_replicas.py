"""What brokers report failed (S9): known to whoever counts on them, who say when nobody does."""

import asyncio
from typing import Any

from tidemark_operator.api.kinds import PARTITION_SLICE
from tidemark_operator.controller.pool_loop import PoolLoop
from tidemark_protocol.controller_messages import HeartbeatResponse, ReplicaReport
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import LeaderEpoch, Offset
from tidemark_protocol.partition_state import Member

from tests.support.controller_harness import ORDERS, POOL, FakeBroker, Harness, evaluate
from tests.support.controller_steps import expand, successor
from tests.support.waiting import run

FAILED = (ReplicaReport(ORDERS, 0, LeaderEpoch(-1), Offset(-1), Offset(-1), failed=True),)


def decisions(harness: Harness) -> PoolLoop:
    return harness.service._pools[POOL].decisions


async def response_of(harness: Harness, broker: FakeBroker, **changes: Any) -> HeartbeatResponse:
    """Without news a poll is held for a heartbeat interval."""
    poll = broker.heartbeat(**changes)
    await evaluate()
    if not poll.done():
        await harness.advance(500)
    response = await poll
    broker.apply(response)
    return response


def test_an_answer_of_before_the_decision_does_not_say_that_nobody_counts_on_it() -> None:  # I6
    """A decision of before may still make it a member; it may have cut its log by then."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        sick = harness.brokers[1]
        async with decisions(harness).lock:
            first = sick.heartbeat(number=1, failed_replicas=FAILED)
            await evaluate()
            second = sick.heartbeat(number=2, failed_replicas=FAILED)  # which answers the first
            await evaluate()
            assert not second.done()
        early = await first
        await evaluate()
        assert (early.error, early.are_failures_settled) == (ErrorCode.NONE, False)
        assert 1 not in harness.partition().in_sync_ids
        sick.apply(await second)
        later = await response_of(harness, sick, number=3, failed_replicas=FAILED)
        assert later.are_failures_settled

    run(scenario)


def test_what_cannot_be_stored_is_not_settled() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        harness.store.faults[PARTITION_SLICE.kind] = ["lost"] * harness.settings.write_attempts
        sick = harness.brokers[1]
        early = await response_of(harness, sick, number=1, failed_replicas=FAILED)
        assert not early.are_failures_settled
        await response_of(harness, sick, number=2, failed_replicas=FAILED)
        later = await response_of(harness, sick, number=3, failed_replicas=FAILED)
        assert (later.are_failures_settled, 1 in harness.partition().in_sync_ids) == (True, False)

    run(scenario)


def test_of_two_reports_that_wait_for_a_decision_the_newer_counts() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        sick = harness.brokers[1]
        for number in (1, 2):
            await response_of(harness, sick, number=number, failed_replicas=FAILED)
        async with decisions(harness).lock:
            mended = sick.heartbeat(number=3)
            await evaluate()
            again = sick.heartbeat(number=4, failed_replicas=FAILED)
            await evaluate()
        await evaluate()
        notes = decisions(harness).state.soft_state_of(sick.broker_id)
        assert notes.failed_replicas == notes.evaluated_failures == {(ORDERS, 0)}
        again.cancel()
        await asyncio.gather(mended, again, return_exceptions=True)

    run(scenario)


def test_what_a_broker_says_first_to_a_successor_counts_before_it_may_lead() -> None:  # S9, S17
    """It has applied a push of ours already when it says more than that; elections that wait for
    the lock are made by then."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await successor(harness)
        sick = harness.brokers[1]
        async with decisions(harness).lock:
            poll = sick.heartbeat(number=1, failed_replicas=FAILED)
            await evaluate()
            assert decisions(harness).state.soft_state_of(sick.broker_id).failed_replicas
        poll.cancel()
        await asyncio.gather(poll, return_exceptions=True)

    run(scenario)


def test_nobody_joins_who_has_not_spoken_to_this_controller() -> None:  # S9, I6
    """Only memory says what was reported failed. A leader that asks the successor again, for what
    its follower held before it cut its log, asks too early."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        sick = harness.brokers[1]
        for number in (1, 2):
            await response_of(harness, sick, number=number, failed_replicas=FAILED)
        proposal = expand(harness.partition(), Member(sick.broker_id, sick.epoch))
        await successor(harness)
        (response,) = (await harness.brokers[0].alter(proposal)).answers
        assert response.error is ErrorCode.INELIGIBLE_REPLICA
        for number in (3, 4):
            await response_of(harness, sick, number=number)
        proposal = expand(harness.partition(), Member(sick.broker_id, sick.epoch))
        (response,) = (await harness.brokers[0].alter(proposal)).answers
        assert (response.error, 1 in harness.partition().in_sync_ids) == (ErrorCode.NONE, True)

    run(scenario)
