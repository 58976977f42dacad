"""Run controller and reconcilers while this operator leads.

Losing the Lease stops both within the process; standing by needs neither. Keys that come while
standing by are dropped, because each term begins with all of them.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tidemark_protocol.ids import BrokerId, ControllerEpoch

from tidemark_operator.api.kinds import POD
from tidemark_operator.controller.service import ControllerService
from tidemark_operator.reconcile.work_queue import WorkKey, WorkQueue
from tidemark_operator.store.object_store import ObjectStore, StoreError

log = logging.getLogger(__name__)

# What a watch missed (a deletion during its gap) waits this long at most.
SWEEP_INTERVAL_S = 300
FIRST_SWEEP_RETRY_S = 1  # at the beginning of a term, until the store answers
# Later sweeps find little, and take their time.
SWEEP_CHUNK_KEYS = 50
SWEEP_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class BrokerFailure:
    """A pod was deleted, or its broker ended: a reason to probe, no decision."""

    pool: str  # namespace/name
    broker_id: BrokerId
    reason: str


class KeyReconciler(Protocol):
    async def reconcile(self, key: WorkKey) -> int | None:
        """Reconcile a key; return after how many ms to come again, or None."""
        ...

    async def all_keys(self, namespace: str | None) -> tuple[WorkKey, ...]: ...


class LeadershipRunner:
    """The `Leader` of the Lease."""

    def __init__(
        self,
        controller: ControllerService,
        reconciler: KeyReconciler,
        queue: WorkQueue,
        *,
        on_crash: Callable[[BaseException], None],
    ) -> None:
        """Create it; `on_crash` is called for a defect of the worker, which must end the process.

        Without the worker nothing would be reconciled.
        """
        self._on_crash = on_crash
        self._controller = controller
        self._reconciler = reconciler
        self._queue = queue
        self._worker: asyncio.Task[None] | None = None

    @property
    def is_leading(self) -> bool:
        return self._controller.is_leading

    async def take_over(
        self, controller_epoch: ControllerEpoch, *, is_second_opinion: bool
    ) -> None:
        await self._controller.take_over(controller_epoch, is_second_opinion=is_second_opinion)
        self._queue.clear()
        self._worker = asyncio.create_task(self._reconcile(), name="reconcile")
        self._worker.add_done_callback(self._worker_ended)

    async def _reconcile(self) -> None:
        """Reconcile everything once, then what changes."""
        while True:
            if await self._try_sweep(pause_s=0):
                break
            await asyncio.sleep(FIRST_SWEEP_RETRY_S)
        await self._queue.work(self._reconciler.reconcile)

    async def step_down(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
        self._queue.clear()
        await self._controller.step_down()

    def depose(self) -> None:
        self._controller.depose()

    def _worker_ended(self, worker: asyncio.Task[None]) -> None:
        if not worker.cancelled() and (error := worker.exception()) is not None:
            log.critical("the reconcile worker crashed", exc_info=error)
            self._on_crash(error)

    def set_leader_address(self, address: str) -> None:
        self._controller.set_leader_address(address)

    def highest_broker_controller_epoch(self) -> ControllerEpoch:
        return self._controller.highest_broker_controller_epoch()

    def reason_to_give_way(self) -> str:
        return self._controller.reason_to_give_way()

    def on_key(self, key: WorkKey, requested_by: str = "") -> None:
        if self.is_leading:
            self._queue.add(key, requested_by)

    def on_trouble(self, trouble: BrokerFailure) -> None:
        if self.is_leading:
            self._controller.suspect(trouble.pool, trouble.broker_id, trouble.reason)

    async def _sweep(self, pause_s: float) -> None:
        keys = await self._reconciler.all_keys(None)
        for first in range(0, len(keys), SWEEP_CHUNK_KEYS):
            for key in keys[first : first + SWEEP_CHUNK_KEYS]:
                self._queue.add_swept(key)
            await asyncio.sleep(pause_s)

    async def sweep_forever(self, chance: random.Random) -> None:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S * chance.uniform(0.9, 1.1))
            if self.is_leading:
                await self._try_sweep(SWEEP_PAUSE_S)

    async def _try_sweep(self, pause_s: float) -> bool:
        try:
            await self._sweep(pause_s)
        except StoreError as error:
            log.warning("resync failed, the next one is scheduled", extra={"error": str(error)})
            return False
        return True


async def is_pod_terminated(store: ObjectStore, namespace: str, identity: str) -> bool:
    """Return whether the operator of that identity (`<pod name>/<pod UID>`) is surely dead (S19).

    A live read finds no such pod, another one of that name, or one whose container ended. False if
    in doubt, and for an identity that is not ours.
    """
    name, _, uid = identity.partition("/")
    if not uid:
        return False
    try:
        pod = await store.get(POD, namespace, name)
    except StoreError:
        return False
    if pod is None or pod["metadata"]["uid"] != uid:
        return True
    status = pod.get("status", {})
    if status.get("phase") in ("Succeeded", "Failed"):
        return True
    containers = status.get("containerStatuses") or ()
    return bool(containers) and all("terminated" in each.get("state", {}) for each in containers)
