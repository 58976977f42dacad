"""A cluster with one ReplicationAudit, over the real SQLite store."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from tidemark_operator.api.kinds import (
    JOB,
    POD,
    REPLICATION_AUDIT,
    SCHEDULED_SPARK_APPLICATION,
    SPARK_GROUP,
    Object,
    ResourceKind,
)
from tidemark_operator.api.schemas import apply_defaults
from tidemark_operator.reconcile.audit.reconciler import AuditReconciler
from tidemark_operator.reconcile.work_queue import WorkKey
from tidemark_operator.store.object_store import Forbidden, OutcomeUnknown, StoreError
from tidemark_protocol.audit_summary import AuditSummary

from tests.support.audit_objects import ended_job, ended_pod
from tests.support.reconcile_harness import CountingStore

KEY = WorkKey("ReplicationAudit", "shop", "daily")


class ClusterStore(CountingStore):
    """`without_spark`: what asking for SparkApplications raises, None where they can be had;
    `without_schedules`: the same of schedules of them.
    `kept`: a kind whose objects nobody may delete. `lost_status_writes_after`: a kind after
    no status write comes through once one of it was made."""

    without_spark: type[StoreError] | None = None
    without_schedules: type[StoreError] | None = None
    kept: ResourceKind | None = None
    lost_status_writes_after: ResourceKind | None = None
    _loses_status_writes = False

    async def create(self, kind: ResourceKind, item: Object) -> Object:
        self._loses_status_writes |= kind is self.lost_status_writes_after
        return await super().create(kind, item)

    async def replace_status(self, kind: ResourceKind, item: Object) -> Object:
        if self._loses_status_writes and self.lost_status_writes_after is not None:
            raise OutcomeUnknown(f"status of {kind.kind}: no answer")
        return await super().replace_status(kind, item)

    async def list(
        self, kind: ResourceKind, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[Object]:
        self._check_at(kind)
        return await super().list(kind, namespace, labels)

    async def get(self, kind: ResourceKind, namespace: str, name: str) -> Object | None:
        self._check_at(kind)
        return await super().get(kind, namespace, name)

    def _check_at(self, kind: ResourceKind) -> None:
        if kind.group == SPARK_GROUP and self.without_spark is not None:
            raise self.without_spark("no SparkApplications")
        if kind is SCHEDULED_SPARK_APPLICATION and self.without_schedules is not None:
            raise self.without_schedules("no ScheduledSparkApplications")

    async def delete(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> None:
        if kind is self.kept:
            raise Forbidden(f"{kind.plural} cannot be deleted")
        await super().delete(kind, namespace, name, uid=uid, resource_version=resource_version)


class AuditCluster:
    def __init__(self, directory: Path) -> None:
        self.store = ClusterStore(directory / "store.sqlite")
        self.now_ms = 0
        self.reconciler = AuditReconciler(
            self.store, now_ms=lambda: self.now_ms, now_text=lambda: "2026-11-21T06:02:00Z"
        )

    async def apply(self, audit: Object) -> None:
        stored = await self.store.get(REPLICATION_AUDIT, "shop", "daily")
        audit = apply_defaults(audit)
        if stored is None:
            await self.store.create(REPLICATION_AUDIT, audit)
            return
        await self.store.replace(REPLICATION_AUDIT, {**stored, "spec": audit["spec"]})

    async def audit(self) -> Object:
        found = await self.store.get(REPLICATION_AUDIT, "shop", "daily")
        assert found is not None
        return found

    async def status(self) -> dict[str, Any]:
        status: dict[str, Any] = (await self.audit())["status"]
        return status

    async def conditions(self) -> dict[str, tuple[str, str]]:
        conditions = (await self.status())["conditions"]
        return {each["type"]: (each["status"], each["reason"]) for each in conditions}

    async def said(self, condition: str) -> str:
        (said,) = [
            each["message"]
            for each in (await self.status())["conditions"]
            if each["type"] == condition
        ]
        return str(said)

    async def names(self, kind: ResourceKind) -> list[str]:
        return [each["metadata"]["name"] for each in await self.store.list(kind, "shop")]

    async def turn(self, *, again_after_ms: int | None = None) -> None:
        """A pass, another for what its status write brings, and one that finds nothing to do."""
        self.now_ms += 60_000
        for _ in range(2):
            await self.reconciler.reconcile(KEY)
        writes = self.store.writes
        assert await self.reconciler.reconcile(KEY) == again_after_ms
        assert self.store.writes == writes

    async def run_ends(self, job: str, said: str | AuditSummary, **fields: Any) -> None:
        if job in await self.names(JOB):
            stored = await self.store.get(JOB, "shop", job)
            assert stored is not None
            await self.store.replace_status(
                JOB, {**stored, "status": ended_job(job, **fields)["status"]}
            )
        else:
            await self.store.create(JOB, ended_job(job, **fields))
        await self.store.create(POD, ended_pod(job, said))
        await self.turn()


def in_cluster(tmp_path: Path, scenario: Callable[[AuditCluster], Awaitable[None]]) -> None:
    asyncio.run(scenario_of(tmp_path, scenario))


async def scenario_of(tmp_path: Path, scenario: Callable[[AuditCluster], Awaitable[None]]) -> None:
    await scenario(AuditCluster(tmp_path))
