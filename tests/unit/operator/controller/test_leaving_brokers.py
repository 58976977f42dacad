"""Who left an ISR is not proposed for it while the last slices of its leaving are written (L1)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tidemark_operator.controller.commands import broker_state
from tidemark_protocol.controller_messages import BrokerState, MetadataPush

from tests.support.controller_harness import FakeBroker, Harness, evaluate
from tests.support.waiting import run
from tests.unit.operator.controller.many_topics import decisions, with_topics

Leave = Callable[[Harness, FakeBroker], Awaitable[object]]


async def _is_fenced(harness: Harness, broker: FakeBroker) -> None:
    await decisions(harness).fence([(broker.broker_id, broker.epoch)], "test")


async def _is_drained(harness: Harness, broker: FakeBroker) -> None:
    await decisions(harness).drain(broker.broker_id, broker.epoch)


async def _loses_its_disk(harness: Harness, broker: FakeBroker) -> None:
    await decisions(harness).run(broker_state.fail_storage, broker.broker_id, broker.epoch)


def _reported(broker: FakeBroker) -> MetadataPush:
    assert broker.poll is not None
    push = broker.poll.result().push
    assert push is not None
    return push


def _state(push: MetadataPush, broker: FakeBroker) -> BrokerState:
    return next(each for each in push.brokers if each.broker_id == broker.broker_id)


@pytest.mark.parametrize("leave", [_is_fenced, _is_drained, _loses_its_disk])
def test_leaders_hear_who_may_not_join_with_the_first_slice(leave: Leave) -> None:
    """Ten thousand partitions took seconds to settle. Leaders that had heard of theirs proposed
    the dead broker again, and each refusal was one more write and one more push."""

    async def scenario() -> None:
        harness, store = await with_topics("old", "new")
        leaver, other = harness.brokers[0], harness.brokers[1]
        held = asyncio.Event()
        original = store._pass

        async def hold_the_last(name: str) -> None:
            await original(name)
            if name == "new-0":
                await held.wait()

        store._pass = hold_the_last  # type: ignore[method-assign]
        leaving = asyncio.ensure_future(leave(harness, leaver))
        await evaluate()
        push = _reported(other)
        assert [pushed.topic.topic for pushed in push.topics] == ["old"]
        assert _state(push, leaver).is_stopping  # a leader proposes no such broker (KIP-841)
        assert not _state(push, leaver).is_fenced  # clients wait for this with all slices (0063)
        held.set()
        await leaving
        await other.catch_up()
        states = decisions(harness).image.push_for(other.controller_epoch, 1)
        assert states is not None
        assert _state(states, leaver).is_fenced is (leave is not _is_drained)

    run(scenario)
