"""What is due for a ReplicationAudit: decided from the whole observation. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_protocol.audit_summary import AuditSummary, Incident

from tidemark_operator.audits.jobs import (
    KEPT_JOBS,
    cron_job_manifest,
    job_manifest,
    single_job_name,
)
from tidemark_operator.audits.runs import MAX_REPORTED_INCIDENTS, Run, status_fields
from tidemark_operator.audits.spec import AuditSpec
from tidemark_operator.manifests.names import TEMPLATE_ANNOTATION
from tidemark_operator.reconcile.conditions import Condition
from tidemark_operator.stores.object_store import Object


@dataclass(frozen=True, slots=True)
class ObservedAudit:
    spec: AuditSpec
    status: Mapping[str, Any]  # as stored
    cron_job: Object | None
    jobs: tuple[Object, ...]
    runs: tuple[Run, ...]  # of those Jobs that ended, oldest first


@dataclass(frozen=True, slots=True)
class CreateCronJob:
    manifest: Object


@dataclass(frozen=True, slots=True)
class ReplaceCronJob:
    manifest: Object


@dataclass(frozen=True, slots=True)
class DeleteCronJob:
    uid: str


@dataclass(frozen=True, slots=True)
class CreateJob:
    manifest: Object


@dataclass(frozen=True, slots=True)
class DeleteJob:
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ReportIncident:
    run: str
    incident: Incident


AuditAction = CreateCronJob | ReplaceCronJob | DeleteCronJob | CreateJob | DeleteJob


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """The actions are idempotent; incidents get their Events before the status says so."""

    actions: tuple[AuditAction, ...]
    reports: tuple[ReportIncident, ...]
    fields: dict[str, Any]
    conditions: tuple[Condition, ...]


def plan_audit(observed: ObservedAudit) -> AuditPlan:
    actions = (*_schedule_actions(observed), *_single_run_actions(observed))
    fields = status_fields(observed.status, observed.runs, observed.spec.history_limit)
    if observed.spec.schedule is None and not observed.spec.is_suspended:
        fields["startedGeneration"] = observed.spec.generation
    reports = _reports(observed)
    if reports:
        ids = [*(observed.status.get("reportedIncidents") or ()), *(r.incident.id for r in reports)]
        fields["reportedIncidents"] = ids[-MAX_REPORTED_INCIDENTS:]
    return AuditPlan(actions, reports, fields, _conditions(observed, fields))


def _schedule_actions(observed: ObservedAudit) -> tuple[AuditAction, ...]:
    spec, cron_job = observed.spec, observed.cron_job
    if spec.schedule is None:
        return () if cron_job is None else (DeleteCronJob(cron_job["metadata"]["uid"]),)
    wanted = cron_job_manifest(spec)
    if cron_job is None:
        return (CreateCronJob(wanted),)
    annotations = cron_job["metadata"].get("annotations") or {}
    digest = wanted["metadata"]["annotations"][TEMPLATE_ANNOTATION]
    if annotations.get(TEMPLATE_ANNOTATION) == digest:
        return ()
    wanted["metadata"]["resourceVersion"] = cron_job["metadata"]["resourceVersion"]
    return (ReplaceCronJob(wanted),)


def _single_run_actions(observed: ObservedAudit) -> tuple[AuditAction, ...]:
    """Jobs of a schedule are the CronJob's to remove; a single run's are removed here, once the
    status has what they said."""
    spec = observed.spec
    if spec.schedule is not None:
        return ()
    actions: list[AuditAction] = []
    names = {job["metadata"]["name"] for job in observed.jobs}
    is_started = observed.status.get("startedGeneration") == spec.generation
    if not is_started and not spec.is_suspended and single_job_name(spec) not in names:
        actions.append(CreateJob(job_manifest(spec)))
    recorded = {entry["run"] for entry in observed.status.get("history") or ()}
    by_name = {job["metadata"]["name"]: job for job in observed.jobs}
    for run in [run for run in observed.runs if run.name in recorded][:-KEPT_JOBS]:
        actions.append(DeleteJob(run.name, by_name[run.name]["metadata"]["uid"]))
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
    spec = observed.spec
    if spec.is_suspended:
        ready = Condition("Ready", False, "Suspended", "spec.suspend is true: nothing is started")
    elif spec.schedule is None:
        ready = Condition("Ready", True, "SingleRun", f"the Job is {single_job_name(spec)}")
    else:
        ready = Condition("Ready", True, "Scheduled", f"at {spec.schedule}")
    last = observed.runs[-1] if observed.runs else None
    newest = (fields.get("history") or [None])[0]
    if last is None or newest is None or newest["run"] != last.name:
        return (ready, *_kept(observed.status))
    if last.summary is None:
        completed = Condition("Completed", False, "NoVerdict", last.trouble)
        return (ready, completed, *_kept(observed.status, besides="Completed"))
    return (ready, *_verdict_conditions(last.name, last.summary))


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
        if each["type"] not in ("Ready", besides)
    )
