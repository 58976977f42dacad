"""S5: a producer id is given to one producer, ever: across failovers, lost answers, two controllers
at once, brokers and pools made anew, objects deleted by hand or restored from a backup."""

import copy

import pytest
from tidemark_operator.api.broker import round_of
from tidemark_operator.api.kinds import BROKER
from tidemark_operator.controller.service import ControllerService
from tidemark_protocol.controller_messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import (
    FORGED_PRODUCER_IDS_FROM,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
)

from tests.support.controller_harness import POOL, FakeBroker, Harness, evaluate
from tests.support.controller_steps import successor
from tests.support.waiting import run


async def ask(
    broker: FakeBroker, service: ControllerService | None = None
) -> AllocateProducerIdsResponse:
    request = AllocateProducerIdsRequest(POOL, broker.broker_id, broker.epoch)
    return await (service or broker.harness.service).allocate_producer_ids(request)


async def given(broker: FakeBroker) -> range:
    response = await ask(broker)
    assert response.error is ErrorCode.NONE, response.message
    return range(response.first_producer_id, response.first_producer_id + response.count)


def all_distinct(*blocks: range) -> bool:
    return len({number for block in blocks for number in block}) == sum(map(len, blocks))


def test_blocks_of_a_thousand_are_disjoint_over_brokers_and_restarts() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        blocks = [await given(broker) for broker in harness.brokers for _ in range(3)]
        again = await harness.new_broker(1, life="b")
        blocks += [await given(again), await given(harness.brokers[0])]
        assert {len(block) for block in blocks} == {1000}
        assert all_distinct(*blocks)
        assert blocks[0] == range(1000)

    run(scenario)


def test_a_block_is_used_up_in_the_store_before_it_is_given() -> None:
    async def scenario() -> None:
        harness = await Harness().start(1)
        block = await given(harness.brokers[0])
        stored = harness.store.objects[(BROKER.kind, "shop", "default-0")]["status"]
        assert stored["producerIdRound"] == round_of(block[0])

    run(scenario)


def test_a_successor_gives_nothing_that_its_predecessor_gave() -> None:
    async def scenario() -> None:
        harness = await Harness().start(2)
        before = [await given(broker) for broker in harness.brokers]
        await successor(harness, 2)
        after = [await given(broker) for broker in harness.brokers]
        assert all_distinct(*before, *after)

    run(scenario)


@pytest.mark.parametrize(
    "outcomes", [["lost"], ["landed"], ["conflict"], ["lost", "lost"], ["conflict", "lost"]]
)
def test_a_write_of_unknown_outcome_gives_no_block_twice(outcomes: list[str]) -> None:
    async def scenario() -> None:
        harness = await Harness(write_attempts=2).start(1)
        (broker,) = harness.brokers
        blocks = [await given(broker)]
        harness.store.faults[BROKER.kind] = list(outcomes)
        response = await ask(broker)
        if len(outcomes) == 2:
            assert (response.error, response.count) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        else:
            blocks.append(range(response.first_producer_id, response.first_producer_id + 1000))
        blocks.append(await given(broker))
        await successor(harness, 2)
        blocks.append(await given(broker))
        assert all_distinct(*blocks)

    run(scenario)


def test_what_a_deposed_controller_still_gave_is_not_given_again_by_its_successor() -> None:
    """The old one writes after its successor has read everything; that block is the broker's."""

    async def scenario() -> None:
        harness = await Harness().start(2)
        frozen = harness.service
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        late = await ask(harness.brokers[0], frozen)
        assert late.error is ErrorCode.NONE
        # The new one finds a write that it does not know and reads everything again.
        assert (await ask(harness.brokers[0])).error is ErrorCode.NOT_CONTROLLER
        await evaluate()
        assert not harness.service.is_leading
        await successor(harness, 3)
        taken = range(late.first_producer_id, late.first_producer_id + late.count)
        assert all_distinct(taken, await given(harness.brokers[0]), await given(harness.brokers[1]))

    run(scenario)


