"""Decide whether an audit's runs are SparkApplications, and what its status remembers of it.

The condition `SparkApplications` is a memory too: without the right it cannot be seen whether a
schedule of them exists, and one beside a CronJob would audit, and write reports, twice. So the
status says `Used` before the first one is created, and `OutOfReach` from when the right is lost
until it comes back, the CRDs are removed, or a person removes the condition.
"""

from enum import Enum

from tidemark_operator.api.replication_audit import AuditStatus, ReplicationAudit, SparkSpec
from tidemark_operator.reconcile.conditions import Condition
from tidemark_operator.resources.audit_pod import AUDIT_LABEL

SPARK_CONDITION = "SparkApplications"
OUT_OF_REACH = "OutOfReach"
_USED = "Used"


class SparkOperator(Enum):
    """Whether SparkApplications are available here."""

    PRESENT = "present"
    NO_CRDS = "no CRDs"
    NO_RIGHTS = "no rights"
    NOT_REQUESTED = "not asked"  # neither the spec nor the status speaks of them


def is_spoken_of(audit: ReplicationAudit) -> bool:
    return audit.spec.spark is not None or bool(_remembered(audit.status))


def used_condition(spark: SparkSpec) -> Condition:
    used = f"new runs are SparkApplications; executors of each: {spark.executors}"
    return Condition(SPARK_CONDITION, True, _USED, used)


def may_be_used(status: AuditStatus) -> bool:
    """Return whether the status remembers SparkApplications."""
    return _remembered(status) in (_USED, OUT_OF_REACH)


def is_out_of_reach(status: AuditStatus, spark_operator: SparkOperator) -> bool:
    """Return whether a schedule of them may exist that can be neither seen nor deleted."""
    return spark_operator is SparkOperator.NO_RIGHTS and may_be_used(status)


def spark_conditions(
    audit: ReplicationAudit, spark_operator: SparkOperator, applications: int
) -> tuple[Condition, ...]:
    """Return the condition about several pods.

    None where they are not requested, and no SparkApplication of an earlier request is left
    (`applications`).
    """
    if is_out_of_reach(audit.status, spark_operator):
        return (_out_of_reach(audit),)
    spark = audit.spec.spark
    if spark is None:
        left = f"spec.spark is not set; SparkApplications of earlier runs remain: {applications}"
        return (Condition(SPARK_CONDITION, False, "Left", left),) if applications else ()
    assert spark_operator is not SparkOperator.NOT_REQUESTED
    requested_transition = "spec.spark requests SparkApplications (sparkoperator.k8s.io/v1beta2)"
    match spark_operator:
        case SparkOperator.PRESENT:
            return (used_condition(spark),)
        case SparkOperator.NO_CRDS:
            reason = "NotInstalled"
            found = (
                "the cluster has no such CRD: new runs are Jobs of one pod. Install the"
                " Spark operator, or remove spec.spark"
            )
        case SparkOperator.NO_RIGHTS:
            reason = "NotAllowed"
            found = (
                "the operator has no permission to read them: new runs are Jobs of one"
                " pod. Install the chart with sparkApplications: true, or remove"
                " spec.spark"
            )
    return (Condition(SPARK_CONDITION, False, reason, f"{requested_transition}; {found}"),)


def _out_of_reach(audit: ReplicationAudit) -> Condition:
    kubectl = f"kubectl --namespace {audit.namespace}"
    said = (
        "SparkApplications of this audit may still run, and the operator has no permission to read"
        " or delete them, so no run is started. Install the chart with sparkApplications: true; or"
        " delete them and then the conditions of this audit:"
        f" {kubectl} delete scheduledsparkapplications,sparkapplications"
        f" --selector {AUDIT_LABEL}={audit.name};"
        f" {kubectl} patch replicationaudits {audit.name} --subresource=status --type=merge"
        """ --patch '{"status": {"conditions": []}}'"""
    )
    return Condition(SPARK_CONDITION, False, OUT_OF_REACH, said)


def _remembered(status: AuditStatus) -> str:
    conditions = status.known_conditions
    return "".join(each.reason for each in conditions if each.type == SPARK_CONDITION)
