"""Build what all pods of an audit share: arguments, volumes, rights.

Such a pod reads its source, writes its report to a PersistentVolumeClaim if there is one, and
returns its summary in its termination message.
"""

import json

from tidemark_protocol.audit_summary import TERMINATION_LOG

from tidemark_operator.api.kinds import Object, ResourceKind
from tidemark_operator.api.replication_audit import ReplicationAudit
from tidemark_operator.resources.names import MANAGED_BY, TEMPLATE_ANNOTATION
from tidemark_operator.resources.pod_template import (
    USER_ID,
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


def single_run_name(audit: ReplicationAudit) -> str:
    return f"{audit.name}-{audit.metadata.generation}"


def owned_manifest(
    audit: ReplicationAudit, kind: ResourceKind, name: str, content: Object
) -> Object:
    owner = {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "ReplicationAudit",
        "name": audit.name,
        "uid": audit.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {
        "name": name,
        "namespace": audit.namespace,
        "labels": audit_labels(audit.name),
        "ownerReferences": [owner],
    }
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": metadata,
        "spec": content,
    }


def schedule_manifest(audit: ReplicationAudit, kind: ResourceKind, schedule: Object) -> Object:
    """Return a scheduled object of this kind, with the fields that all schedules share.

    A digest of `schedule` shows a change.
    """
    schedule = {
        "schedule": audit.spec.schedule,
        "suspend": audit.spec.is_suspended,
        # A run that is still on is let be: a window longer than the period covers what it left.
        "concurrencyPolicy": "Forbid",
        **schedule,
    }
    if audit.spec.time_zone is not None:
        schedule["timeZone"] = audit.spec.time_zone
    manifest = owned_manifest(audit, kind, audit.name, schedule)
    manifest["metadata"]["annotations"] = {TEMPLATE_ANNOTATION: template_digest(schedule)}
    return manifest


def pod_parts(
    audit: ReplicationAudit, *, writes_reports: bool, user_id: int | None = USER_ID
) -> tuple[Object, list[Object]]:
    """Return the fields of a pod's spec without containers, and the mounts of its container."""
    volumes, mounts = _volumes(audit, writes_reports=writes_reports)
    fields: Object = {
        "enableServiceLinks": False,
        "securityContext": restricted_pod(user_id),
        "volumes": volumes,
    }
    return fields, mounts


def container_parts(mounts: list[Object]) -> Object:
    return {
        "terminationMessagePath": TERMINATION_LOG,
        "terminationMessagePolicy": "File",
        "securityContext": restricted_container(),
        "volumeMounts": mounts,
    }


def run_name_variable(label: str) -> Object:
    """Return the variable AUDIT_RUN of the arguments, from the pod's label with the run's name."""
    return {
        "name": "AUDIT_RUN",
        "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}},
    }


def arguments(audit: ReplicationAudit) -> list[str]:
    """Return the arguments of `tidemark audit`.

    Each verdict exits with 0, so that only a run without one is a failure.
    """
    words = ["--window", audit.spec.window, "--engine", audit.spec.engine.lower()]
    if audit.spec.slo:
        words += ["--slo", json.dumps(audit.spec.slo, sort_keys=True)]
    if audit.spec.output is not None:
        words += [
            "--report",
            f"{OUTPUT_DIRECTORY}/{audit.spec.output.path}/{audit.name}/$(AUDIT_RUN)",
        ]
    words += ["--summary", TERMINATION_LOG, "--fail-on", "no-verdict"]
    files, prometheus = audit.spec.source.files, audit.spec.source.prometheus
    if files is not None:
        return [*words, f"{FILES_DIRECTORY}/{files.path}"]
    assert prometheus is not None  # a rule: one of the two
    if prometheus.token_secret is not None:
        words += ["--token-file", f"{TOKEN_DIRECTORY}/token"]
    return [*words, prometheus.url]


def _volumes(audit: ReplicationAudit, *, writes_reports: bool) -> tuple[list[Object], list[Object]]:
    volumes: list[Object] = [{"name": "tmp", "emptyDir": {}}]
    mounts: list[Object] = [{"name": "tmp", "mountPath": "/tmp"}]

    def mount(name: str, directory: str, volume: Object, *, read_only: bool) -> None:
        if name not in {each["name"] for each in volumes}:
            volumes.append({"name": name, **volume})
        mounts.append({"name": name, "mountPath": directory, "readOnly": read_only})

    output = (
        audit.spec.output.claim_name if audit.spec.output is not None and writes_reports else None
    )
    source = audit.spec.source
    if source.files is not None:
        # A claim that is named by two volumes of one pod keeps it from starting (Kubernetes
        # issue 51853): a source that is the reports' claim too is one volume, mounted twice.
        is_shared = source.files.claim_name == output
        claim = {"claimName": source.files.claim_name, "readOnly": not is_shared}
        name = "reports" if is_shared else "source"
        mount(name, FILES_DIRECTORY, {"persistentVolumeClaim": claim}, read_only=True)
    elif source.prometheus is not None and source.prometheus.token_secret is not None:
        token = source.prometheus.token_secret
        secret = {"secretName": token.name, "items": [{"key": token.key, "path": "token"}]}
        mount("token", TOKEN_DIRECTORY, {"secret": secret}, read_only=True)
    if output is not None:
        volume = {"persistentVolumeClaim": {"claimName": output}}
        mount("reports", OUTPUT_DIRECTORY, volume, read_only=False)
    return volumes, mounts
