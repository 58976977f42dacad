"""What begins with a term: the controller leads at once, the reconcilers as soon as they can."""

import asyncio

import pytest
from tidemark_operator import leading
from tidemark_operator.leading import LeadingOperator
from tidemark_operator.reconcile.work_queue import WorkKey, WorkQueue
from tidemark_operator.stores.object_store import StoreError
from tidemark_protocol.ids import ControllerEpoch

from tests.unit.controller.control_rig import Rig

KEY = WorkKey("Topic", "shop", "orders")


class SlowToAnswer:
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
    monkeypatch.setattr(leading, "FIRST_SWEEP_RETRY_S", 0)

    async def scenario() -> None:
        crashes: list[BaseException] = []
        reconciler = SlowToAnswer()
        operator = LeadingOperator(Rig().service, reconciler, WorkQueue(), on_crash=crashes.append)
        await operator.take_over(ControllerEpoch(1), is_second_opinion=False)
        assert operator.is_leading
        await asyncio.wait_for(reconciler.is_reconciled.wait(), 10)
        await operator.step_down()
        assert (operator.is_leading, crashes) == (False, [])

    asyncio.run(scenario())
