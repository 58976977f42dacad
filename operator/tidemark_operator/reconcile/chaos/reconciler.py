"""Reconcile one ChaosExperiment: observe, plan, apply. Level-triggered, idempotent."""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from tidemark_operator.api.chaos_experiment import (
    FINALIZER,
    ChaosExperiment,
    ExperimentStatus,
    has_finalizer,
)
from tidemark_operator.api.kinds import (
    BROKER_POOL,
    CHAOS_EXPERIMENT,
    CLUSTER_SCOPE,
    JOB,
    NAMESPACE,
    POD,
    Object,
)
from tidemark_operator.api.objects import Invalid
from tidemark_operator.reconcile.chaos.plan import (
    ChaosAction,
    DeleteHeal,
    ObservedExperiment,
    RemoveFinalizer,
    SetFinalizer,
    StartHeal,
    StartRun,
    StopRun,
    plan_chaos,
)
from tidemark_operator.reconcile.conditions import invalid_condition
from tidemark_operator.reconcile.status import StatusWriter
from tidemark_operator.reconcile.work_queue import WorkKey
from tidemark_operator.resources.chaos_job import (
    EXPERIMENT_LABEL,
    RUN_PODS,
    ChaosJobSettings,
    heal_job,
    heal_name,
    run_job,
    run_name,
)
from tidemark_operator.store.object_store import AlreadyExists, ObjectStore
from tidemark_operator.store.typed_store import TypedStore

log = logging.getLogger(__name__)

STATUS_INTERVAL_MS = 500
ENDED = ("Succeeded", "Failed")


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _utc_text() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class ChaosReconciler:
    def __init__(
        self,
        store: ObjectStore,
        jobs: ChaosJobSettings,
        *,
        now_ms: Callable[[], int] = _monotonic_ms,
        now_text: Callable[[], str] = _utc_text,
    ) -> None:
        self._store = store
        self._objects = TypedStore(store)
        self._jobs = jobs
        self._now_text = now_text
        self._statuses = StatusWriter(
            store, interval_ms=STATUS_INTERVAL_MS, now_ms=now_ms, now_text=now_text
        )

    async def reconcile(self, key: WorkKey) -> int | None:
        """Reconcile an experiment; return a delay in ms after which to come again, or None.

        Raises StoreError.
        """
        experiment = await self._objects.get(ChaosExperiment, key.namespace, key.name)
        if experiment is None:
            return None
        if isinstance(experiment, Invalid):
            problem = invalid_condition(experiment.sentences)
            return await self._statuses.write(experiment, ExperimentStatus(), (problem,))
        if experiment.metadata.is_going and await self._is_namespace_going(key.namespace):
            # Its brokers go too, and no Job can be made any more.
            if experiment.has_finalizer:
                await self._apply(experiment, RemoveFinalizer())
            return None
        plan = plan_chaos(await self._observe(experiment), self._now_text())
        before = [each for each in plan.actions if not isinstance(each, RemoveFinalizer)]
        for action in before:
            await self._apply(experiment, action)
        wait_ms = await self._statuses.write(experiment, plan.fields, plan.conditions)
        if wait_ms is not None:  # the finalizer stays until the status is written
            return wait_ms
        if len(before) < len(plan.actions):
            await self._apply(experiment, RemoveFinalizer())
        return plan.again_ms

    async def all_keys(self, namespaces: tuple[str, ...]) -> tuple[WorkKey, ...]:
        keys = []
        for namespace in namespaces:
            for item in await self._store.list(CHAOS_EXPERIMENT, namespace):
                keys.append(WorkKey(CHAOS_EXPERIMENT.kind, namespace, item["metadata"]["name"]))
        return tuple(keys)

    async def _is_namespace_going(self, name: str) -> bool:
        namespace = await self._store.get(NAMESPACE, CLUSTER_SCOPE, name)
        return namespace is None or "deletionTimestamp" in namespace["metadata"]

    async def _observe(self, experiment: ChaosExperiment) -> ObservedExperiment:
        namespace, name, pool = experiment.namespace, experiment.name, experiment.spec.pool
        pods = await self._store.list(POD, namespace, {EXPERIMENT_LABEL: name, **RUN_PODS})
        return ObservedExperiment(
            experiment=experiment,
            pool=await self._store.get(BROKER_POOL, namespace, pool),
            others=tuple(
                item["metadata"]["name"]
                for item in await self._store.list(CHAOS_EXPERIMENT, namespace)
                if item["metadata"]["name"] != name
                and item["spec"].get("pool") == pool
                and has_finalizer(item)
            ),
            run=await self._store.get(JOB, namespace, run_name(name)),
            heal=await self._store.get(JOB, namespace, heal_name(name)),
            run_pods=tuple(pod["metadata"]["name"] for pod in pods if not _has_ended(pod)),
            run_exit="".join(_exit_of(pod) for pod in pods[-1:]),
        )

    async def _apply(self, experiment: ChaosExperiment, action: ChaosAction) -> None:
        extra = {"experiment": experiment.name, "action": type(action).__name__}
        log.info("chaos action", extra=extra)
        namespace, name = experiment.namespace, experiment.name
        match action:
            case SetFinalizer():
                await self._set_finalizers(experiment, is_held=True)
            case RemoveFinalizer():
                await self._set_finalizers(experiment, is_held=False)
            case StartRun():
                await self._create(run_job(experiment, self._jobs))
            case StartHeal():
                await self._create(heal_job(experiment, self._jobs))
            case StopRun(uid):
                await self._store.delete(JOB, namespace, run_name(name), uid=uid)
            case DeleteHeal(uid):
                await self._store.delete(JOB, namespace, heal_name(name), uid=uid)

    async def _create(self, manifest: Object) -> None:
        try:
            await self._store.create(JOB, manifest)
        except AlreadyExists:
            return  # of a pass whose status write was lost

    async def _set_finalizers(self, experiment: ChaosExperiment, *, is_held: bool) -> None:
        stored = experiment.stored
        others = [each for each in stored["metadata"].get("finalizers", ()) if each != FINALIZER]
        finalizers = [*others, FINALIZER] if is_held else others
        wanted = {**stored, "metadata": {**stored["metadata"], "finalizers": finalizers}}
        experiment.record_written(await self._store.replace(CHAOS_EXPERIMENT, wanted))


def _has_ended(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ENDED


def _exit_of(pod: Object) -> str:
    """Return how the container of a pod ended, or why its pod did, or an empty string."""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated")
        if ended is not None:
            return f"its pod ended with exit code {ended.get('exitCode')} ({ended.get('reason')})"
    reason, message = status.get("reason", ""), status.get("message", "")
    return f"its pod ended: {reason} {message}".strip() if reason else ""
