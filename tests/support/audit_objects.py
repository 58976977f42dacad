"""ReplicationAudits, ended Jobs and their pods as the API server has them."""

from typing import Any

from tidemark_operator.resources.audit_pod import audit_labels
from tidemark_protocol.audit_summary import AuditSummary, Incident, RuleSummary, encode_summary


def audit_object(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "ReplicationAudit",
        "metadata": {"name": "daily", "namespace": "shop"},
        "spec": {"source": {"prometheus": {"url": "http://prometheus:9090"}}, **spec},
    }


def incident(number: int = 1, **fields: Any) -> Incident:
    known: dict[str, Any] = {
        "id": f"f{number:03}",
        "rule": "R6",
        "severity": "critical",
        "subject": "orders-0",
        "start_ms": 1_700_000_000_000,
        "sentence": "12 committed records are gone",
    }
    return Incident(**known | fields)


def summary(**fields: Any) -> AuditSummary:
    known: dict[str, Any] = {
        "verdict": "LOSS",
        "sentence": "records that were acknowledged are lost",
        "window_start_ms": 1_700_000_000_000,
        "window_end_ms": 1_700_086_400_000,
        "coverage": 0.9981,
        "lost_records": 12,
        "findings": {"critical": 1, "minor": 2},
        "rules": (
            RuleSummary(rule="R1", outcome="kept", value=0.9995, limit=0.999, budget_left=0.5),
            RuleSummary(rule="R6", outcome="violated", value=12, limit=0),
        ),
        "incidents": (incident(),),
    }
    return AuditSummary(**known | fields)


def ended_job(name: str, *, at: str = "2026-11-21T06:01:00Z", failed: str = "") -> dict[str, Any]:
    condition = {
        "type": "Failed" if failed else "Complete",
        "status": "True",
        "lastTransitionTime": at,
        "reason": "BackoffLimitExceeded" if failed else "",
        "message": failed,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "shop", "labels": audit_labels("daily")},
        "status": {"conditions": [condition]},
    }


def ended_pod(
    job: str,
    message: str | AuditSummary,
    exit_code: int = 0,
    *,
    at: str = "2026-11-21T06:00:50Z",
) -> dict[str, Any]:
    said = message if isinstance(message, str) else encode_summary(message).decode()
    ended = {"terminated": {"exitCode": exit_code, "message": said, "finishedAt": at}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{job}-x7f2p",
            "namespace": "shop",
            "labels": {**audit_labels("daily"), "batch.kubernetes.io/job-name": job},
        },
        "status": {"containerStatuses": [{"name": "audit", "state": ended}]},
    }


def application_status(
    state: str = "COMPLETED",
    *,
    at: str | None = "2026-11-21T06:01:00Z",
    error: str = "",
    submitted_at: str | None = None,
) -> dict[str, Any]:
    return {
        "applicationState": {"state": state, "errorMessage": error},
        "terminationTime": at,
        "lastSubmissionAttemptTime": submitted_at,
        "driverInfo": {},
    }


def driver_pod(application: str, message: str | AuditSummary, exit_code: int = 0) -> dict[str, Any]:
    pod = ended_pod(application, message, exit_code)
    labels = {**audit_labels("daily"), "sparkoperator.k8s.io/app-name": application}
    pod["metadata"] |= {"name": f"{application}-driver", "labels": labels}
    pod["status"]["containerStatuses"][0]["name"] = "spark-kubernetes-driver"
    return pod
