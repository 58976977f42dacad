"""Controllers that compete for one Lease on a rig's store and clock; tests give their ticks."""

from collections.abc import Awaitable, Callable

from tidemark_operator.controller.service import ControllerService
from tidemark_operator.store.lease import ControllerLease, LeaseSettings, nobody_is_terminated
from tidemark_protocol.ids import ControllerEpoch

from tests.support.controller_harness import Harness


class LeaseTime:
    def __init__(self, harness: Harness) -> None:
        self._harness = harness

    def now_ms(self) -> int:
        return self._harness.clock.ms

    def wall_time(self) -> str:
        return "2030-01-01T00:00:00.000000Z"


class WithoutTicks:
    """A ControllerService as the Lease's leader, whose ticks the test gives."""

    def __init__(self, service: ControllerService) -> None:
        self.service = service

    @property
    def is_leading(self) -> bool:
        return self.service.is_leading

    async def take_over(
        self, controller_epoch: ControllerEpoch, *, is_second_opinion: bool
    ) -> None:
        await self.service.load(controller_epoch, is_second_opinion=is_second_opinion)

    async def step_down(self) -> None:
        await self.service.step_down()

    def depose(self) -> None:
        self.service.depose()

    def set_leader_address(self, address: str) -> None:
        self.service.set_leader_address(address)

    def highest_broker_controller_epoch(self) -> ControllerEpoch:
        return self.service.highest_broker_controller_epoch()

    def reason_to_give_way(self) -> str:
        return self.service.reason_to_give_way()


def candidate(
    harness: Harness,
    identity: str,
    *,
    is_holder_terminated: Callable[[str], Awaitable[bool]] = nobody_is_terminated,
) -> tuple[ControllerLease, ControllerService]:
    service = harness.another_controller()
    lease = ControllerLease(
        harness.store,
        identity,
        f"{identity}:8070",
        leader=WithoutTicks(service),
        clock=LeaseTime(harness),
        settings=LeaseSettings(namespace="tidemark"),
        is_holder_terminated=is_holder_terminated,
    )
    return lease, service
