"""L1: a live valid member leads again, whatever was met on the way; no decision is ever lost."""

import asyncio
from dataclasses import replace

import pytest
from tidemark_operator.api.kinds import BROKER, PARTITION_SLICE
from tidemark_operator.controller.core.placement import place
from tidemark_operator.store.lease import ControllerLease, LeaseSettings
from tidemark_operator.store.object_store import StoreError
from tidemark_protocol.ids import BrokerId, ControllerEpoch

from tests.support.controller_harness import POOL, FakeBroker, FakeStore, Harness
from tests.support.controller_values import members
from tests.support.waiting import run


def test_a_deposed_controllers_late_election_met_by_a_config_change_is_settled() -> None:
    """The late write made a leader of broker 2, which its successor knows to be dead. The
    successor meets it while it changes the topic's config, and nothing else happens."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.kill(harness.brokers[2])
        await harness.advance(200, *harness.brokers[:2])
        (state,) = harness.stored_slice()["partitions"]
        late = dict(
            state,
            leader=2,
            leaderBrokerEpoch=3,
            leaderEpoch=state["leaderEpoch"] + 1,
            partitionEpoch=state["partitionEpoch"] + 1,
            isr=[{"id": 0, "epoch": 1}, {"id": 2, "epoch": 3}],
        )
        harness.store.touch(PARTITION_SLICE, "orders-0", partitions=[late])
        await harness.service.update_topic(
            POOL, replace(harness.topic_state(), config={"retention.ms": "1000"})
        )
        await harness.advance(200, *harness.brokers[:2])
        assert harness.partition().leader == 0
        assert harness.partition().in_sync_replicas == members("0@1")

    run(scenario)


def test_a_slice_whose_creation_was_cut_off_is_led_by_who_lives_when_it_is_found() -> None:
    async def scenario() -> None:
        harness = await Harness(write_attempts=1).start(3)
        harness.store.faults[PARTITION_SLICE.kind] = ["landed"]
        with pytest.raises(StoreError):
            await harness.create()
        await harness.kill(harness.brokers[0])  # the slice names it, and is not known yet
        await harness.advance(200, *harness.brokers[1:])
        ids = [broker.broker_id for broker in harness.brokers]
        await harness.service.create_topic(POOL, harness.topic_state(), place(1, 3, ids))
        await harness.advance(200, *harness.brokers[1:])
        assert harness.partition().leader in (1, 2)

    run(scenario)


def test_a_broker_object_that_says_nothing_is_written_anew_by_its_registration() -> None:
    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        harness.store.touch(BROKER, "default-1", status={"brokerEpoch": "many"})
        again = FakeBroker(harness, BrokerId(1), "1-b")
        assert (await again.register()).broker_epoch == 4
        harness.store.touch(BROKER, "default-1", status={"brokerEpoch": "many"})
        await harness.service.step_down()
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        third = FakeBroker(harness, BrokerId(1), "1-c")
        assert (await third.register()).broker_epoch == 5  # its volume knows of 4
        stored = harness.store.objects[(BROKER.kind, "shop", "default-1")]["status"]
        assert stored["brokerEpoch"] == 5

    run(scenario)


class SlowLeader:
    """Its take-over hangs in its second half, when the controller leads already."""

    def __init__(self) -> None:
        self.is_leading = False
        self.is_whole = False
        self.hangs = True

    async def take_over(
        self, controller_epoch: ControllerEpoch, *, is_second_opinion: bool
    ) -> None:
        self.is_leading = True
        if self.hangs:
            await asyncio.Event().wait()
        self.is_whole = True

    async def step_down(self) -> None:
        self.is_leading = self.is_whole = False

    def depose(self) -> None:
        self.is_leading = False

    def set_leader_address(self, address: str) -> None:
        return None

    def highest_broker_controller_epoch(self) -> ControllerEpoch:
        return ControllerEpoch(-1)

    def reason_to_give_way(self) -> str:
        return ""


class FrozenClock:
    def now_ms(self) -> int:
        return 0

    def wall_time(self) -> str:
        return "2030-01-01T00:00:00.000000Z"


def test_a_take_over_cut_short_is_taken_back_and_made_again_whole() -> None:
    async def scenario() -> None:
        leader = SlowLeader()
        lease = ControllerLease(
            FakeStore(),
            "one",
            "one:8070",
            leader=leader,
            clock=FrozenClock(),
            settings=LeaseSettings(namespace="tidemark", take_over_limit_ms=20),
        )
        await lease.step()
        assert (lease.is_held, leader.is_leading) == (False, False)
        leader.hangs = False
        await lease.step()
        assert (lease.is_held, leader.is_whole) == (True, True)

    run(scenario)
