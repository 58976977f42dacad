"""Build what all pods of an audit share: arguments, volumes, rights.

Such a pod reads its source, writes its report to a PersistentVolumeClaim if there is one, and
returns its summary in its termination message.
"""

import json
from typing import Any

from tidemark_protocol.audit_summary import TERMINATION_LOG

from tidemark_operator.api.kinds import Object, ResourceKind
from tidemark_operator.api.replication_audit import AuditSpec, FilesSource, PrometheusSource
from tidemark_operator.resources.names import MANAGED_BY, TEMPLATE_ANNOTATION
from tidemark_operator.resources.pod_template import (
    restricted_container,
    restricted_pod,
    template_digest,
)

AUDIT_LABEL = "tidemark.dev/audit"
OUTPUT_DIRECTORY = "/reports"
FILES_DIRECTORY = "/source"
TOKEN_DIRECTORY = "/token"
# An audit that could not read its source (a Prometheus that restarts) may try again.
ATTEMPTS_MORE = 2
RETAINED_RUNS = 3


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


def single_run_name(spec: AuditSpec) -> str:
    return f"{spec.name}-{spec.generation}"


def owned_manifest(
    spec: AuditSpec, kind: ResourceKind, name: str, content: dict[str, Any]
) -> Object:
    owner = {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "ReplicationAudit",
        "name": spec.name,
        "uid": spec.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {
        "name": name,
        "namespace": spec.namespace,
        "labels": audit_labels(spec.name),
        "ownerReferences": [owner],
    }
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata,
        "spec": content,
    }


def schedule_manifest(spec: AuditSpec, kind: ResourceKind, schedule: dict[str, Any]) -> Object:
    """Return a scheduled object of this kind, with the fields that all schedules share.

    A digest of `schedule` shows a change.
    """
    schedule = {
        "schedule": spec.schedule,
        "suspend": spec.is_suspended,
        # A run that is still on is let be: a window longer than the period covers what it left.
        "concurrencyPolicy": "Forbid",
        **schedule,
    }
    if spec.time_zone is not None:
        schedule["timeZone"] = spec.time_zone
    manifest = owned_manifest(spec, kind, spec.name, schedule)
    manifest["metadata"]["annotations"] = {TEMPLATE_ANNOTATION: template_digest(schedule)}
    return manifest


def pod_parts(
    spec: AuditSpec, *, writes_reports: bool
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the fields of a pod's spec without containers, and the mounts of its container."""
    volumes, mounts = _volumes(spec, writes_reports=writes_reports)
    fields: dict[str, Any] = {
        "enableServiceLinks": False,
        "securityContext": restricted_pod(),
        "volumes": volumes,
    }
    return fields, mounts


def container_parts(mounts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "terminationMessagePath": TERMINATION_LOG,
        "terminationMessagePolicy": "File",
        "securityContext": restricted_container(),
        "volumeMounts": mounts,
    }


def run_name_variable(label: str) -> dict[str, Any]:
    """Return the variable AUDIT_RUN of the arguments, from the pod's label with the run's name."""
    return {
        "name": "AUDIT_RUN",
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}},
    }


def arguments(spec: AuditSpec) -> list[str]:
    """Return the arguments of `tidemark audit`.

    Each verdict exits with 0, so that only a run without one is a failure.
    """
    words = ["--window", spec.window, "--engine", spec.engine.lower()]
    if spec.slo:
        words += ["--slo", json.dumps(spec.slo, sort_keys=True)]
    if spec.output is not None:
        words += ["--report", f"{OUTPUT_DIRECTORY}/{spec.output.path}/{spec.name}/$(AUDIT_RUN)"]
    words += ["--summary", TERMINATION_LOG, "--fail-on", "no-verdict"]
    match spec.source:
        case PrometheusSource(url, None):
            return [*words, url]
        case PrometheusSource(url, _):
            return [*words, "--token-file", f"{TOKEN_DIRECTORY}/token", url]
        case FilesSource(_, path):
            return [*words, f"{FILES_DIRECTORY}/{path}"]


def _volumes(
    spec: AuditSpec, *, writes_reports: bool
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    mounts: list[dict[str, Any]] = [{"name": "tmp", "mountPath": "/tmp"}]

    def mount(name: str, directory: str, volume: dict[str, Any], *, read_only: bool) -> None:
        if name not in {each["name"] for each in volumes}:
            volumes.append({"name": name, **volume})
        mounts.append({"name": name, "mountPath": directory, "readOnly": read_only})

    output = spec.output.claim_name if spec.output is not None and writes_reports else None
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
    return volumes, mounts
