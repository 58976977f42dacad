"""Each permission of the operator has a call that needs it, and each call has its permission.

A static test, because a cluster per removed verb takes hours: every verb of the chart names the
line of code that fails without it. A verb without a line, or a line that is gone, fails here.
"""

import re
from pathlib import Path
from typing import Any

import yaml

from tests.repository.house import ROOT

OPERATOR = ROOT / "operator/tidemark_operator"
CHART = ROOT / "charts/tidemark/templates"
Permission = tuple[str, str, str]  # API group, resource, verb

_TM, _SPARK = "tidemark.dev", "sparkoperator.k8s.io"
_WATCH = "manager/watch.py"
_PODS = "broker_runtime/pods.py"
_AUDIT = "reconcile/audit/reconciler.py"
_AUDIT_PLAN = "reconcile/audit/plan.py"
_SLICES = "controller/slice_store.py"
_ADMIN = "topic_admin/objects.py"
_TLS = "manager/operator_tls.py"
_AUTHORITIES = "security/authorities.py"
# kopf lists before it watches.
NEEDED_BY: dict[Permission, tuple[str, str]] = {
    (_TM, "topics", "get"): (_ADMIN, "self._store.get(TOPIC,"),
    (_TM, "topics", "list"): ("topic_admin/topic_names.py", "self._store.list(TOPIC,"),
    (_TM, "topics", "watch"): (_WATCH, "kopf.on.event(TIDEMARK_GROUP, TOPIC.version"),
    (_TM, "topics", "create"): (_ADMIN, "self._store.create(TOPIC,"),
    (_TM, "topics", "update"): (_ADMIN, "self._store.replace(TOPIC,"),
    (_TM, "topics", "delete"): (_ADMIN, "await self._store.delete("),
    (_TM, "brokerpools", "get"): ("broker_runtime/node_racks.py", "self._store.get(BROKER_POOL,"),
    (_TM, "brokerpools", "list"): (
        "manager/forbidden_namespaces.py",
        "store.list(BROKER_POOL, namespace)",
    ),
    (_TM, "brokerpools", "watch"): (_WATCH, "kopf.on.event(TIDEMARK_GROUP, BROKER_POOL.version"),
    (_TM, "brokerpools", "update"): (
        "reconcile/pool/reconciler.py",
        "self._store.replace(BROKER_POOL,",
    ),
    (_TM, "brokerpools", "create"): (
        "reconcile/topic/apply.py",
        "self._store.create(BROKER_POOL,",
    ),
    (_TM, "replicationaudits", "get"): ("store/typed_store.py", "self._store.get(kind.resource,"),
    (_TM, "replicationaudits", "list"): (_AUDIT, "self._store.list(REPLICATION_AUDIT,"),
    (_TM, "replicationaudits", "watch"): (_WATCH, "REPLICATION_AUDIT.version, audits"),
    (_TM, "topics/status", "update"): ("reconcile/status.py", "self._store.replace_status("),
    (_TM, "brokerpools/status", "update"): ("reconcile/status.py", "self._store.replace_status("),
    (_TM, "replicationaudits/status", "update"): (
        "reconcile/status.py",
        "self._store.replace_status(",
    ),
    (_TM, "brokerpools/finalizers", "update"): (
        "resources/broker_pod.py",
        '"blockOwnerDeletion": True',
    ),
    (_TM, "replicationaudits/finalizers", "update"): (
        "resources/audit_pod.py",
        '"blockOwnerDeletion": True',
    ),
    (_TM, "brokers", "get"): (_SLICES, "self._store.get(BROKER,"),
    (_TM, "brokers", "list"): ("controller/service.py", "self._store.list(BROKER, None)"),
    (_TM, "brokers", "create"): (_SLICES, "self._store.create(BROKER,"),
    (_TM, "brokers", "update"): (_SLICES, "self._store.replace(BROKER,"),
    (_TM, "partitionslices", "get"): (_SLICES, "self._store.get(PARTITION_SLICE,"),
    (_TM, "partitionslices", "list"): (_SLICES, "self._store.list(PARTITION_SLICE,"),
    (_TM, "partitionslices", "create"): (_SLICES, "self._store.create(PARTITION_SLICE,"),
    (_TM, "partitionslices", "update"): (_SLICES, "self._store.replace(PARTITION_SLICE,"),
    (_TM, "partitionslices", "delete"): (_SLICES, "self._store.delete(PARTITION_SLICE,"),
    ("", "pods", "get"): ("manager/leadership.py", "store.get(POD,"),
    ("", "pods", "list"): (_PODS, "self._store.list(POD,"),
    ("", "pods", "watch"): (_WATCH, 'kopf.on.event("v1", "pods"'),
    ("", "pods", "create"): (_PODS, "self._create(POD,"),
    ("", "pods", "delete"): (_PODS, "self._store.delete("),
    ("", "services", "get"): (_PODS, "self._store.get(kind, metadata"),
    ("", "services", "list"): (_PODS, "self._store.list(SERVICE,"),
    ("", "services", "create"): (_PODS, "self._create(SERVICE,"),
    ("", "services", "delete"): (_PODS, "self._store.delete(SERVICE,"),
    ("", "persistentvolumeclaims", "get"): (_PODS, "self._store.get(CLAIM,"),
    ("", "persistentvolumeclaims", "list"): (_PODS, "self._store.list(CLAIM,"),
    ("", "persistentvolumeclaims", "watch"): (
        _WATCH,
        'kopf.on.event("v1", "persistentvolumeclaims"',
    ),
    ("", "persistentvolumeclaims", "create"): (_PODS, "self._create(CLAIM,"),
    ("", "persistentvolumeclaims", "update"): (_PODS, "self._store.replace(CLAIM,"),
    ("", "persistentvolumeclaims", "delete"): (_PODS, "self._store.delete(CLAIM,"),
    ("batch", "jobs", "list"): (_AUDIT, "self._store.list(JOB,"),
    ("batch", "jobs", "watch"): (_WATCH, 'kopf.on.event("batch", "v1", "jobs"'),
    ("batch", "jobs", "create"): (_AUDIT_PLAN, "Create(JOB"),
    ("batch", "jobs", "delete"): (_AUDIT_PLAN, "Delete(kind, run.name"),
    ("batch", "cronjobs", "get"): (_AUDIT, "self._store.get(CRON_JOB,"),
    ("batch", "cronjobs", "create"): (_AUDIT_PLAN, "CRON_JOB"),
    ("batch", "cronjobs", "update"): (_AUDIT_PLAN, "Replace("),
    ("batch", "cronjobs", "delete"): (_AUDIT_PLAN, "CRON_JOB"),
    (_SPARK, "sparkapplications", "list"): (_AUDIT, "self._store.list(SPARK_APPLICATION,"),
    (_SPARK, "sparkapplications", "create"): (_AUDIT_PLAN, "SPARK_APPLICATION"),
    (_SPARK, "sparkapplications", "delete"): (_AUDIT_PLAN, "SPARK_APPLICATION"),
    (_SPARK, "scheduledsparkapplications", "get"): (_AUDIT, "kind = SCHEDULED_SPARK_APPLICATION"),
    (_SPARK, "scheduledsparkapplications", "create"): (_AUDIT_PLAN, "SCHEDULED_SPARK_APPLICATION"),
    (_SPARK, "scheduledsparkapplications", "update"): (_AUDIT_PLAN, "SCHEDULED_SPARK_APPLICATION"),
    (_SPARK, "scheduledsparkapplications", "delete"): (_AUDIT_PLAN, "SCHEDULED_SPARK_APPLICATION"),
    ("", "events", "get"): ("manager/event_recorder.py", "self._store.get(EVENT,"),
    ("", "events", "create"): ("manager/event_recorder.py", "self._store.create(EVENT,"),
    ("", "events", "update"): ("manager/event_recorder.py", "self._store.replace(EVENT,"),
    ("", "configmaps", "get"): (_TLS, "self._store.get(CONFIG_MAP,"),
    ("", "configmaps", "create"): (_TLS, "self._store.create(CONFIG_MAP,"),
    ("", "configmaps", "update"): (_TLS, "self._store.replace(CONFIG_MAP,"),
    # In its own namespace: the keys of authorities. In `credentialNamespaces`: labelled users.
    # A user's own authority is read by a Role that the user writes, for this one Secret.
    ("", "secrets", "get"): (_AUTHORITIES, "self._store.get(SECRET,"),
    ("", "secrets", "create"): (_AUTHORITIES, "self._store.create(SECRET,"),
    ("", "secrets", "update"): (_AUTHORITIES, "self._store.replace(SECRET,"),
    ("", "secrets", "list"): ("main.py", "store.list(SECRET, namespace, {CREDENTIALS_LABEL"),
    ("policy", "poddisruptionbudgets", "get"): (_PODS, "self._store.get(DISRUPTION_BUDGET,"),
    ("policy", "poddisruptionbudgets", "create"): (_PODS, "self._create(DISRUPTION_BUDGET,"),
    ("authentication.k8s.io", "tokenreviews", "create"): (
        "manager/cluster_security.py",
        "store.review(TOKEN_REVIEW,",
    ),
    ("authorization.k8s.io", "subjectaccessreviews", "create"): (
        "manager/cluster_security.py",
        "store.review(SUBJECT_ACCESS_REVIEW,",
    ),
    ("authorization.k8s.io", "localsubjectaccessreviews", "create"): (
        "security/subject_access_review.py",
        "store.create(LOCAL_SUBJECT_ACCESS_REVIEW,",
    ),
    ("coordination.k8s.io", "leases", "get"): ("store/lease.py", "self._store.get(LEASE,"),
    ("coordination.k8s.io", "leases", "create"): ("store/lease.py", "self._store.create(LEASE,"),
    ("coordination.k8s.io", "leases", "update"): ("store/lease.py", "self._store.replace(LEASE,"),
    ("", "nodes", "get"): ("broker_runtime/node_racks.py", "self._store.get(NODE,"),
}


