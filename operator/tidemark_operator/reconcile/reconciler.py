"""One pass over one object: observe, plan, apply. Level-triggered, idempotent; knows no kopf.

A pass over an unchanged cluster writes nothing (I21).
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidemark_operator.reconcile.work_queue import WorkKey
from tidemark_operator.runtimes.broker_runtime import BrokerRuntime
from tidemark_operator.stores.object_store import ObjectStore

if TYPE_CHECKING:
    from tidemark_operator.controller.service import ControllerService


@dataclass(frozen=True, slots=True)
class ReconcilerSettings:
    # What the pool `default` is made with, when a Topic needs it: spec fields of a BrokerPool.
    default_pool_spec: dict[str, Any] = field(default_factory=dict)
    # At most one status write per object in this time, the last state always lands.
    status_interval_ms: int = 1000


class Reconciler:
    def __init__(
        self,
        store: ObjectStore,
        controller: "ControllerService",
        runtime: BrokerRuntime,
        *,
        settings: ReconcilerSettings,
    ) -> None:
        self._store = store
        self._controller = controller
        self._runtime = runtime
        self._settings = settings

    async def reconcile(self, key: WorkKey) -> int | None:
        """Returns a delay in ms after which it wants the key again, None when nothing is left to
        wait for. Raises StoreError or OSError when the environment failed."""
        raise NotImplementedError

    async def all_keys(self, namespace: str | None) -> tuple[WorkKey, ...]:
        """Every object there is something to do for: at the start of a term and in sweeps. Also
        the Topics that are gone but have slices left."""
        raise NotImplementedError
