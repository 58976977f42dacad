"""What is due for an audit, and what its conditions say, from the whole observation."""

from dataclasses import replace
from typing import Any

import pytest
from tidemark_operator.api.kinds import CRON_JOB, JOB, SPARK_APPLICATION, Object
from tidemark_operator.api.objects import ConditionStatus
from tidemark_operator.api.replication_audit import ReplicationAudit
from tidemark_operator.reconcile.audit.plan import (
    AuditPlan,
    Create,
    Delete,
    ObservedAudit,
    Replace,
    plan_audit,
    trouble_conditions,
)
from tidemark_operator.reconcile.audit.runs import MAX_REPORTED_INCIDENTS, Run
from tidemark_operator.reconcile.audit.spark_availability import SparkOperator
from tidemark_operator.resources.audit_job import cron_job_manifest
from tidemark_protocol.audit_summary import AuditSummary

from tests.support.api_objects import parsed
from tests.support.audit_objects import audit_object, ended_job, incident, summary

DAILY = "0 6 * * *"
SPARK = {"serviceAccountName": "spark"}


def observed(status: Object | None = None, **spec: Any) -> ObservedAudit:
    """Of generation 3, with nothing in the cluster yet."""
    item = audit_object(**spec)
    item["metadata"] |= {"generation": 3, "uid": "audit-uid"}
    audit = parsed(ReplicationAudit, item | {"status": status or {}})
    return ObservedAudit(audit, None, (), SparkOperator.NOT_REQUESTED, None, (), ())


def with_cron_job(seen: ObservedAudit, stored: ReplicationAudit) -> ObservedAudit:
    """With the CronJob of `stored`, which is this audit at another time."""
    manifest = cron_job_manifest(stored)
    manifest["metadata"] |= {"uid": "cron-uid", "resourceVersion": "7"}
    return replace(seen, cron_job=manifest)


def with_runs(seen: ObservedAudit, *summaries: AuditSummary | None) -> ObservedAudit:
    runs = tuple(
        Run(f"daily-{number}", f"2026-11-2{number}T06:00:00Z", each, "no room")
        for number, each in enumerate(summaries, start=1)
    )
    return replace(seen, runs=runs)


def conditions(plan: AuditPlan) -> dict[str, tuple[bool, str]]:
    return {each.type: (each.is_true, each.reason) for each in plan.conditions}


def test_a_run_is_created_once_for_a_generation() -> None:
    plan = plan_audit(observed())
    (action,) = plan.actions
    assert isinstance(action, Create)
    assert (action.kind, action.manifest["metadata"]["name"]) == (JOB, "daily-3")
    assert plan.fields.started_generation == 3
    assert plan_audit(observed({"startedGeneration": 3})).actions == ()
    there = replace(observed(), jobs=(ended_job("daily-3"),))
    assert plan_audit(there).actions == ()


def test_a_suspended_audit_starts_nothing_and_does_not_count_as_started() -> None:
    plan = plan_audit(observed(suspend=True))
    assert (plan.actions, bool(plan.fields.started_generation)) == ((), False)
    assert conditions(plan)["Ready"] == (False, "Suspended")


def test_a_schedule_is_created_and_replaced_only_where_it_differs() -> None:
    seen = observed(schedule=DAILY)
    (action,) = plan_audit(seen).actions
    assert isinstance(action, Create)
    assert action.kind is CRON_JOB
    assert plan_audit(with_cron_job(seen, seen.audit)).actions == ()
    later = observed(schedule="0 7 * * *").audit
    (action,) = plan_audit(with_cron_job(seen, later)).actions
    assert isinstance(action, Replace)
    assert action.manifest["metadata"]["resourceVersion"] == "7"


def test_a_schedule_that_is_no_longer_wanted_is_deleted() -> None:
    seen = with_cron_job(observed({"startedGeneration": 3}), observed(schedule=DAILY).audit)
    assert plan_audit(seen).actions == (Delete(CRON_JOB, "daily", "cron-uid"),)


