"""Build an audit as a SparkApplication or ScheduledSparkApplication of Kubeflow's Spark operator.

They do not need that operator's webhook: what Spark's own configuration cannot set in a pod is in
the pod templates. A run is a driver, which creates the executors and needs the rights of its
service account for that; executors have no API credentials.
"""

from tidemark_operator.api.kinds import SCHEDULED_SPARK_APPLICATION, SPARK_APPLICATION, Object
from tidemark_operator.api.replication_audit import ReplicationAudit, SparkPodSize, SparkSpec
from tidemark_operator.resources.audit_pod import (
    ATTEMPTS_MORE,
    RETAINED_RUNS,
    arguments,
    container_parts,
    owned_manifest,
    pod_parts,
    run_name_variable,
    schedule_manifest,
    single_run_name,
)
from tidemark_operator.resources.pod_template import USER_ID

DRIVER_CONTAINER = "spark-kubernetes-driver"
EXECUTOR_CONTAINER = "spark-kubernetes-executor"
APPLICATION_LABEL = "sparkoperator.k8s.io/app-name"  # which the Spark operator puts on the pods
# Where the audit's image has what Spark's driver runs (Dockerfile).
MAIN_FILE = "local:///opt/tidemark/audit_driver.py"
# Of the audit's image, as requirements-audit.lock says.
SPARK_VERSION = "4.3.0"
RETRY_INTERVAL_SECONDS = 10


def spark_application_manifest(
    audit: ReplicationAudit, spark: SparkSpec, user_id: int | None = USER_ID
) -> Object:
    """Return the application of the only run of this generation."""
    content = _application_spec(audit, spark, user_id)
    return owned_manifest(audit, SPARK_APPLICATION, single_run_name(audit), content)


def scheduled_spark_application_manifest(
    audit: ReplicationAudit, spark: SparkSpec, user_id: int | None = USER_ID
) -> Object:
    """Return the scheduled application.

    The Spark operator copies its labels to the SparkApplications that it creates, and names these
    after it and the time in ns.
    """
    schedule = {
        "successfulRunHistoryLimit": RETAINED_RUNS,
        "failedRunHistoryLimit": RETAINED_RUNS,
        "template": _application_spec(audit, spark, user_id),
    }
    return schedule_manifest(audit, SCHEDULED_SPARK_APPLICATION, schedule)


def _application_spec(audit: ReplicationAudit, spark: SparkSpec, user_id: int | None) -> Object:
    return {
        "type": "Python",
        "pythonVersion": "3",
        "mode": "cluster",
        "sparkVersion": SPARK_VERSION,
        "image": audit.spec.image,
        "imagePullPolicy": audit.spec.image_pull_policy,
        **_pull_secrets(audit),
        "mainApplicationFile": MAIN_FILE,
        "arguments": arguments(audit),
        # Driver and executors would otherwise take orders from any client of their ports.
        "sparkConf": {"spark.authenticate": "true"},
        "restartPolicy": {
            "type": "OnFailure",
            "onFailureRetries": ATTEMPTS_MORE,
            "onFailureRetryInterval": RETRY_INTERVAL_SECONDS,
            "onSubmissionFailureRetries": ATTEMPTS_MORE,
            "onSubmissionFailureRetryInterval": RETRY_INTERVAL_SECONDS,
        },
        "driver": {
            **_size(spark.driver),
            "serviceAccount": spark.service_account_name,
            "template": {"spec": _driver_pod_spec(audit, user_id)},
        },
        "executor": {
            **_size(spark.executor),
            "instances": spark.executors,
            "template": {"spec": _executor_pod_spec(audit, user_id)},
        },
    }


def _pull_secrets(audit: ReplicationAudit) -> Object:
    """Return the names alone, as the Spark operator wants them."""
    names = [each["name"] for each in audit.spec.image_pull_secrets]
    return {"imagePullSecrets": names} if names else {}


def _size(size: SparkPodSize) -> Object:
    return {"cores": size.cores, "memory": size.memory, "memoryOverhead": size.memory_overhead}


def _driver_pod_spec(audit: ReplicationAudit, user_id: int | None) -> Object:
    fields, mounts = pod_parts(audit, writes_reports=True, user_id=user_id)
    container = {
        "name": DRIVER_CONTAINER,
        "env": [run_name_variable(APPLICATION_LABEL)],
        **container_parts(mounts),
    }
    # A SparkApplication has no deadline of its own: this one is each attempt's.
    deadline = {"activeDeadlineSeconds": audit.spec.timeout_seconds}
    return {**fields, **deadline, "containers": [container]}


def _executor_pod_spec(audit: ReplicationAudit, user_id: int | None) -> Object:
    fields, mounts = pod_parts(audit, writes_reports=False, user_id=user_id)
    container = {"name": EXECUTOR_CONTAINER, **container_parts(mounts)}
    return {**fields, "automountServiceAccountToken": False, "containers": [container]}
