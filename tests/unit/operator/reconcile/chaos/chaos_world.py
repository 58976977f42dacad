"""A namespace with a pool and ChaosExperiments, over the real SQLite store.

The store deletes at once; of an object with finalizers the API server only says that it is going.
So `delete` here sets the time of deletion, and lets it go when no finalizer is left.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tidemark_operator.api.kinds import (
    BROKER_POOL,
    CHAOS_EXPERIMENT,
    CLUSTER_SCOPE,
    JOB,
    NAMESPACE,
    POD,
    Object,
)
from tidemark_operator.api.schemas import apply_defaults
from tidemark_operator.reconcile.chaos.reconciler import ChaosReconciler
from tidemark_operator.reconcile.work_queue import WorkKey
from tidemark_operator.resources.chaos_job import RUN_PODS, ChaosJobSettings, job_labels

from tests.support.reconcile_harness import CountingStore

NOW = "2026-11-27T22:00:00Z"
SETTINGS = ChaosJobSettings("image:1", "IfNotPresent", "tidemark-chaos-runner", "system", {})


def experiment_object(name: str = "one", **spec: Any) -> Object:
    return {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "ChaosExperiment",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"rounds": 1, "faults": [{"kind": "kill"}], **spec},
    }


class ChaosCluster:
    def __init__(self, directory: Path) -> None:
        self.store = CountingStore(directory / "store.sqlite")
        self.now_ms = 0
        self.restart_controller()

    def restart_controller(self) -> None:
        """Another process: it knows what is stored, and nothing else."""
        self._reconciler = ChaosReconciler(
            self.store, SETTINGS, now_ms=lambda: self.now_ms, now_text=lambda: NOW
        )

    async def make_pool(self, **labels: str) -> None:
        pool = {
            "apiVersion": "tidemark.dev/v1alpha1",
            "kind": "BrokerPool",
            "metadata": {"name": "default", "namespace": "shop", "labels": labels},
            "spec": {},
        }
        stored = await self.store.get(BROKER_POOL, "shop", "default")
        if stored is None:
            await self.store.create(BROKER_POOL, pool)
        else:
            metadata = {**stored["metadata"], "labels": labels}
            await self.store.replace(BROKER_POOL, {**stored, "metadata": metadata})

    async def make_allowing_pool(self) -> None:
        await self.make_pool(**{"tidemark.dev/chaos": "allowed"})

    async def apply(self, item: Object) -> None:
        await self.store.create(CHAOS_EXPERIMENT, apply_defaults(item))

    async def delete(self, name: str = "one") -> None:
        stored = await self.experiment(name)
        metadata = {**stored["metadata"], "deletionTimestamp": NOW}
        await self.store.replace(CHAOS_EXPERIMENT, {**stored, "metadata": metadata})

    async def make_namespace(self, *, is_going: bool = False) -> None:
        metadata: Object = {"name": "shop", "namespace": CLUSTER_SCOPE}
        if is_going:
            metadata["deletionTimestamp"] = NOW
        await self.store.delete(NAMESPACE, CLUSTER_SCOPE, "shop")
        await self.store.create(
            NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        )

    async def make_again(self, name: str = "one") -> None:
        """Delete the object and create another one of the same name, before a collector runs."""
        await self.store.delete(CHAOS_EXPERIMENT, "shop", name)
        await self.apply(experiment_object(name))

    async def turn(self, name: str = "one") -> int | None:
        """Passes until one changes nothing, as watch events bring them about."""
        key, again_ms = WorkKey("ChaosExperiment", "shop", name), None
        for _ in range(6):
            self.now_ms += 60_000
            writes = self.store.writes
            again_ms = await self._reconciler.reconcile(key)
            if self.store.writes == writes:
                return again_ms
        raise AssertionError("passes go on without an end")

    async def experiment(self, name: str = "one") -> Object:
        found = await self.store.get(CHAOS_EXPERIMENT, "shop", name)
        assert found is not None
        return found

    async def status(self, name: str = "one") -> dict[str, Any]:
        status: dict[str, Any] = (await self.experiment(name))["status"]
        return status

    async def conditions(self, name: str = "one") -> dict[str, tuple[str, str]]:
        found = (await self.status(name))["conditions"]
        return {each["type"]: (each["status"], each["reason"]) for each in found}

    async def said(self, type_: str, name: str = "one") -> str:
        found = (await self.status(name))["conditions"]
        return str(next(each["message"] for each in found if each["type"] == type_))

    async def finalizers(self, name: str = "one") -> list[str]:
        return list((await self.experiment(name))["metadata"].get("finalizers") or ())

    async def jobs(self) -> list[str]:
        return [each["metadata"]["name"] for each in await self.store.list(JOB, "shop")]

    async def job(self, name: str) -> Object:
        found = await self.store.get(JOB, "shop", name)
        assert found is not None
        return found

    # What the Job and its pod do.

    async def runner_writes(self, name: str = "one", **fields: Any) -> None:
        stored = await self.experiment(name)
        status = {**stored.get("status", {}), **fields}
        await self.store.replace_status(CHAOS_EXPERIMENT, {**stored, "status": status})

    async def job_ends(self, name: str, *, is_good: bool = True) -> None:
        condition = {
            "type": "Complete" if is_good else "Failed",
            "status": "True",
            "reason": "" if is_good else "BackoffLimitExceeded",
            "message": "" if is_good else "the limit was reached",
        }
        stored = await self.job(name)
        await self.store.replace_status(JOB, {**stored, "status": {"conditions": [condition]}})

    async def make_run_pod(self, status: Object, name: str = "one") -> None:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-run-abcde",
                "namespace": "shop",
                "labels": {**job_labels(name), **RUN_PODS},
            },
            "status": status,
        }
        await self.store.create(POD, pod)

    async def delete_run_pod(self, name: str = "one") -> None:
        await self.store.delete(POD, "shop", f"{name}-run-abcde")


def in_cluster(tmp_path: Path, scenario: Callable[[ChaosCluster], Awaitable[None]]) -> None:
    async def run() -> None:
        await scenario(ChaosCluster(tmp_path))

    asyncio.run(run())
