"""I16: the Lease is lost in the middle of a write.

The write may still land, before or after its successor's first one. Either way it is at most one
legal step from what was stored, and nobody was told of it by the one that lost the Lease.
"""

import asyncio
from dataclasses import replace

import pytest
from tidemark_operator.api.kinds import PARTITION_SLICE, Object, ResourceKind
from tidemark_operator.controller.service import ControllerService
from tidemark_operator.store.lease import ControllerLease
from tidemark_protocol.controller_messages import AlterPartitionResponse, IsrProposal
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.partition_state import PartitionState

from tests.regression.lease_candidates import candidate
from tests.support.controller_harness import ORDERS, FakeStore, Harness, evaluate
from tests.support.controller_values import members, shown
from tests.support.waiting import run


class SlowStore(FakeStore):
    """A write of a slice is on its way until the test lets it land, whoever still waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_slow = False
        self.on_the_way: list[Object] = []

    async def replace(self, kind: ResourceKind, item: Object) -> Object:
        if self.is_slow and kind is PARTITION_SLICE:
            self.on_the_way.append(item)
            await asyncio.Event().wait()
        return await super().replace(kind, item)


def shrink(state: PartitionState, to: str) -> IsrProposal:
    return IsrProposal(
        ORDERS, state.partition, state.leader_epoch, state.partition_epoch, members(to)
    )


async def lost_in_a_write() -> tuple[Harness, SlowStore, Object, AlterPartitionResponse]:
    """Controller 1 writes the ISR {0, 1} and loses its Lease meanwhile; controller 2 leads."""
    store = SlowStore()
    harness = Harness(store=store)
    first, harness.service = candidate(harness, "one")
    await first.step()
    for number in range(3):
        harness.brokers.append(await harness.new_broker(number))
    await harness.create()
    store.is_slow = True
    requesting = asyncio.create_task(
        harness.brokers[0].alter(shrink(harness.partition(), "0@1 1@2"))
    )
    await evaluate()
    (written,) = store.on_the_way
    harness.clock.ms += 60_000
    await first.step()
    response = await requesting
    store.is_slow = False
    await taken_over(harness, candidate(harness, "two"))
    return harness, store, written, response


async def taken_over(
    harness: Harness, successor: tuple[ControllerLease, ControllerService]
) -> None:
    lease, harness.service = successor
    await lease.step()
    harness.clock.ms += 10_000
    await lease.step()
    assert harness.service.is_leading
    for broker in harness.brokers:
        await broker.catch_up()


def test_whoever_asked_hears_nothing_of_it() -> None:
    async def scenario() -> None:
        harness, _, _, response = await lost_in_a_write()
        assert (response.error, response.answers) == (ErrorCode.NOT_CONTROLLER, ())
        assert shown(harness.partition()) == "leader 0@1 epoch 0 isr [0@1 1@2 2@3] eligible [] pe 0"

    run(scenario)


@pytest.mark.parametrize("lands", ["before", "after", "never"])
def test_it_is_one_legal_step_or_none(lands: str) -> None:
    async def scenario() -> None:
        harness, store, written, _ = await lost_in_a_write()
        if lands == "before":
            await store.replace(PARTITION_SLICE, written)
        await harness.kill(harness.brokers[0])
        if lands == "after":
            with pytest.raises(Exception, match="found"):
                await store.replace(PARTITION_SLICE, written)
        await harness.advance(100, *harness.brokers[1:])
        kept, epoch = ("1@2", 2) if lands == "before" else ("1@2 2@3", 1)
        state = harness.partition()
        assert (state.leader, state.leader_epoch) == (1, 1)
        assert state.in_sync_replicas == members(kept)
        assert state.partition_epoch == epoch
        stored = harness.stored_slice()["partitions"][0]
        assert stored["partitionEpoch"] == epoch

    run(scenario)


def test_a_leader_that_asks_again_finds_its_change_there() -> None:
    """It landed after all: the successor answers from what is stored, not from what it read."""

    async def scenario() -> None:
        harness, store, written, _ = await lost_in_a_write()
        proposal = shrink(harness.partition(), "0@1 1@2")
        await store.replace(PARTITION_SLICE, written)
        (response,) = (await harness.brokers[0].alter(proposal)).answers
        assert response.error is ErrorCode.INVALID_UPDATE_VERSION
        assert response.state is not None
        assert response.state.in_sync_replicas == members("0@1 1@2")
        again = replace(proposal, partition_epoch=response.state.partition_epoch)
        (response,) = (await harness.brokers[0].alter(again)).answers
        assert response.error is ErrorCode.NONE

    run(scenario)
