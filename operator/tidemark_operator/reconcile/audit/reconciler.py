"""Reconcile one ReplicationAudit: observe, plan, apply. Level-triggered, idempotent."""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from tidemark_operator.api.kinds import (
    CRON_JOB,
    EVENT,
    JOB,
    POD,
    REPLICATION_AUDIT,
    SCHEDULED_SPARK_APPLICATION,
    SPARK_APPLICATION,
    Object,
    ResourceKind,
)
from tidemark_operator.api.objects import Invalid
from tidemark_operator.api.replication_audit import AuditStatus, ReplicationAudit
from tidemark_operator.reconcile.audit.plan import (
    AuditAction,
    Create,
    Delete,
    ObservedAudit,
    Replace,
    ReportIncident,
    plan_audit,
    trouble_conditions,
)
from tidemark_operator.reconcile.audit.runs import finished_runs
from tidemark_operator.reconcile.audit.schedule import Schedule, schedule_of
from tidemark_operator.reconcile.audit.spark_availability import SparkOperator, is_spoken_of
from tidemark_operator.reconcile.status import StatusWriter
from tidemark_operator.reconcile.work_queue import WorkKey
from tidemark_operator.resources.audit_pod import AUDIT_LABEL, audit_labels
from tidemark_operator.resources.pod_template import USER_ID
from tidemark_operator.store.object_store import (
    AlreadyExists,
    Forbidden,
    NotFound,
    ObjectStore,
    Rejected,
)
from tidemark_operator.store.typed_store import TypedStore

log = logging.getLogger(__name__)

