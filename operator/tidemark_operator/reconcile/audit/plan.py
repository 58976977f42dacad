"""Plan what is due for a ReplicationAudit, from the complete observation."""

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace
from tidemark_protocol.audit_summary import AuditSummary, Incident

from tidemark_operator.api.kinds import (
    CRON_JOB,
    JOB,
    SCHEDULED_SPARK_APPLICATION,
    SPARK_APPLICATION,
    Object,
    ResourceKind,
)
from tidemark_operator.api.objects import ConditionStatus
from tidemark_operator.api.replication_audit import AuditStatus, ReplicationAudit, SparkSpec
from tidemark_operator.reconcile.audit.runs import (
    MAX_REPORTED_INCIDENTS,
    Run,
    is_without_source,
    status_fields,
)
from tidemark_operator.reconcile.audit.spark_availability import (
    OUT_OF_REACH,
    SPARK_CONDITION,
    SparkOperator,
    is_out_of_reach,
    may_be_used,
    spark_conditions,
    used_condition,
)
from tidemark_operator.reconcile.conditions import Condition
from tidemark_operator.resources.audit_job import cron_job_manifest, job_manifest
from tidemark_operator.resources.audit_pod import RETAINED_RUNS, audit_name_of, single_run_name
from tidemark_operator.resources.names import TEMPLATE_ANNOTATION
from tidemark_operator.resources.pod_template import USER_ID
from tidemark_operator.resources.spark_application import (
    scheduled_spark_application_manifest,
    spark_application_manifest,
)


@dataclass(frozen=True, slots=True)
class ObservedAudit:
    audit: ReplicationAudit
    cron_job: Object | None  # of the audit's name, with any owner
    jobs: tuple[Object, ...]
    spark_operator: SparkOperator
    scheduled_application: Object | None  # of the audit's name, with any owner
    applications: tuple[Object, ...]
    runs: tuple[Run, ...]  # of those Jobs and applications that ended, oldest first
    user_id: int | None = USER_ID  # of the pods to create; None: the platform assigns one

    @property
    def spark(self) -> SparkSpec | None:
        """Return the Spark settings of runs; None: they are Jobs."""
        return self.audit.spec.spark if self.spark_operator is SparkOperator.PRESENT else None

    @property
    def is_spark_out_of_reach(self) -> bool:
        return is_out_of_reach(self.audit.status, self.spark_operator)


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
    """A plan; its actions are idempotent, and incidents get their Events before the status."""

    announced: tuple[Condition, ...]  # what the status must say before the actions, if any
    actions: tuple[AuditAction, ...]
    reports: tuple[ReportIncident, ...]
    fields: AuditStatus
    conditions: tuple[Condition, ...]
    awaits_applications: bool  # some may end, and no watch will say so


def plan_audit(observed: ObservedAudit) -> AuditPlan:
    actions = (*_schedule_actions(observed), *_single_run_actions(observed))
    audit, spec = observed.audit, observed.audit.spec
    fields = status_fields(audit.status, observed.runs, spec.history_limit)
    is_startable = not spec.is_suspended and not observed.is_spark_out_of_reach
    if spec.schedule is None and is_startable:
        fields = replace(fields, started_generation=audit.metadata.generation)
    reports = _reports(observed)
    if reports:
        ids = (*(audit.status.reported_incidents or ()), *(r.incident.id for r in reports))
        fields = replace(fields, reported_incidents=ids[-MAX_REPORTED_INCIDENTS:])
    conditions = _conditions(observed, fields)
    awaits_applications = _awaits_applications(observed, actions)
    announced = _announced(observed)
    return AuditPlan(announced, actions, reports, fields, conditions, awaits_applications)


def trouble_conditions(
    stored: Iterable[ConditionStatus], reason: str, sentence: str
) -> tuple[Condition, ...]:
    """Return a Ready condition with the problem; what is known of runs stays."""
    return (Condition("Ready", False, reason, sentence), *_retained(stored, besides=("Ready",)))


