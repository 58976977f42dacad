"""The Job or CronJob of an audit. Pure.

The pod has no API credentials: it reads its source, writes its report to a claim if there is one,
and says its summary in its termination message.
"""

import hashlib
import json
from typing import Any

from tidemark_protocol.audit_summary import TERMINATION_LOG

from tidemark_operator.audits.spec import AuditSpec, FilesSource, PrometheusSource
from tidemark_operator.manifests.names import MANAGED_BY, TEMPLATE_ANNOTATION
from tidemark_operator.stores.object_store import Object

AUDIT_LABEL = "tidemark.dev/audit"
CONTAINER = "audit"
# What kopf watches Jobs by, on the server's side. Jobs that somebody made from the CronJob
# (`kubectl create job --from`) have the labels of its template.
JOB_SELECTOR = f"app.kubernetes.io/managed-by={MANAGED_BY},app.kubernetes.io/component=audit"
USER_ID = 10001
OUTPUT_DIRECTORY = "/reports"
FILES_DIRECTORY = "/source"
TOKEN_DIRECTORY = "/token"
# An audit that could not read its source (a Prometheus that restarts) may try again.
ATTEMPTS_MORE = 2
KEPT_JOBS = 3


def audit_labels(name: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "tidemark",
        "app.kubernetes.io/component": "audit",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/managed-by": MANAGED_BY,
        AUDIT_LABEL: name,
    }


def audit_name_of(item: Object) -> str | None:
    return (item["metadata"].get("labels") or {}).get(AUDIT_LABEL)


def single_job_name(spec: AuditSpec) -> str:
    return f"{spec.name}-{spec.generation}"


def job_manifest(spec: AuditSpec) -> Object:
    """The one run of this generation."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(spec, single_job_name(spec)),
        "spec": _job_spec(spec),
    }


def cron_job_manifest(spec: AuditSpec) -> Object:
    job: dict[str, Any] = {
        "schedule": spec.schedule,
        "suspend": spec.is_suspended,
        # A run that is still on is let be: the next window covers what this one leaves out.
        "concurrencyPolicy": "Forbid",
        "startingDeadlineSeconds": 300,
        "successfulJobsHistoryLimit": KEPT_JOBS,
        "failedJobsHistoryLimit": KEPT_JOBS,
        "jobTemplate": {
            "metadata": {"labels": audit_labels(spec.name)},
            "spec": _job_spec(spec),
        },
    }
    if spec.time_zone is not None:
        job["timeZone"] = spec.time_zone
    metadata = _metadata(spec, spec.name)
    metadata["annotations"] = {TEMPLATE_ANNOTATION: _digest(job)}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": job}


def _metadata(spec: AuditSpec, name: str) -> dict[str, Any]:
    owner = {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "ReplicationAudit",
        "name": spec.name,
        "uid": spec.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "name": name,
        "namespace": spec.namespace,
        "labels": audit_labels(spec.name),
        "ownerReferences": [owner],
    }


def _digest(job: dict[str, Any]) -> str:
    text = json.dumps(job, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    mounts: list[dict[str, Any]] = [{"name": "tmp", "mountPath": "/tmp"}]

    def mount(name: str, directory: str, volume: dict[str, Any], *, read_only: bool) -> None:
        if name not in {each["name"] for each in volumes}:
            volumes.append({"name": name, **volume})
        mounts.append({"name": name, "mountPath": directory, "readOnly": read_only})

    output = None if spec.output is None else spec.output.claim_name
    if isinstance(spec.source, FilesSource):
        # A claim that is named by two volumes of one pod keeps it from starting (Kubernetes
        # issue 51853): a source that is the reports' claim too is one volume, mounted twice.
        is_shared = spec.source.claim_name == output
        claim = {"claimName": spec.source.claim_name, "readOnly": not is_shared}
        name = "reports" if is_shared else "source"
        mount(name, FILES_DIRECTORY, {"persistentVolumeClaim": claim}, read_only=True)
    elif spec.source.token_secret is not None:
        name, key = spec.source.token_secret
        secret = {"secretName": name, "items": [{"key": key, "path": "token"}]}
        mount("token", TOKEN_DIRECTORY, {"secret": secret}, read_only=True)
    if output is not None:
        volume = {"persistentVolumeClaim": {"claimName": output}}
        mount("reports", OUTPUT_DIRECTORY, volume, read_only=False)
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(spec, mounts)],
        "volumes": volumes,
    }


def _container(spec: AuditSpec, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    run_name = {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-name']"}}
    return {
        "name": CONTAINER,
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy,
        "args": _arguments(spec),
        "env": [{"name": "AUDIT_RUN", "valueFrom": run_name}],
        "resources": spec.resources,
        "terminationMessagePath": TERMINATION_LOG,
        "terminationMessagePolicy": "File",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def _arguments(spec: AuditSpec) -> list[str]:
    """Of `tidemark audit`. Any verdict ends with 0, so that only a run without one is a failure."""
    arguments = ["--window", spec.window, "--engine", spec.engine.lower()]
    if spec.slo:
        arguments += ["--slo", json.dumps(spec.slo, sort_keys=True)]
    if spec.output is not None:
        arguments += ["--report", f"{OUTPUT_DIRECTORY}/{spec.output.path}/{spec.name}/$(AUDIT_RUN)"]
    arguments += ["--summary", TERMINATION_LOG, "--fail-on", "no-verdict"]
    match spec.source:
        case PrometheusSource(url, None):
            return [*arguments, url]
        case PrometheusSource(url, _):
            return [*arguments, "--token-file", f"{TOKEN_DIRECTORY}/token", url]
        case FilesSource(_, path):
            return [*arguments, f"{FILES_DIRECTORY}/{path}"]