def permissions(text: str) -> set[Permission]:
    """The permissions of all rules in a template; lines of Go templates are left out."""
    found = set()
    text = re.sub(r"{{ if .*? }}(.*?){{ end }}", r"\1", text)  # a verb that a value adds
    lines = [line for line in text.splitlines() if "{{" not in line]
    for block in re.findall(r"^ *- apiGroups:.*\n(?:^ +\w.*\n)+", "\n".join(lines) + "\n", re.M):
        rule: Any = yaml.safe_load(block)[0]
        found |= {
            (group, resource, verb)
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
    return found


def _rules() -> str:
    """The rules of served namespaces."""
    return (CHART / "_names.tpl").read_text()


def granted() -> set[Permission]:
    return permissions(_rules()) | permissions((CHART / "rbac.yaml").read_text())


def test_each_permission_has_its_line_and_each_line_its_permission() -> None:
    assert granted() == set(NEEDED_BY)


def test_each_line_is_there() -> None:
    for permission, (file, snippet) in NEEDED_BY.items():
        assert snippet in (OPERATOR / file).read_text(), (permission, file, snippet)


def test_no_rule_has_a_wildcard_or_reads_secrets_of_served_namespaces() -> None:
    assert not [each for each in permissions(_rules()) if "secrets" in each]
    for group, resource, verb in granted():
        assert "*" not in (group, resource, verb)
        assert verb not in ("escalate", "bind", "impersonate")


def test_a_removed_rule_would_be_noticed(tmp_path: Path) -> None:
    text = _rules()
    less = text.replace("resources: [localsubjectaccessreviews]", "resources: [nothing]")
    assert permissions(less) != permissions(text)
