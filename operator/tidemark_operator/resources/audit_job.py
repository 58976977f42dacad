"""Build the Job or CronJob of an audit: one pod, without API credentials."""

from typing import Any

from tidemark_operator.api.kinds import CRON_JOB, JOB, Object
from tidemark_operator.api.replication_audit import AuditSpec
from tidemark_operator.resources.audit_pod import (
    ATTEMPTS_MORE,
    RETAINED_RUNS,
    arguments,
    audit_labels,
    container_parts,
    owned_manifest,
    pod_parts,
    run_name_variable,
    schedule_manifest,
    single_run_name,
)
from tidemark_operator.resources.names import MANAGED_BY

CONTAINER = "audit"
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
# What kopf watches Jobs by, on the server's side. Jobs that somebody made from the CronJob
# (`kubectl create job --from`) have the labels of its template.
JOB_SELECTOR = f"app.kubernetes.io/managed-by={MANAGED_BY},app.kubernetes.io/component=audit"


def job_manifest(spec: AuditSpec) -> Object:
    """Return the Job of the only run of this generation."""
    return owned_manifest(spec, JOB, single_run_name(spec), _job_spec(spec))


def cron_job_manifest(spec: AuditSpec) -> Object:
    schedule = {
        "startingDeadlineSeconds": 300,
        "successfulJobsHistoryLimit": RETAINED_RUNS,
        "failedJobsHistoryLimit": RETAINED_RUNS,
        "jobTemplate": {
            "metadata": {"labels": audit_labels(spec.name)},
            "spec": _job_spec(spec),
        },
    }
    return schedule_manifest(spec, CRON_JOB, schedule)


def _job_spec(spec: AuditSpec) -> dict[str, Any]:
    return {
        "backoffLimit": ATTEMPTS_MORE,
        "activeDeadlineSeconds": spec.timeout_seconds,
        "template": {
            "metadata": {"labels": audit_labels(spec.name)},
            "spec": _pod_spec(spec),
        },
    }


def _pod_spec(spec: AuditSpec) -> dict[str, Any]:
    fields, mounts = pod_parts(spec, writes_reports=True)
    container = {
        "name": CONTAINER,
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "args": arguments(spec),
        "env": [run_name_variable(JOB_NAME_LABEL)],
        "resources": spec.resources,
        **container_parts(mounts),
    }
    return {
        **fields,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "containers": [container],
    }
