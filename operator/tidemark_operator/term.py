"""A term of leadership: the controller decides, and one worker reconciles every object there is.

What the Lease calls when it is won and lost (lease.Leader), for Kubernetes and for local mode.
Outside a term the work queue is empty and nothing is written.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from tidemark_protocol.ids import ControllerEpoch

from tidemark_operator.controller.service import ControllerService
from tidemark_operator.reconcile.reconciler import Reconciler
from tidemark_operator.reconcile.work_queue import WorkQueue
from tidemark_operator.stores.object_store import StoreError

log = logging.getLogger(__name__)

SWEEP_INTERVAL_S = 300.0


class Term:
    def __init__(
        self,
        controller: ControllerService,
        reconciler: Reconciler,
        queue: WorkQueue,
        *,
        namespace: str | None,
        on_crash: Callable[[BaseException], None],
    ) -> None:
        """`namespace`: None for all. `on_crash`: the worker met a defect of ours."""
        self._controller = controller
        self._reconciler = reconciler
        self._queue = queue
        self._namespace = namespace
        self._on_crash = on_crash
        self._worker: asyncio.Task[None] | None = None

    @property
    def is_leading(self) -> bool:
        return self._controller.is_leading

    def set_leader_address(self, address: str) -> None:
        self._controller.set_leader_address(address)

    def highest_broker_controller_epoch(self) -> ControllerEpoch:
        return self._controller.highest_broker_controller_epoch()

    async def take_over(self, controller_epoch: ControllerEpoch) -> None:
        await self._controller.take_over(controller_epoch)
        self._worker = asyncio.create_task(self._work(), name="reconcile")
        self._worker.add_done_callback(self._worker_ended)

    async def step_down(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await worker  # what it died of went to on_crash
        self._queue.clear()
        await self._controller.step_down()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._queue.work(self._reconciler.reconcile), name="work-queue")
            tasks.create_task(self._sweep(), name="sweep")

    async def _sweep(self) -> None:
        """What no event told of: at the start of a term, and every few minutes."""
        while True:
            try:
                for key in await self._reconciler.all_keys(self._namespace):
                    self._queue.add(key)
                pause_s = SWEEP_INTERVAL_S
            except (StoreError, OSError, TimeoutError) as error:
                log.warning("sweep failed; will try again", extra={"error": str(error)})
                pause_s = 1.0
            await asyncio.sleep(pause_s)

    def _worker_ended(self, worker: asyncio.Task[None]) -> None:
        if not worker.cancelled() and (error := worker.exception()) is not None:
            log.critical("reconcile worker crashed", exc_info=error)
            self._on_crash(error)
