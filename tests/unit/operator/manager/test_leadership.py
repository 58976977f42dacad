"""What begins with a term: the controller leads at once, the reconcilers as soon as they can."""

import asyncio
import random

import pytest
from tidemark_operator.api.kinds import BROKER
from tidemark_operator.controller import service
from tidemark_operator.manager import leadership
from tidemark_operator.manager.leadership import LeadershipRunner
from tidemark_operator.reconcile.work_queue import WorkKey, WorkQueue
from tidemark_operator.store.object_store import StoreError
from tidemark_protocol.controller_messages import RegisterRequest
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, ControllerEpoch

from tests.support.controller_harness import FakeBroker, Harness, evaluate
from tests.support.waiting import run

KEY = WorkKey("Topic", "shop", "orders")


class SlowToResponse:
    """The store behind it answers the third time only."""

    def __init__(self) -> None:
        self.sweeps = 0
        self.is_reconciled = asyncio.Event()

    async def reconcile(self, key: WorkKey) -> int | None:
        assert key == KEY
        self.is_reconciled.set()
        return None

    async def all_keys(self, namespace: str | None) -> tuple[WorkKey, ...]:
        self.sweeps += 1
        if self.sweeps < 3:
            raise StoreError("no answer in 5000 ms")
        return (KEY,)


def test_a_store_that_is_too_slow_for_the_first_sweep_keeps_nobody_from_leading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leadership, "FIRST_SWEEP_RETRY_S", 0)

    async def scenario() -> None:
        crashes: list[BaseException] = []
        reconciler = SlowToResponse()
        operator = LeadershipRunner(
            Harness().service, reconciler, WorkQueue(), on_crash=crashes.append
        )
        await operator.take_over(ControllerEpoch(1), is_second_opinion=False)
        assert operator.is_leading
        await asyncio.wait_for(reconciler.is_reconciled.wait(), 10)
        await operator.step_down()
        assert (operator.is_leading, crashes) == (False, [])

    asyncio.run(scenario())


class ManyKeys:
    """Nothing happens to any of them."""

    def __init__(self, count: int) -> None:
        self.keys = tuple(WorkKey("Topic", "shop", f"t{number}") for number in range(count))

    async def reconcile(self, key: WorkKey) -> int | None:
        return None

    async def all_keys(self, namespace: str | None) -> tuple[WorkKey, ...]:
        return self.keys


def test_later_sweeps_add_few_keys_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership, "SWEEP_INTERVAL_S", 0)
    pauses: list[float] = []
    queue = WorkQueue()

    async def scenario() -> None:
        controller = Harness().service
        operator = LeadershipRunner(controller, ManyKeys(120), queue, on_crash=lambda _: None)
        await controller.load(ControllerEpoch(1))

        async def pause(seconds: float) -> None:
            pauses.append(seconds)
            added.append(len(queue))
            if len(added) > 3:
                raise asyncio.CancelledError

        added: list[int] = []
        monkeypatch.setattr(asyncio, "sleep", pause)
        with pytest.raises(asyncio.CancelledError):
            await operator.sweep_forever(random.Random(1))
        assert added == [0, 50, 100, 120]
        assert pauses[1:] == [leadership.SWEEP_PAUSE_S] * 3

    asyncio.run(scenario())


def test_pools_that_register_at_once_are_no_more_than_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "MAX_POOLS", 2)

    async def scenario() -> None:
        harness, looked_up = Harness(), asyncio.Event()

        async def rack_of(request: RegisterRequest) -> str:
            await looked_up.wait()
            return "east"

        harness.service = harness.another_controller(rack_of=rack_of)
        await harness.service.load(ControllerEpoch(1))
        early = [
            asyncio.create_task(
                FakeBroker(harness, BrokerId(0), "0-a").register(pool=f"shop/p{number}")
            )
            for number in range(3)
        ]
        await evaluate()
        looked_up.set()
        errors = [(await each).error for each in early]
        assert errors == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]
        assert len(harness.service.pools()) == 2

    run(scenario)


def test_a_registration_that_outlives_its_term_leaves_nothing_behind_in_the_next() -> None:
    """The rack is asked of the store: a new term may have begun by then (S16)."""

    async def scenario() -> None:
        harness, looked_up = Harness(), asyncio.Event()

        async def rack_of(request: RegisterRequest) -> str:
            await looked_up.wait()
            return "east"

        harness.service = harness.another_controller(rack_of=rack_of)
        await harness.service.load(ControllerEpoch(1))
        broker = FakeBroker(harness, BrokerId(0), "0-a")
        early = asyncio.create_task(broker.register())
        await evaluate()
        await harness.service.step_down()
        looked_up.set()
        assert (await early).error == ErrorCode.NOT_CONTROLLER
        assert harness.service.pools() == ()
        await harness.service.load(ControllerEpoch(2))
        assert (await broker.register()).error == ErrorCode.NONE
        stored = harness.store.objects[(BROKER.kind, "shop", "default-0")]
        assert stored["status"]["controllerEpoch"] == 2

    run(scenario)