def _announced(observed: ObservedAudit) -> tuple[Condition, ...]:
    """Return a condition to store before the first SparkApplication is created.

    One whose status was not written would be forgotten when the right to it is lost.
    """
    if observed.spark is None or may_be_used(observed.audit.status):
        return ()
    here = used_condition(observed.spark)
    return (here, *_retained(observed.audit.status.known_conditions, besides=(SPARK_CONDITION,)))


def _awaits_applications(observed: ObservedAudit, actions: tuple[AuditAction, ...]) -> bool:
    ended = {run.name for run in observed.runs}
    return (
        (observed.spark is not None and observed.audit.spec.schedule is not None)
        or observed.is_spark_out_of_reach
        or any(each["metadata"]["name"] not in ended for each in observed.applications)
        or any(isinstance(each, Create) and each.kind is SPARK_APPLICATION for each in actions)
    )


def _schedule_actions(observed: ObservedAudit) -> tuple[AuditAction, ...]:
    """Return the actions for the schedule.

    At most one kind of schedule is wanted. One of the other kind that is ours is deleted first: if
    it may not be deleted, no second one is created.
    """
    audit, spark = observed.audit, observed.spark
    cron_job = application = None
    if audit.spec.schedule is not None and spark is not None:
        application = scheduled_spark_application_manifest(audit, spark, observed.user_id)
    elif audit.spec.schedule is not None and not observed.is_spark_out_of_reach:
        cron_job = cron_job_manifest(audit, observed.user_id)
    of_jobs = _schedule_action(audit.name, CRON_JOB, observed.cron_job, cron_job)
    of_applications = _schedule_action(
        audit.name, SCHEDULED_SPARK_APPLICATION, observed.scheduled_application, application
    )
    return (*of_jobs, *of_applications) if cron_job is None else (*of_applications, *of_jobs)


