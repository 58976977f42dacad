"""The Lease: who leads, observed renewals, and the controller epoch (S16, S19, S21)."""

import asyncio

import pytest
from tidemark_operator.api.kinds import BROKER, LEASE, Object, ResourceKind
from tidemark_operator.store.lease import (
    CONTROLLER_ADDRESS_ANNOTATION,
    CONTROLLER_EPOCH_ANNOTATION,
    ControllerLease,
    LeaseSettings,
)
from tidemark_operator.store.object_store import StoreError
from tidemark_protocol.ids import ControllerEpoch

from tests.support.controller_harness import FakeStore, evaluate
from tests.support.waiting import run

SETTINGS = LeaseSettings(namespace="tidemark", renew_interval_ms=20)


class FakeLeaseClock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def wall_time(self) -> str:
        return f"2030-01-01T00:00:{self.ms // 1000:02}.000000Z"


class FakeLeader:
    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.is_leading = False
        self.address = ""
        self.highest = ControllerEpoch(-1)
        self.doubt = ""
        self.second_opinions: list[bool] = []
        self.has_read_all = asyncio.Event()
        self.has_read_all.set()
        self.cannot_read: StoreError | None = None

    async def take_over(
        self, controller_epoch: ControllerEpoch, *, is_second_opinion: bool
    ) -> None:
        self.epochs.append(controller_epoch)
        self.second_opinions.append(is_second_opinion)
        await self.has_read_all.wait()
        if self.cannot_read is not None:
            raise self.cannot_read
        self.is_leading = True

    async def step_down(self) -> None:
        self.is_leading = False

    def depose(self) -> None:
        self.is_leading = False

    def set_leader_address(self, address: str) -> None:
        self.address = address

    def highest_broker_controller_epoch(self) -> ControllerEpoch:
        return self.highest

    def reason_to_give_way(self) -> str:
        return self.doubt