def test_a_deposed_controllers_block_survives_whatever_else_its_successor_writes() -> None:
    """A fence writes the whole object: it must not lower the round."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        frozen = harness.service
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        for broker in harness.brokers:
            broker.controller_epoch, broker.version = ControllerEpoch(-1), -1
        late = await ask(harness.brokers[0], frozen)
        await harness.kill(harness.brokers[0])
        await harness.tick()
        stored = harness.store.objects[(BROKER.kind, "shop", "default-0")]["status"]
        assert stored["producerIdRound"] == round_of(late.first_producer_id)

    run(scenario)


def test_a_deposed_controllers_write_that_comes_after_the_successors_gives_nothing() -> None:
    async def scenario() -> None:
        harness = await Harness().start(1)
        (broker,) = harness.brokers
        frozen = harness.service
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        await given(broker)
        assert (await ask(broker, frozen)).error is ErrorCode.NOT_CONTROLLER

    run(scenario)


def test_registration_raises_the_counter_above_every_id_found_on_a_disk() -> None:
    """All objects are gone, or were restored from an old backup; the volumes are not."""

    async def scenario() -> None:
        harness = await Harness().start(1)
        old_objects = copy.deepcopy(harness.store.objects)
        used = [await given(harness.brokers[0]) for _ in range(4)]
        harness.store.objects = old_objects
        await harness.service.step_down()
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        # Broker 1 holds a replica with a batch of broker 0's third block.
        other = FakeBroker(harness, BrokerId(1), "1-a")
        await other.register(highest_producer_id=used[3][17])
        again = FakeBroker(harness, BrokerId(0), "0-b")
        await again.register()
        assert all_distinct(*used, await given(again), await given(other))
        # The report outlives the controller that heard it.
        await successor(harness, 3)
        assert all_distinct(*used, await given(again), await given(other))

    run(scenario)


def test_a_broker_object_deleted_by_hand_does_not_restart_its_blocks() -> None:
    async def scenario() -> None:
        harness = await Harness().start(2)
        used = [await given(harness.brokers[number]) for number in (0, 0, 1)]
        del harness.store.objects[(BROKER.kind, "shop", "default-0")]
        used.append(await given(harness.brokers[0]))
        del harness.store.objects[(BROKER.kind, "shop", "default-0")]
        await successor(harness, 2)
        again = FakeBroker(harness, BrokerId(0), "0-b")
        await again.register(highest_producer_id=used[-1][0])
        assert all_distinct(*used, await given(again))

    run(scenario)


@pytest.mark.parametrize("found", ["nothing", "a backup"])
@pytest.mark.parametrize("volume", ["kept", "empty"])
def test_who_asks_before_the_witness_registers_is_given_nothing_twice(
    found: str, volume: str
) -> None:
    """Broker 0 gave ids whose batches lie on broker 1 only, and its record of that is lost."""

    async def scenario() -> None:
        harness = await Harness().start(2)
        await harness.create(replicas=2)
        old = copy.deepcopy(harness.store.objects[(BROKER.kind, "shop", "default-0")])
        again = await harness.new_broker(0, life="b")
        used = [await given(again) for _ in range(3)]
        if found == "nothing":
            for number in range(2):
                del harness.store.objects[(BROKER.kind, "shop", f"default-{number}")]
        else:
            harness.store.objects[(BROKER.kind, "shop", "default-0")] = old
        if volume == "empty" and found == "nothing":
            del harness.highest_epochs[BrokerId(0)]
        await successor(harness, 2)
        first = FakeBroker(harness, BrokerId(0), "0-c")
        await first.register()
        used.append(await given(first))
        witness = FakeBroker(harness, BrokerId(1), "1-c")
        await witness.register(highest_producer_id=used[2][17])
        assert all_distinct(*used, await given(first), await given(witness))

    run(scenario)


def test_an_unreadable_broker_object_still_says_which_rounds_are_used() -> None:
    async def scenario() -> None:
        harness = await Harness().start(1)
        used = await given(harness.brokers[0])
        status = harness.store.objects[(BROKER.kind, "shop", "default-0")]["status"]
        harness.store.touch(BROKER, "default-0", status=status | {"endpoints": "nonsense"})
        await successor(harness, 2)
        again = FakeBroker(harness, BrokerId(0), "0-b")
        await again.register()
        assert all_distinct(used, await given(again))

    run(scenario)


def test_a_life_that_is_over_gets_no_block() -> None:
    async def scenario() -> None:
        harness = await Harness().start(1)
        previous = harness.brokers[0]
        await harness.new_broker(0, life="b")
        assert (await ask(previous)).error is ErrorCode.STALE_BROKER_EPOCH
        stranger = FakeBroker(harness, BrokerId(5), "5-a", epoch=BrokerEpoch(1))
        assert (await ask(stranger)).error is ErrorCode.STALE_BROKER_EPOCH

    run(scenario)


def test_a_forged_id_on_a_disk_does_not_use_up_the_id_space() -> None:
    """Any producer may write any id into its batches."""

    async def scenario() -> None:
        harness = await Harness().start(0)
        broker = FakeBroker(harness, BrokerId(0), "0-a")
        await broker.register(highest_producer_id=2**63 - 1)
        assert await given(broker) == range(1000)
        again = FakeBroker(harness, BrokerId(0), "0-b")
        await again.register(highest_producer_id=FORGED_PRODUCER_IDS_FROM - 1)
        block = await given(again)
        assert FORGED_PRODUCER_IDS_FROM <= block[0] < block[-1] < 2**63

    run(scenario)


def test_a_broker_id_that_no_pool_can_have_is_refused() -> None:
    async def scenario() -> None:
        harness = await Harness().start(0)
        response = await FakeBroker(harness, BrokerId(1000), "x").register()
        assert response.error is ErrorCode.INVALID_REGISTRATION
        assert "0 to 999" in response.message

    run(scenario)