def _schedule_action(
    name: str, kind: ResourceKind, stored: Object | None, wanted: Object | None
) -> tuple[AuditAction, ...]:
    if stored is None:
        return () if wanted is None else (Create(kind, wanted),)
    if audit_name_of(stored) != name:
        return ()  # somebody else's, who is told so by the condition
    if wanted is None:
        return (Delete(kind, name, stored["metadata"]["uid"]),)
    annotations = stored["metadata"].get("annotations") or {}
    digest = wanted["metadata"]["annotations"][TEMPLATE_ANNOTATION]
    if annotations.get(TEMPLATE_ANNOTATION) == digest:
        return ()
    if _is_rejected(stored):  # for good: the Spark operator does not look at it again
        return (Delete(kind, name, stored["metadata"]["uid"]), Create(kind, wanted))
    wanted["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
    return (Replace(kind, wanted),)


def _is_rejected(schedule: Object) -> bool:
    status = schedule.get("status") or {}
    return bool(status.get("scheduleState") == "FailedValidation")


def _single_run_actions(observed: ObservedAudit) -> tuple[AuditAction, ...]:
    """Return the actions for single runs.

    A schedule deletes its own runs; single ones are deleted here, once the status has their
    results.
    """
    audit, spark = observed.audit, observed.spark
    if audit.spec.schedule is not None:
        return ()
    actions: list[AuditAction] = []
    by_name = {
        item["metadata"]["name"]: (kind, item)
        for kind, items in ((JOB, observed.jobs), (SPARK_APPLICATION, observed.applications))
        for item in items
    }
    is_due = (
        audit.status.started_generation != audit.metadata.generation
        and not audit.spec.is_suspended
        and not observed.is_spark_out_of_reach
    )
    if is_due and single_run_name(audit) not in by_name:
        if spark is None:
            actions.append(Create(JOB, job_manifest(audit, observed.user_id)))
        else:
            manifest = spark_application_manifest(audit, spark, observed.user_id)
            actions.append(Create(SPARK_APPLICATION, manifest))
    recorded = {entry.run for entry in observed.audit.status.history or ()}
    for run in [run for run in observed.runs if run.name in recorded][:-RETAINED_RUNS]:
        kind, item = by_name[run.name]
        actions.append(Delete(kind, run.name, item["metadata"]["uid"]))
    return tuple(actions)


def _reports(observed: ObservedAudit) -> tuple[ReportIncident, ...]:
    recorded = {entry.run for entry in observed.audit.status.history or ()}
    reported = set(observed.audit.status.reported_incidents or ())
    reports = []
    for run in observed.runs:
        if run.name in recorded or run.summary is None:
            continue
        for incident in run.summary.incidents:
            if incident.id not in reported:
                reported.add(incident.id)
                reports.append(ReportIncident(run.name, incident))
    return tuple(reports)


def _conditions(observed: ObservedAudit, fields: AuditStatus) -> tuple[Condition, ...]:
    spark = spark_conditions(observed.audit, observed.spark_operator, len(observed.applications))
    stored = observed.audit.status.known_conditions
    here = (_ready(observed), *spark)
    last = observed.runs[-1] if observed.runs else None
    newest = next(iter(fields.history or ()), None)
    if last is None or newest is None or newest.run != last.name:
        return (*here, *_retained(stored, besides=("Ready", SPARK_CONDITION)))
    if last.summary is None or is_without_source(last.summary):
        # Nothing was judged: a loss that was found stays found.
        reason, said = (
            ("NoVerdict", last.trouble)
            if last.summary is None
            else ("NoSource", f"{last.name}: {last.summary.sentence}")
        )
        completed = Condition("Completed", False, reason, said)
        besides = ("Ready", SPARK_CONDITION, "Completed")
        return (*here, completed, *_retained(stored, besides=besides))
    return (*here, *_verdict_conditions(last.name, last.summary))


def _ready(observed: ObservedAudit) -> Condition:
    audit, spec = observed.audit, observed.audit.spec
    if observed.is_spark_out_of_reach:
        said = f"no run is started: see condition {SPARK_CONDITION}"
        return Condition("Ready", False, OUT_OF_REACH, said)
    kind, stored = CRON_JOB, observed.cron_job
    if observed.spark is not None:
        kind, stored = SCHEDULED_SPARK_APPLICATION, observed.scheduled_application
    if spec.schedule is not None and stored and audit_name_of(stored) != audit.name:
        taken = f"the {kind.kind} {audit.name} is not of this audit: rename or remove one of them"
        return Condition("Ready", False, "NameTaken", taken)
    if spec.schedule is not None and stored and _is_rejected(stored):
        said = f"the Spark operator rejected the schedule: {stored['status'].get('reason', '')}"
        return Condition("Ready", False, "InvalidSchedule", said)
    if spec.is_suspended:
        return Condition("Ready", False, "Suspended", "spec.suspend is true: no run is started")
    if spec.schedule is not None:
        return Condition(
            "Ready", True, "Scheduled", f"scheduled at {spec.schedule} by a {kind.kind}"
        )
    return Condition("Ready", True, "SingleRun", f"the run is {single_run_name(audit)}")


def _verdict_conditions(run: str, summary: AuditSummary) -> tuple[Condition, ...]:
    reason = "".join(word.capitalize() for word in summary.verdict.lower().split("-"))
    kept = [rule for rule in summary.rules if rule.outcome == "kept"]
    broken = [rule.rule for rule in summary.rules if rule.outcome == "violated"]
    unknown = [rule.rule for rule in summary.rules if rule.outcome not in ("kept", "violated")]
    met = summary.verdict == "PASS"
    loss = summary.verdict == "LOSS"
    sufficient = summary.verdict != "INCONCLUSIVE" and not unknown
    return (
        Condition("Completed", True, reason, f"{run}: {summary.sentence}"),
        Condition(
            "SLOMet",
            met,
            reason,
            f"{len(kept)} rules met, violated: {', '.join(broken) or 'none'}",
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
            else "no evidence of lost records",
        ),
    )


def _retained(
    stored: Iterable[ConditionStatus], *, besides: tuple[str, ...]
) -> tuple[Condition, ...]:
    """Return the stored conditions; those of runs stay until another run ends."""
    return tuple(
        Condition(each.type, each.status == "True", each.reason, each.message)
        for each in stored
        if each.type not in besides
    )
