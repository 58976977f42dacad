"""S2: an entry of an ISR is (broker id, broker epoch), and a void one never comes back to life."""

import pytest
from tidemark_operator.api.kinds import BROKER, PARTITION_SLICE
from tidemark_operator.controller.core.decision import Deferred
from tidemark_operator.controller.service import NotController
from tidemark_operator.controller.slice_store import ControllerSuperseded
from tidemark_protocol.controller_messages import ReplicaReport
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, Offset

from tests.support.controller_harness import ORDERS, POOL, FakeBroker, Harness
from tests.support.controller_steps import held, successor
from tests.support.controller_values import members, shown
from tests.support.waiting import run


async def forgotten_by_all(harness: Harness, epoch: int) -> None:
    """A successor, of which brokers have heard nothing."""
    await successor(harness, epoch)
    for broker in harness.brokers:
        broker.controller_epoch, broker.version = ControllerEpoch(-1), -1


def test_stripping_cut_short_after_the_first_of_nine_slices_lets_nobody_lead_the_rest() -> None:
    async def scenario() -> None:
        harness = await Harness(write_attempts=1).start(3)
        partitions = 8 * 128 + 1
        await harness.create(partitions=partitions)
        # B starts unclean; of the writes that strip B@2 one lands, then the controller dies.
        harness.store.faults[PARTITION_SLICE.kind] = [""] + ["lost"] * 8
        again = FakeBroker(harness, BrokerId(1), "1-b")
        await again.register()
        harness.store.faults.clear()
        listed = [
            index
            for index in range(9)
            if {"id": 1, "epoch": 2} in harness.stored_slice(index)["partitions"][0]["isr"]
        ]
        assert len(listed) == 8
        await forgotten_by_all(harness, 2)
        assert (await again.register()).broker_epoch == 4
        # Now the two others are gone: only B@4 lives, and nothing says that it has a record.
        for gone in (harness.brokers[0], harness.brokers[2]):
            await harness.kill(gone)
        await harness.advance(100, again)
        for number in range(0, partitions, 128):
            state = harness.partition(number)
            assert not state.has_leader
            assert 1 not in {m.broker_id for m in state.in_sync_replicas + state.eligible_leaders}

    run(scenario)


def test_a_retained_topic_read_again_does_not_give_a_void_entry_its_brokers_new_epoch() -> None:
    """A deposed controller's late expand puts B@2 back after B@4 registered unclean; its
    successor meets it while it retains the topic."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        late = harness.stored_slice()["partitions"]
        harness.brokers[1] = await harness.new_broker(1, life="b")
        assert harness.partition().in_sync_replicas == members("0@1 2@3")
        harness.store.touch(
            PARTITION_SLICE, "orders-0", partitions=[{**late[0], "partitionEpoch": 5}]
        )
        await harness.service.delete_topic(POOL, ORDERS, retain=True)
        await harness.create()
        assert 1 not in {member.broker_id for member in harness.partition().in_sync_replicas}
        assert harness.partition().eligible_leaders == ()

    run(scenario)


def test_an_epoch_that_an_entry_holds_is_not_given_out_again_when_the_broker_object_is_gone() -> (
    None
):
    """B's object is deleted by hand and its volume lost: at epoch 2 again it would be taken for
    the B@2 that is eligible."""

    async def scenario() -> None:
        harness = await Harness().start(2)
        await harness.create(replicas=2)
        for broker in reversed(harness.brokers):
            await harness.kill(broker)
        assert shown(harness.partition()).startswith(
            "leader -1@-1 epoch 1 isr [] eligible [0@1 1@2]"
        )
        del harness.store.objects[(BROKER.kind, "shop", "default-1")]
        await forgotten_by_all(harness, 2)
        empty = FakeBroker(harness, BrokerId(1), "1-new")
        await empty.register()
        await empty.catch_up()
        assert empty.epoch == 3
        assert not harness.partition().has_leader
        assert members("1@2")[0] not in harness.partition().eligible_leaders

    run(scenario)


def test_a_deposed_controllers_late_registration_is_not_written_back_to_a_lower_epoch() -> None:
    """The old controller registers B@4 after its successor had read everything."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        frozen = harness.service
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        new_controller, harness.service = harness.service, frozen
        late = FakeBroker(harness, BrokerId(1), "1-b")
        await late.register()
        assert late.epoch == 4
        harness.service = new_controller
        for broker in harness.brokers:
            broker.controller_epoch, broker.version = ControllerEpoch(-1), -1
        await harness.kill(harness.brokers[1])  # the life that the new controller still takes for B
        await harness.tick()
        stored = harness.store.objects[(BROKER.kind, "shop", "default-1")]["status"]
        assert stored["brokerEpoch"] == 4  # I14
        assert not new_controller.is_leading  # it takes the lease anew and reads everything
        await forgotten_by_all(harness, 3)
        third = FakeBroker(harness, BrokerId(1), "1-c")
        await third.register()
        assert third.epoch == 5

    run(scenario)


