"""Build the Job or CronJob of an audit: one pod, without API credentials."""

from tidemark_operator.api.kinds import CRON_JOB, JOB, Object
from tidemark_operator.api.replication_audit import ReplicationAudit
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
from tidemark_operator.resources.pod_template import USER_ID, pull_secrets

CONTAINER = "audit"
JOB_NAME_LABEL = "batch.kubernetes.io/job-name"
# What kopf watches Jobs by, on the server's side. Jobs that somebody made from the CronJob
# (`kubectl create job --from`) have the labels of its template.
JOB_SELECTOR = f"app.kubernetes.io/managed-by={MANAGED_BY},app.kubernetes.io/component=audit"


def job_manifest(audit: ReplicationAudit, user_id: int | None = USER_ID) -> Object:
    """Return the Job of the only run of this generation."""
    return owned_manifest(audit, JOB, single_run_name(audit), _job_spec(audit, user_id))


def cron_job_manifest(audit: ReplicationAudit, user_id: int | None = USER_ID) -> Object:
    schedule = {
        "startingDeadlineSeconds": 300,
        "successfulJobsHistoryLimit": RETAINED_RUNS,
        "failedJobsHistoryLimit": RETAINED_RUNS,
        "jobTemplate": {
            "metadata": {"labels": audit_labels(audit.name)},
            "spec": _job_spec(audit, user_id),
        },
    }
    return schedule_manifest(audit, CRON_JOB, schedule)


def _job_spec(audit: ReplicationAudit, user_id: int | None) -> Object:
    return {
        "backoffLimit": ATTEMPTS_MORE,
        "activeDeadlineSeconds": audit.spec.timeout_seconds,
        "template": {
            "metadata": {"labels": audit_labels(audit.name)},
            "spec": _pod_spec(audit, user_id),
        },
    }


def _pod_spec(audit: ReplicationAudit, user_id: int | None) -> Object:
    fields, mounts = pod_parts(audit, writes_reports=True, user_id=user_id)
    container = {
        "name": CONTAINER,
        "image": audit.spec.image,
        "imagePullPolicy": audit.spec.image_pull_policy,
        "args": arguments(audit),
        "env": [run_name_variable(JOB_NAME_LABEL)],
        "resources": audit.spec.resources,
        **container_parts(mounts),
    }
    return {
        **fields,
        **pull_secrets(audit.spec.image_pull_secrets),
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "containers": [container],
    }