STATUS_INTERVAL_MS = 1000
REJECTED_INTERVAL_MS = 30_000
# SparkApplications are not watched: kopf cannot begin to when their CRD is installed later.
APPLICATIONS_INTERVAL_MS = 15_000
MAX_EVENT_MESSAGE = 1000


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def _utc_text() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class AuditReconciler:
    def __init__(
        self,
        store: ObjectStore,
        *,
        user_id: int | None = USER_ID,
        now_ms: Callable[[], int] = _monotonic_ms,
        now_text: Callable[[], str] = _utc_text,
    ) -> None:
        self._store = store
        self._user_id = user_id
        self._objects = TypedStore(store)
        self._now_text = now_text
        self._statuses = StatusWriter(
            store, interval_ms=STATUS_INTERVAL_MS, now_ms=now_ms, now_text=now_text
        )
        # For the metrics, as last seen.
        self.statuses: dict[WorkKey, AuditStatus] = {}
        self.schedules: dict[WorkKey, Schedule] = {}

    async def reconcile(self, key: WorkKey) -> int | None:
        """Reconcile an audit; return a delay in ms after which to come again, or None.

        Raises StoreError.
        """
        audit = await self._objects.get(ReplicationAudit, key.namespace, key.name)
        if audit is None or audit.metadata.is_going:
            self.statuses.pop(key, None)
            self.schedules.pop(key, None)
            return None  # the collector takes its Jobs
        if isinstance(audit, Invalid):
            return await self._say_trouble(audit, "InvalidSpec", "; ".join(audit.sentences))
        self._record_schedule(key, schedule_of(audit.spec, audit.metadata.creation_timestamp or ""))
        observed = await self._observe(audit)
        plan = plan_audit(observed)
        if plan.announced:
            await self._statuses.write(audit, AuditStatus(), plan.announced, at_once=True)
        try:
            for action in plan.actions:
                what = f"{type(action).__name__} {action.kind.kind}"
                log.info("audit action", extra={"audit": key.name, "action": what})
                await self._apply(audit.namespace, action)
        except Rejected as error:  # by the API server: only the user can change that
            return await self._say_trouble(audit, "Refused", str(error)) or REJECTED_INTERVAL_MS
        for report in plan.reports:
            await self._report(audit, report)
        wait_ms = await self._statuses.write(audit, plan.fields, plan.conditions)
        self.statuses[key] = audit.status
        return wait_ms or (APPLICATIONS_INTERVAL_MS if plan.awaits_applications else None)

    def _record_schedule(self, key: WorkKey, schedule: Schedule | None) -> None:
        if schedule is None:
            self.schedules.pop(key, None)
        else:
            self.schedules[key] = schedule

    async def _say_trouble(
        self, audit: ReplicationAudit | Invalid[ReplicationAudit], reason: str, sentence: str
    ) -> int | None:
        conditions = trouble_conditions(audit.status.known_conditions, reason, sentence)
        return await self._statuses.write(audit, AuditStatus(), conditions)

    async def all_keys(self, namespace: str | None) -> tuple[WorkKey, ...]:
        audits = await self._store.list(REPLICATION_AUDIT, namespace)
        return tuple(
            WorkKey(REPLICATION_AUDIT.kind, each["metadata"]["namespace"], each["metadata"]["name"])
            for each in audits
        )

    async def _observe(self, audit: ReplicationAudit) -> ObservedAudit:
        labels = {AUDIT_LABEL: audit.name}
        jobs = await self._store.list(JOB, audit.namespace, labels)
        spark_operator, applications, scheduled = await self._spark(audit)
        pods = await self._store.list(POD, audit.namespace, labels) if jobs or applications else []
        return ObservedAudit(
            audit=audit,
            cron_job=await self._store.get(CRON_JOB, audit.namespace, audit.name),
            jobs=tuple(jobs),
            spark_operator=spark_operator,
            scheduled_application=scheduled,
            applications=tuple(applications),
            runs=finished_runs(jobs, applications, pods),
            user_id=self._user_id,
        )

    async def _spark(
        self, audit: ReplicationAudit
    ) -> tuple[SparkOperator, list[Object], Object | None]:
        """Return the audit's SparkApplications and its schedule, if both kinds are installed."""
        applications: list[Object] = []
        if not is_spoken_of(audit):
            return SparkOperator.NOT_REQUESTED, applications, None
        try:
            labels = {AUDIT_LABEL: audit.name}
            applications = await self._store.list(SPARK_APPLICATION, audit.namespace, labels)
            kind = SCHEDULED_SPARK_APPLICATION
            scheduled = await self._store.get(kind, audit.namespace, audit.name)
        except NotFound:
            return SparkOperator.NO_CRDS, applications, None
        except Forbidden:
            return SparkOperator.NO_RIGHTS, applications, None
        return SparkOperator.PRESENT, applications, scheduled

    async def _apply(self, namespace: str, action: AuditAction) -> None:
        match action:
            case Create(kind, manifest):
                await self._create(kind, manifest)
            case Replace(kind, manifest):
                await self._store.replace(kind, manifest)
            case Delete(kind, name, uid):
                await self._store.delete(kind, namespace, name, uid=uid)

    async def _create(self, kind: ResourceKind, manifest: Object) -> None:
        try:
            await self._store.create(kind, manifest)
        except AlreadyExists:
            return  # of a pass whose status write was lost

    async def _report(self, audit: ReplicationAudit, report: ReportIncident) -> None:
        metadata, incident = audit.metadata, report.incident
        now = self._now_text()
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{metadata.name}.{incident.id}",
                "namespace": metadata.namespace,
                "labels": audit_labels(metadata.name),
            },
            "involvedObject": {
                "apiVersion": REPLICATION_AUDIT.api_version,
                "kind": REPLICATION_AUDIT.kind,
                "name": metadata.name,
                "namespace": metadata.namespace,
                "uid": metadata.uid,
            },
            "type": "Normal" if incident.severity in ("info", "minor") else "Warning",
            "reason": incident.rule,
            "message": f"{incident.subject}: {incident.sentence}"[:MAX_EVENT_MESSAGE],
            "source": {"component": "tidemark-operator"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        await self._create(EVENT, event)