def test_a_deposed_controllers_late_registration_shares_its_epoch_with_no_other_life() -> None:
    """It gives B@4 to one life; its successor, that read before, would give B@4 to the next."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        frozen = harness.service
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        new_controller, harness.service = harness.service, frozen
        late = FakeBroker(harness, BrokerId(1), "1-b")
        await late.register()
        assert late.epoch == 4
        harness.service = new_controller
        await FakeBroker(harness, BrokerId(1), "1-c").register()
        stored = harness.store.objects[(BROKER.kind, "shop", "default-1")]["status"]
        assert (stored["brokerEpoch"], stored["incarnation"]) == (4, "1-b")
        assert not new_controller.is_leading  # it takes the lease anew and reads everything
        await forgotten_by_all(harness, 3)
        third = FakeBroker(harness, BrokerId(1), "1-c")
        await third.register()
        assert third.epoch == 5

    run(scenario)


def test_a_successor_strikes_nothing_out_by_what_it_read_before_a_late_registration() -> None:
    """Whoever was killed in the life that the deposed one registered proves that life, which its
    successor does not know: it looked unclean, and entries that were valid were gone (I13, seed
    17000330)."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create(**{"min.insync.replicas": "3"})
        superseded = harness.service
        new_controller = harness.another_controller()
        await new_controller.load(ControllerEpoch(2))
        late = FakeBroker(harness, BrokerId(1), "1-b", replicas=(held(0, 5),))
        assert (await late.register(clean_stop_epoch=BrokerEpoch(2))).is_clean
        harness.service = new_controller
        third = FakeBroker(harness, BrokerId(1), "1-c", replicas=(held(0, 5),))
        assert (await third.register(clean_stop_epoch=late.epoch)).broker_epoch == -1
        assert not new_controller.is_leading  # everything is read again
        assert harness.stored_slice()["partitions"][0]["eligibleLeaders"] == [{"id": 1, "epoch": 2}]
        harness.service = superseded
        await forgotten_by_all(harness, 3)
        assert (await third.register(clean_stop_epoch=late.epoch)).is_clean
        assert harness.partition().eligible_leaders == members("1@2")

    run(scenario)


def test_a_life_that_its_controller_stands_by_for_is_not_written_over_meanwhile() -> None:
    """What was read of it was the base of the next write, by a fence of the former life that had
    waited: its epoch and its unclean start were forgotten (I14, seed 28002182)."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        superseded = harness.service
        harness.service = new_controller = harness.another_controller()
        await new_controller.load(ControllerEpoch(2))
        late = FakeBroker(harness, BrokerId(1), "1-b")
        harness.service = superseded
        await late.register()
        harness.service = new_controller
        decisions = new_controller._pools[POOL].decisions
        life = (BrokerId(1), BrokerEpoch(2))
        with pytest.raises(ControllerSuperseded):
            await decisions.slice_store.confirm_broker(decisions.state.brokers[BrokerId(1)])
        with pytest.raises((ControllerSuperseded, Deferred)):
            await decisions.fence([life], "silent")
        stored = harness.store.objects[(BROKER.kind, "shop", "default-1")]["status"]
        assert (stored["brokerEpoch"], stored["incarnation"]) == (4, late.incarnation)

    run(scenario)


@pytest.mark.parametrize("next_write", ["a fence", "its next life"])
def test_what_a_deposed_controller_declared_void_is_not_made_valid_again(next_write: str) -> None:
    """A broker's disk lost a write (S8). The deposed controller stores that, after its successor
    had read the Broker, and says so: the process ends, and its proofs stay on the volume. By what
    the successor knows that life is sound; written back, it would be, and its log would count."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        superseded = harness.service
        new_controller = harness.another_controller()
        await new_controller.load(ControllerEpoch(2))
        failed = harness.brokers[1]
        polling = failed.heartbeat(storage_failed=True)
        await harness.tick()
        assert polling.done() and polling.result().is_storage_failure_recorded
        harness.service = new_controller
        again = FakeBroker(harness, BrokerId(1), "1-b", replicas=(held(0, 5),))
        proof = {"clean_stop_epoch": failed.epoch}
        if next_write == "a fence":
            decisions = new_controller._pools[POOL].decisions
            with pytest.raises((ControllerSuperseded, Deferred)):
                await decisions.fence([(BrokerId(1), failed.epoch)], "silent")
        else:
            assert (await again.register(**proof)).error is ErrorCode.NOT_CONTROLLER
        stored = harness.store.objects[(BROKER.kind, "shop", "default-1")]["status"]
        assert (stored["brokerEpoch"], stored["cleanSince"]) == (2, 3)
        harness.service = superseded
        await forgotten_by_all(harness, 3)  # everything is read again
        assert not (await again.register(**proof)).is_clean

    run(scenario)


