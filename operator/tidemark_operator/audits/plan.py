"""What is due for a ReplicationAudit: decided from the whole observation. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidemark_protocol.audit_summary import AuditSummary, Incident

from tidemark_operator.audits.jobs import cron_job_manifest, job_manifest
from tidemark_operator.audits.pods import KEPT_RUNS, audit_name_of, single_run_name
from tidemark_operator.audits.runs import MAX_REPORTED_INCIDENTS, Run, status_fields
from tidemark_operator.audits.spark_applications import (
    scheduled_spark_application_manifest,
    spark_application_manifest,
)
from tidemark_operator.audits.spec import AuditSpec, SparkSpec
from tidemark_operator.manifests.names import TEMPLATE_ANNOTATION
from tidemark_operator.reconcile.conditions import Condition
from tidemark_operator.stores.object_store import (
    CRON_JOB,
    JOB,
    SCHEDULED_SPARK_APPLICATION,
    SPARK_APPLICATION,
    Object,
    ResourceKind,
)

SPARK_CONDITION = "SparkApplications"


class SparkOperator(Enum):
    """Whether SparkApplications can be had here."""

    PRESENT = "present"
    NO_CRDS = "no CRDs"
    NO_RIGHTS = "no rights"


@dataclass(frozen=True, slots=True)
class ObservedAudit:
    spec: AuditSpec
    status: Mapping[str, Any]  # as stored
    cron_job: Object | None  # of the audit's name, whoever made it
    jobs: tuple[Object, ...]
    spark_operator: SparkOperator
    scheduled_application: Object | None  # of the audit's name, whoever made it
    applications: tuple[Object, ...]
    runs: tuple[Run, ...]  # of those Jobs and applications that ended, oldest first

    @property
    def spark(self) -> SparkSpec | None:
        """What runs are SparkApplications by; None: they are Jobs."""
        return self.spec.spark if self.spark_operator is SparkOperator.PRESENT else None


@dataclass(frozen=True, slots=True)
class Create:
    kind: ResourceKind
    manifest: Object


@dataclass(frozen=True, slots=True)
class Replace:
    kind: ResourceKind
    manifest: Object


@dataclass(frozen=True, slots=True)
class Delete:
    kind: ResourceKind
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ReportIncident:
    run: str
    incident: Incident


AuditAction = Create | Replace | Delete


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """The actions are idempotent; incidents get their Events before the status says so."""

    actions: tuple[AuditAction, ...]
    reports: tuple[ReportIncident, ...]
    fields: dict[str, Any]
    conditions: tuple[Condition, ...]
    awaits_applications: bool  # some may end, and no watch will say so


def plan_audit(observed: ObservedAudit) -> AuditPlan:
    actions = (*_schedule_actions(observed), *_single_run_actions(observed))
    fields = status_fields(observed.status, observed.runs, observed.spec.history_limit)
    if observed.spec.schedule is None and not observed.spec.is_suspended:
        fields["startedGeneration"] = observed.spec.generation
    reports = _reports(observed)
    if reports:
        ids = [*(observed.status.get("reportedIncidents") or ()), *(r.incident.id for r in reports)]
        fields["reportedIncidents"] = ids[-MAX_REPORTED_INCIDENTS:]
    conditions = _conditions(observed, fields)
    return AuditPlan(actions, reports, fields, conditions, _awaits_applications(observed, actions))


def _awaits_applications(observed: ObservedAudit, actions: tuple[AuditAction, ...]) -> bool:
    ended = {run.name for run in observed.runs}
    return (
        (observed.spark is not None and observed.spec.schedule is not None)
        or any(each["metadata"]["name"] not in ended for each in observed.applications)
        or any(isinstance(each, Create) and each.kind is SPARK_APPLICATION for each in actions)
    )


def _schedule_actions(observed: ObservedAudit) -> tuple[AuditAction, ...]:
    """At most one kind of schedule is wanted; one of the other kind that is ours goes."""
    spec, spark = observed.spec, observed.spark
    cron_job = application = None
    if spec.schedule is not None and spark is not None:
        application = scheduled_spark_application_manifest(spec, spark)
    elif spec.schedule is not None:
        cron_job = cron_job_manifest(spec)
    return (
        *_schedule_action(spec, CRON_JOB, observed.cron_job, cron_job),
        *_schedule_action(
            spec, SCHEDULED_SPARK_APPLICATION, observed.scheduled_application, application
        ),
    )


def _schedule_action(
    spec: AuditSpec, kind: ResourceKind, stored: Object | None, wanted: Object | None
) -> tuple[AuditAction, ...]:
    if stored is None:
        return () if wanted is None else (Create(kind, wanted),)
    if audit_name_of(stored) != spec.name:
        return ()  # somebody else's, who is told so by the condition
    if wanted is None:
        return (Delete(kind, spec.name, stored["metadata"]["uid"]),)
    annotations = stored["metadata"].get("annotations") or {}
    digest = wanted["metadata"]["annotations"][TEMPLATE_ANNOTATION]
    if annotations.get(TEMPLATE_ANNOTATION) == digest:
        return ()
    if _is_refused(stored):  # for good: the Spark operator does not look at it again
        return (Delete(kind, spec.name, stored["metadata"]["uid"]), Create(kind, wanted))
    wanted["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
    return (Replace(kind, wanted),)


def _is_refused(schedule: Object) -> bool:
    status = schedule.get("status") or {}
    return bool(status.get("scheduleState") == "FailedValidation")


def _single_run_actions(observed: ObservedAudit) -> tuple[AuditAction, ...]:
    """Runs of a schedule are the schedule's to remove; single ones are removed here, once the
    status has what they said."""
    spec, spark = observed.spec, observed.spark
    if spec.schedule is not None:
        return ()
    actions: list[AuditAction] = []
    by_name = {
        item["metadata"]["name"]: (kind, item)
        for kind, items in ((JOB, observed.jobs), (SPARK_APPLICATION, observed.applications))
        for item in items
    }
    is_started = observed.status.get("startedGeneration") == spec.generation
    if not is_started and not spec.is_suspended and single_run_name(spec) not in by_name:
        if spark is None:
            actions.append(Create(JOB, job_manifest(spec)))
        else:
            actions.append(Create(SPARK_APPLICATION, spark_application_manifest(spec, spark)))
    recorded = {entry["run"] for entry in observed.status.get("history") or ()}
    for run in [run for run in observed.runs if run.name in recorded][:-KEPT_RUNS]:
        kind, item = by_name[run.name]
        actions.append(Delete(kind, run.name, item["metadata"]["uid"]))
    return tuple(actions)


def _reports(observed: ObservedAudit) -> tuple[ReportIncident, ...]:
    recorded = {entry["run"] for entry in observed.status.get("history") or ()}
    reported = set(observed.status.get("reportedIncidents") or ())
    reports = []
    for run in observed.runs:
        if run.name in recorded or run.summary is None:
            continue
        for incident in run.summary.incidents:
            if incident.id not in reported:
                reported.add(incident.id)
                reports.append(ReportIncident(run.name, incident))
    return tuple(reports)


def _conditions(observed: ObservedAudit, fields: Mapping[str, Any]) -> tuple[Condition, ...]:
    here = (_ready(observed), *_spark_applications(observed))
    last = observed.runs[-1] if observed.runs else None
    newest = (fields.get("history") or [None])[0]
    if last is None or newest is None or newest["run"] != last.name:
        return (*here, *_kept(observed.status))
    if last.summary is None:
        completed = Condition("Completed", False, "NoVerdict", last.trouble)
        return (*here, completed, *_kept(observed.status, besides="Completed"))
    return (*here, *_verdict_conditions(last.name, last.summary))


def _ready(observed: ObservedAudit) -> Condition:
    spec = observed.spec
    kind, stored = CRON_JOB, observed.cron_job
    if observed.spark is not None:
        kind, stored = SCHEDULED_SPARK_APPLICATION, observed.scheduled_application
    if spec.schedule is not None and stored and audit_name_of(stored) != spec.name:
        taken = f"the {kind.kind} {spec.name} is not of this audit: rename or remove one of them"
        return Condition("Ready", False, "NameTaken", taken)
    if spec.schedule is not None and stored and _is_refused(stored):
        said = f"the Spark operator refuses the schedule: {stored['status'].get('reason', '')}"
        return Condition("Ready", False, "InvalidSchedule", said)
    if spec.is_suspended:
        return Condition("Ready", False, "Suspended", "spec.suspend is true: nothing is started")
    if spec.schedule is not None:
        return Condition("Ready", True, "Scheduled", f"at {spec.schedule}, by a {kind.kind}")
    return Condition("Ready", True, "SingleRun", f"the run is {single_run_name(spec)}")


def _spark_applications(observed: ObservedAudit) -> tuple[Condition, ...]:
    """What became of the wish for several pods; nothing where there is none."""
    spark = observed.spec.spark
    if spark is None:
        return ()
    wish = "spec.spark asks for SparkApplications (sparkoperator.k8s.io/v1beta2)"
    match observed.spark_operator:
        case SparkOperator.PRESENT:
            used = f"new runs are SparkApplications; executors of each: {spark.executors}"
            return (Condition(SPARK_CONDITION, True, "Used", used),)
        case SparkOperator.NO_CRDS:
            reason = "NotInstalled"
            found = (
                "the cluster does not know them: new runs are Jobs of one pod."
                " Install the Spark operator, or leave out spec.spark"
            )
        case SparkOperator.NO_RIGHTS:
            reason = "NotAllowed"
            found = (
                "the operator may not list them: new runs are Jobs of one pod."
                " Install the chart with sparkApplications: true, or leave out spec.spark"
            )
    return (Condition(SPARK_CONDITION, False, reason, f"{wish}; {found}"),)


def _verdict_conditions(run: str, summary: AuditSummary) -> tuple[Condition, ...]:
    reason = "".join(word.capitalize() for word in summary.verdict.lower().split("-"))
    is_read = summary.verdict != "NO-SOURCE"
    kept = [rule for rule in summary.rules if rule.outcome == "kept"]
    broken = [rule.rule for rule in summary.rules if rule.outcome == "violated"]
    unknown = [rule.rule for rule in summary.rules if rule.outcome not in ("kept", "violated")]
    met = summary.verdict == "PASS"
    loss = summary.verdict == "LOSS"
    sufficient = is_read and summary.verdict != "INCONCLUSIVE" and not unknown
    return (
        Condition("Completed", is_read, reason, f"{run}: {summary.sentence}"),
        Condition(
            "SLOMet",
            met,
            reason,
            f"{len(kept)} rules kept, violated: {', '.join(broken) or 'none'}",
        ),
        Condition(
            "EvidenceSufficient",
            sufficient,
            reason,
            f"coverage {100 * summary.coverage:.2f} %,"
            f" not evaluated: {', '.join(unknown) or 'none'}",
        ),
        Condition(
            "LossDetected",
            loss,
            reason,
            f"at least {summary.lost_records} committed records lost"
            if loss
            else "no evidence of a lost record",
        ),
    )


def _kept(status: Mapping[str, Any], besides: str = "") -> tuple[Condition, ...]:
    """What former runs said stays said until another one ends."""
    return tuple(
        Condition(each["type"], each["status"] == "True", each["reason"], each["message"])
        for each in status.get("conditions") or ()
        if each["type"] not in ("Ready", SPARK_CONDITION, besides)
    )