class Pair:
    """Two candidates on one store and one clock."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.clock = FakeLeaseClock()
        self.terminated: set[str] = set()
        self.leaders = [FakeLeader(), FakeLeader()]
        self.leases = [self.lease(number) for number in (0, 1)]

    def lease(self, number: int) -> ControllerLease:
        async def is_terminated(identity: str) -> bool:
            return identity in self.terminated

        return ControllerLease(
            self.store,
            f"operator-{number}",
            f"10.0.0.{number}:8070",
            leader=self.leaders[number],
            clock=self.clock,
            settings=SETTINGS,
            is_holder_terminated=is_terminated,
        )

    def stored(self) -> Object:
        return self.store.objects[(LEASE.kind, "tidemark", "tidemark-controller")]

    async def step(self, *numbers: int, ms: int = 0) -> None:
        self.clock.ms += ms
        for number in numbers:
            await self.leases[number].step()


def test_the_first_to_come_leads_and_the_epoch_is_written_before_it_acts() -> None:
    async def scenario() -> None:
        pair = Pair()
        await pair.step(0, 1)
        assert (pair.leaders[0].epochs, pair.leaders[1].epochs) == ([1], [])
        annotations = pair.stored()["metadata"]["annotations"]
        assert annotations[CONTROLLER_EPOCH_ANNOTATION] == "1"
        assert annotations[CONTROLLER_ADDRESS_ANNOTATION] == "10.0.0.0:8070"
        assert pair.stored()["spec"]["holderIdentity"] == "operator-0"

    run(scenario)


def test_a_standby_names_the_leader() -> None:
    async def scenario() -> None:
        pair = Pair()
        await pair.step(0, 1)
        assert pair.leaders[1].address == "10.0.0.0:8070"

    run(scenario)


def test_a_standby_waits_a_whole_duration_without_an_observed_renewal() -> None:
    async def scenario() -> None:
        pair = Pair()
        await pair.step(0, 1)
        await pair.step(0, ms=1000)
        await pair.step(1, ms=1500)  # observes that renewal now
        await pair.step(1, ms=3999)
        assert pair.leaders[1].epochs == []
        await pair.step(1, ms=1)
        assert pair.leaders[1].epochs == [2]
        assert pair.stored()["spec"]["leaseTransitions"] == 2

    run(scenario)


def test_the_written_time_of_a_renewal_decides_nothing() -> None:
    """S21: clocks of machines differ; a renewal is what we saw change."""

    async def scenario() -> None:
        pair = Pair()
        await pair.step(0, 1)
        pair.store.objects[(LEASE.kind, "tidemark", "tidemark-controller")]["spec"]["renewTime"] = (
            "1999-01-01T00:00:00.000000Z"
        )
        await pair.step(1, ms=3000)
        assert pair.leaders[1].epochs == []

    run(scenario)


def test_a_holder_that_cannot_renew_stops_before_any_standby_can_start() -> None:
    async def scenario() -> None:
        pair = Pair()
        await pair.step(0, 1)
        pair.store.is_down = True
        await pair.step(0, ms=2900)
        assert pair.leaders[0].is_leading
        await pair.step(0, ms=100)
        assert not pair.leaders[0].is_leading
        pair.store.is_down = False
        await pair.step(1, ms=900)
        assert pair.leaders[1].epochs == []
        await pair.step(1, ms=100)
        assert pair.leaders[1].epochs == [2]

    run(scenario)


def test_a_holder_does_not_wait_for_a_renewal_until_its_successor_leads() -> None:
    """It waited for as long as if it had been renewed just before."""

    async def never(kind: ResourceKind, item: Object) -> Object:
        pair.clock.ms += 100
        return await asyncio.Event().wait() and item

    async def scenario() -> None:
        await pair.step(0, 1)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(pair.store, "replace", never)
            async with asyncio.timeout(2):
                await pair.step(0, ms=2900)
        assert not pair.leaders[0].is_leading

    pair = Pair()
    run(scenario)


def test_a_renewal_that_is_answered_late_counts_from_when_it_was_sent() -> None:
    async def late(kind: ResourceKind, item: Object) -> Object:
        pair.clock.ms += 2990
        return await replace(kind, item)

    async def scenario() -> None:
        await pair.step(0)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(pair.store, "replace", late)
            assert await pair.leases[0].step() == 10
        await pair.step(0, ms=10)
        assert not pair.leaders[0].is_leading

    pair = Pair()
    replace = pair.store.replace
    run(scenario)


def test_a_holder_that_slept_past_its_lease_stops_without_asking() -> None:
    async def scenario() -> None:
        pair = Pair()
        await pair.step(0, 1)
        await pair.step(0, ms=60_000)
        assert not pair.leaders[0].is_leading

    run(scenario)


def test_a_released_lease_is_taken_at_once() -> None:
    async def scenario() -> None:
        pair = Pair()
        await pair.step(0, 1)
        await pair.leases[0].release()
        assert pair.stored()["spec"]["holderIdentity"] == ""
        await pair.step(1)
        assert pair.leaders[1].epochs == [2]

    run(scenario)


def test_the_lease_of_a_terminated_holder_is_taken_at_once() -> None:
    async def scenario() -> None:
        pair = Pair()
        await pair.step(0, 1)
        pair.terminated.add("operator-0")
        await pair.step(1)
        assert pair.leaders[1].epochs == [2]

    run(scenario)


def test_the_deposed_holder_notices_at_its_next_renewal() -> None:
    async def scenario() -> None:
        pair = Pair()
        await pair.step(0, 1)
        pair.terminated.add("operator-0")
        await pair.step(1)
        await pair.step(0)
        assert not pair.leaders[0].is_leading
        assert pair.leaders[1].is_leading

    run(scenario)


def test_every_acquisition_raises_the_epoch_also_by_the_same_holder() -> None:
    async def scenario() -> None:
        pair = Pair()
        await pair.step(0)
        await pair.leases[0].release()
        await pair.step(0)
        pair.leases[0] = pair.lease(0)  # the same identity, a new process
        await pair.step(0)
        assert pair.leaders[0].epochs == [1, 2, 3]

    run(scenario)


def test_s16_a_deleted_lease_does_not_restart_the_epoch() -> None:
    async def scenario() -> None:
        pair = Pair()
        broker = {
            "metadata": {"namespace": "shop", "name": "default-0"},
            "status": {"controllerEpoch": 40},
        }
        await pair.store.create(BROKER, broker)
        await pair.step(0)
        assert pair.leaders[0].epochs == [41]

    run(scenario)


def test_s16_the_epoch_rises_above_what_brokers_report() -> None:
    async def scenario() -> None:
        pair = Pair()
        pair.leaders[0].highest = ControllerEpoch(17)
        await pair.step(0)
        assert pair.leaders[0].epochs == [18]

    run(scenario)


def test_s16_a_holder_that_hears_of_a_later_epoch_acquires_anew_above_it() -> None:
    async def scenario() -> None:
        pair = Pair()
        await pair.step(0)
        pair.leaders[0].highest = ControllerEpoch(17)
        await pair.step(0, ms=1000)
        assert not pair.leaders[0].is_leading
        await pair.step(0)
        assert pair.leaders[0].epochs == [1, 18]

    run(scenario)


def test_a_renewal_of_unknown_outcome_that_landed_keeps_the_lease() -> None:
    async def scenario() -> None:
        pair = Pair()
        await pair.step(0)
        pair.store.faults["Lease"] = ["landed"]
        await pair.step(0, ms=1000)
        await pair.step(0, ms=500)
        assert pair.leaders[0].is_leading
        assert pair.leaders[0].epochs == [1]

    run(scenario)


def test_two_that_reach_for_it_at_once_do_not_both_get_it() -> None:
    async def scenario() -> None:
        pair = Pair()
        await asyncio.gather(pair.leases[0].step(), pair.leases[1].step())
        assert sum(leader.is_leading for leader in pair.leaders) == 1

    run(scenario)


def test_a_leader_that_found_a_later_controllers_write_gives_the_lease_up() -> None:
    async def scenario() -> None:
        pair = Pair()
        await pair.step(0)
        pair.leaders[0].is_leading = False
        await pair.step(0, ms=1000)
        assert not pair.leases[0].is_held

    run(scenario)


def test_the_end_of_run_steps_down_and_releases() -> None:
    async def scenario() -> None:
        pair = Pair()
        running = asyncio.create_task(pair.leases[0].run())
        for _ in range(20):
            await asyncio.sleep(0)
        assert pair.leaders[0].is_leading
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert not pair.leaders[0].is_leading
        assert pair.stored()["spec"]["holderIdentity"] == ""

    run(scenario)


def test_s18_a_holder_in_doubt_gives_way_and_its_successor_knows_that_it_judges() -> None:
    async def scenario() -> None:
        pair = Pair()
        await pair.step(0, 1)
        pair.leaders[0].doubt = "hears nobody"
        await pair.step(0, ms=1000)
        assert not pair.leaders[0].is_leading
        assert pair.stored()["spec"]["holderIdentity"] == ""
        await pair.step(0, ms=500)
        assert pair.leaders[0].epochs == [1]  # sits out
        await pair.step(1)
        assert (pair.leaders[1].epochs, pair.leaders[1].second_opinions) == ([2], [True])

    run(scenario)


def test_s18_the_term_after_the_second_opinion_is_an_ordinary_one() -> None:
    async def scenario() -> None:
        pair = Pair()
        await pair.step(0, 1)
        pair.leaders[0].doubt = "hears nobody"
        await pair.step(0, 1, ms=1000)
        pair.leaders[0].doubt = ""
        await pair.leases[1].release()
        await pair.step(0)  # another has had its term: it may come again
        assert (pair.leaders[0].epochs, pair.leaders[0].second_opinions) == ([1, 3], [False, False])

    run(scenario)


def test_s18_with_nobody_else_the_second_opinion_is_its_own() -> None:
    async def scenario() -> None:
        pair = Pair()
        await pair.step(0)
        pair.leaders[0].doubt = "hears nobody"
        await pair.step(0, ms=1000)
        await pair.step(0, ms=1999)
        assert not pair.leaders[0].is_leading
        await pair.step(0, ms=1)
        assert (pair.leaders[0].epochs, pair.leaders[0].second_opinions) == ([1, 2], [False, True])

    run(scenario)


def test_s18_a_lease_that_could_not_be_given_away_runs_out() -> None:
    async def scenario() -> None:
        pair = Pair()
        await pair.step(0, 1)
        pair.leaders[0].doubt = "hears nobody"
        pair.store.faults[LEASE.kind] = ["lost"]
        await pair.step(0, ms=1000)
        assert not pair.leaders[0].is_leading
        await pair.step(1, ms=2900)
        assert pair.leaders[1].epochs == []
        await pair.step(1, ms=100)
        assert pair.leaders[1].epochs == [2]

    run(scenario)


def test_the_lease_is_renewed_while_its_holder_takes_over_however_long_that_takes() -> None:
    async def scenario() -> None:
        pair = Pair()
        pair.leaders[0].has_read_all.clear()
        await pair.step(0, 1)
        for _ in range(10):
            await pair.step(0, 1, ms=1000)  # ten seconds: more than two durations
        assert (pair.leaders[0].epochs, pair.leaders[1].epochs) == ([1], [])
        assert pair.leases[0].is_held
        pair.leaders[0].has_read_all.set()
        await pair.step(0)
        assert pair.leaders[0].is_leading

    run(scenario)


def test_a_lease_lost_in_the_middle_of_taking_over_ends_that() -> None:
    async def scenario() -> None:
        pair = Pair()
        pair.leaders[0].has_read_all.clear()
        await pair.step(0, 1)
        pair.terminated.add("operator-0")
        await pair.step(1)
        await pair.step(0, ms=1000)
        pair.leaders[0].has_read_all.set()
        await pair.step(0)
        assert [leader.is_leading for leader in pair.leaders] == [False, True]
        assert pair.leaders[0].epochs == [1]

    run(scenario)


def test_who_cannot_read_what_is_stored_lets_another_try_at_once() -> None:
    async def scenario() -> None:
        pair = Pair()
        pair.leaders[0].cannot_read = StoreError("the store is down")
        await pair.step(0, 1)
        assert (pair.leaders[0].is_leading, pair.leases[0].is_held) == (False, False)
        assert pair.leaders[1].epochs == [2]

    run(scenario)


def test_the_end_of_run_in_the_middle_of_taking_over_releases() -> None:
    async def scenario() -> None:
        pair = Pair()
        pair.leaders[0].has_read_all.clear()
        running = asyncio.create_task(pair.leases[0].run())
        await evaluate()
        assert pair.leaders[0].epochs == [1]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        pair.leaders[0].has_read_all.set()
        await asyncio.sleep(0)
        assert not pair.leaders[0].is_leading
        assert pair.stored()["spec"]["holderIdentity"] == ""

    run(scenario)