def test_a_successor_ends_no_life_that_it_does_not_know_of_yet() -> None:
    """Told to be a former life, it would end, its proof void, although it is the one registered."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        superseded = harness.service
        new_controller = harness.another_controller()
        await new_controller.load(ControllerEpoch(2))
        late = FakeBroker(harness, BrokerId(1), "1-b")
        assert (await late.register(clean_stop_epoch=BrokerEpoch(2))).is_clean
        harness.service = new_controller
        assert (await late.heartbeat()).error is ErrorCode.NOT_CONTROLLER
        assert not new_controller.is_leading  # everything is read again
        harness.service = superseded
        await forgotten_by_all(harness, 3)
        assert (await late.poll_to_the_end()).error is ErrorCode.NONE

    run(scenario)


def test_an_epoch_that_nobody_gave_is_refused_and_not_while_nothing_can_be_read() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        stranger = FakeBroker(harness, BrokerId(1), "1-x", epoch=BrokerEpoch(99))
        harness.store.is_down = True
        assert (await stranger.heartbeat()).error is ErrorCode.REQUEST_TIMED_OUT
        harness.store.is_down = False
        assert (await stranger.heartbeat()).error is ErrorCode.STALE_BROKER_EPOCH
        assert harness.service.is_leading

    run(scenario)


def test_s9_a_clean_start_without_one_replica_is_void_for_it_before_its_epoch_is_stored() -> None:
    """Stripping is durable first: a controller that dies between leaves an older Broker object,
    not a clean one with an entry that proves nothing."""

    async def scenario() -> None:
        harness = await Harness(write_attempts=1).start(3)
        await harness.create(partitions=2)
        kept = ReplicaReport(ORDERS, 0, LeaderEpoch(0), Offset(5), Offset(5))
        harness.store.faults[PARTITION_SLICE.kind] = ["lost"]
        again = FakeBroker(harness, BrokerId(1), "1-b", replicas=(kept,))
        response = await again.register(clean_stop_epoch=BrokerEpoch(2))
        assert response.broker_epoch == -1
        stored = harness.store.objects[(BROKER.kind, "shop", "default-1")]["status"]
        assert stored["brokerEpoch"] == 2
        response = await again.register(clean_stop_epoch=BrokerEpoch(2))
        assert response.is_clean
        state = harness.partition(1)
        assert 1 not in {m.broker_id for m in state.in_sync_replicas + state.eligible_leaders}

    run(scenario)


def test_a_topic_that_a_deposed_controller_made_late_keeps_the_life_that_it_registered_late() -> (
    None
):
    """Its successor, which read before both, takes in slices that name an epoch above the one it
    knows, as those do that are put back after a Broker object was lost (S12)."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        new_controller = harness.another_controller()
        await new_controller.load(ControllerEpoch(2))
        late = FakeBroker(harness, BrokerId(1), "1-b")
        await late.register(clean_stop_epoch=BrokerEpoch(2))
        await late.catch_up()
        harness.brokers[1] = late
        await harness.create()
        assert harness.partition().in_sync_replicas == members("0@1 1@4 2@3")
        harness.service = new_controller
        with pytest.raises(NotController, match="the controller reads all state again"):
            await harness.service.find_slices(POOL, ORDERS)
        assert not new_controller.is_leading
        assert {"id": 1, "epoch": 4} in harness.stored_slice()["partitions"][0]["isr"]

    run(scenario)
