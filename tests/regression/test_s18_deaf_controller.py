"""S18: a controller that reaches the API server but no broker fences everybody and renews for ever.

If more than half of a pool expires at once, the holder gives the Lease away and sits out one term.
If its successor hears nothing of them for a full session either, it fences.
"""

from dataclasses import dataclass

from tidemark_operator.controller.service import ControllerService
from tidemark_operator.store.lease import ControllerLease
from tidemark_protocol.ids import ControllerEpoch

from tests.regression.lease_candidates import candidate
from tests.support.controller_harness import FakeBroker, Harness
from tests.support.waiting import run


@dataclass
class Operators:
    """Two of them; `hears[i]`: whom operator i can be reached by."""

    harness: Harness
    leases: list[ControllerLease]
    services: list[ControllerService]
    hears: list[list[FakeBroker]]

    async def advance(self, ms: int) -> None:
        """Each second the Lease, each tick the leader and the brokers that reach it."""
        for passed in range(0, ms, 500):
            for lease in self.leases:
                if passed % 1000 == 0 or not lease.is_held:
                    await lease.step()
            for _ in range(10):
                self.harness.clock.ms += 50
                for service, heard in zip(self.services, self.hears, strict=True):
                    if not service.is_leading:
                        continue
                    self.harness.service = service
                    await service.tick()
                    for broker in heard:
                        if broker.poll is None or broker.poll.done():
                            await broker.catch_up()

    @property
    def leading(self) -> list[int]:
        return [number for number, service in enumerate(self.services) if service.is_leading]

    def states(self) -> list[str]:
        (leading,) = self.leading
        return [view.state for view in self.services[leading].brokers("shop/default")]


async def two_operators(count: int = 3) -> Operators:
    harness = Harness()
    pairs = [candidate(harness, name) for name in ("one", "two")]
    operators = Operators(harness, [p[0] for p in pairs], [p[1] for p in pairs], [[], []])
    harness.service = operators.services[0]
    await operators.leases[0].step()
    for number in range(count):
        harness.brokers.append(await harness.new_broker(number))
    await harness.create()
    operators.hears = [list(harness.brokers), list(harness.brokers)]
    await operators.advance(1000)
    assert operators.leading == [0]
    return operators


def test_a_deaf_controller_gives_way_and_nobody_is_fenced() -> None:
    async def scenario() -> None:
        operators = await two_operators()
        before = operators.harness.partition()
        operators.hears[0] = []
        await operators.advance(5000)
        assert operators.leading == [1]
        assert operators.states() == ["Active"] * 3
        await operators.advance(10_000)
        assert operators.leading == [1]  # it hears them: nothing to doubt
        assert operators.harness.partition() == before

    run(scenario)


def test_what_two_controllers_saw_for_a_full_session_each_is_true() -> None:
    async def scenario() -> None:
        operators = await two_operators()
        survivor = operators.harness.brokers[2]
        operators.hears = [[survivor], [survivor]]
        await operators.advance(5000)
        assert operators.leading == [1]
        assert operators.states() == ["Active"] * 3
        await operators.advance(3000)
        assert operators.states() == ["Fenced", "Fenced", "Active"]
        assert operators.harness.partition().leader == 2
        await operators.advance(10_000)
        assert operators.leading == [1]  # and it goes on

    run(scenario)


def test_a_controller_alone_judges_twice() -> None:
    async def scenario() -> None:
        operators = await two_operators()
        del operators.leases[1], operators.services[1], operators.hears[1]
        survivor = operators.harness.brokers[2]
        operators.hears = [[survivor]]
        await operators.advance(4000)
        assert operators.leading == []
        await operators.advance(6500)
        assert operators.states() == ["Fenced", "Fenced", "Active"]
        assert operators.services[0].controller_epoch == ControllerEpoch(2)

    run(scenario)


def test_one_silent_broker_of_three_is_no_doubt() -> None:
    async def scenario() -> None:
        operators = await two_operators()
        rest = operators.harness.brokers[1:]
        operators.hears = [rest, rest]
        await operators.advance(3500)
        assert operators.leading == [0]
        assert operators.states() == ["Fenced", "Active", "Active"]

    run(scenario)


def test_a_new_controller_gives_a_full_session_also_to_the_one_that_finds_it_last() -> None:
    """Not the guard saves it: the two others are heard at once."""

    async def scenario() -> None:
        harness = await Harness().start(3)
        await harness.create()
        await harness.service.step_down()
        harness.clock.ms += 60_000
        harness.service = harness.another_controller()
        await harness.service.load(ControllerEpoch(2))
        for broker in harness.brokers:
            broker.controller_epoch, broker.version = ControllerEpoch(-1), -1
        await harness.brokers[0].catch_up()
        await harness.brokers[1].catch_up()
        await harness.advance(2900, *harness.brokers[:2])
        assert [view.state for view in harness.service.brokers("shop/default")] == ["Active"] * 3
        await harness.advance(200, *harness.brokers[:2])
        assert [view.state for view in harness.service.brokers("shop/default")][2] == "Fenced"

    run(scenario)


def test_one_that_is_heard_again_before_the_lease_is_given_away_ends_the_doubt() -> None:
    async def scenario() -> None:
        operators = await two_operators()
        operators.hears[0] = []
        await operators.advance(2500)
        operators.hears[0] = list(operators.harness.brokers)
        await operators.advance(5000)
        assert operators.leading == [0]
        assert operators.states() == ["Active"] * 3

    run(scenario)