def test_a_cron_job_of_another_owner_is_left_alone_and_named() -> None:
    seen = observed(schedule=DAILY)
    seen = with_cron_job(seen, seen.audit)
    assert seen.cron_job is not None
    seen.cron_job["metadata"]["labels"] = {}
    plan = plan_audit(seen)
    assert plan.actions == ()
    assert conditions(plan)["Ready"] == (False, "NameTaken")


def test_the_status_names_spark_applications_before_the_first_is_created() -> None:
    seen = replace(observed(spark=SPARK), spark_operator=SparkOperator.PRESENT)
    plan = plan_audit(seen)
    (action,) = plan.actions
    assert isinstance(action, Create)
    assert action.kind is SPARK_APPLICATION
    assert [each.type for each in plan.announced] == ["SparkApplications"]
    assert plan.awaits_applications
    assert plan_audit(observed()).announced == ()


def test_an_incident_is_reported_once_and_only_so_many_ids_are_kept() -> None:
    reported = [f"old{number}" for number in range(MAX_REPORTED_INCIDENTS)]
    seen = observed({"reportedIncidents": reported}, schedule=DAILY)
    said = summary(incidents=(incident(1), incident(2), incident(1)))
    plan = plan_audit(with_runs(seen, said, said))
    assert [(each.run, each.incident.id) for each in plan.reports] == [
        ("daily-1", "f001"),
        ("daily-1", "f002"),
    ]
    assert plan.fields.reported_incidents == (*reported[2:], "f001", "f002")


@pytest.mark.parametrize(
    ("verdict", "met", "sufficient", "lost"),
    [
        ("PASS", True, True, False),
        ("LOSS", False, True, True),
        ("INCONCLUSIVE", False, False, False),
    ],
)
def test_a_verdict_has_its_conditions(
    verdict: str, met: bool, sufficient: bool, lost: bool
) -> None:
    seen = with_runs(observed(schedule=DAILY), summary(verdict=verdict))
    reason = verdict.capitalize()
    assert conditions(plan_audit(seen)) == {
        "Ready": (True, "Scheduled"),
        "Completed": (True, reason),
        "SLOMet": (met, reason),
        "EvidenceSufficient": (sufficient, reason),
        "LossDetected": (lost, reason),
    }


def test_a_run_without_a_verdict_keeps_the_conditions_of_the_last_one() -> None:
    lost = {
        "type": "LossDetected", "status": "True", "reason": "Loss", "message": "12 records",
        "lastTransitionTime": "2026-11-20T00:00:00Z",
    }  # fmt: skip
    seen = with_runs(observed({"conditions": [lost]}, schedule=DAILY), None)
    found = conditions(plan_audit(seen))
    assert found["Completed"] == (False, "NoVerdict")
    assert found["LossDetected"] == (True, "Loss")


def test_trouble_replaces_the_ready_condition_alone() -> None:
    stored = [
        ConditionStatus(type=each, status="True", reason="R", message="m", last_transition_time="t")
        for each in ("Ready", "SLOMet")
    ]
    found = trouble_conditions(stored, "Rejected", "no such field")
    assert [(each.type, each.is_true) for each in found] == [("Ready", False), ("SLOMet", True)]


def test_single_runs_beyond_the_last_three_are_deleted_once_recorded() -> None:
    jobs = tuple(ended_job(f"daily-{number}") for number in range(1, 5))
    for each in jobs:
        each["metadata"]["uid"] = f"uid-{each['metadata']['name']}"
    history = [
        {"run": f"daily-{number}", "verdict": "PASS", "finishedTime": "2026-11-20T00:00:00Z"}
        for number in range(1, 5)
    ]
    seen = observed({"startedGeneration": 3, "history": history})
    seen = with_runs(replace(seen, jobs=jobs), *[summary()] * 4)
    assert plan_audit(seen).actions == (Delete(JOB, "daily-1", "uid-daily-1"),)
    unrecorded = observed({"startedGeneration": 3, "history": history[1:]})
    unrecorded = with_runs(replace(unrecorded, jobs=jobs), *[summary()] * 4)
    assert plan_audit(unrecorded).actions == ()
