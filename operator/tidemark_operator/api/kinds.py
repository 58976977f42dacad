"""Name the kinds of objects that the operator reads and writes."""

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
CLUSTER_SCOPE = ""  # the namespace of what is in none


@dataclass(frozen=True, slots=True)
class ResourceKind:
    group: str  # "" for the core group
    version: str
    kind: str
    plural: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


TIDEMARK_GROUP = "tidemark.dev"
TOPIC = ResourceKind(TIDEMARK_GROUP, "v1alpha1", "Topic", "topics")
BROKER_POOL = ResourceKind(TIDEMARK_GROUP, "v1alpha1", "BrokerPool", "brokerpools")
BROKER = ResourceKind(TIDEMARK_GROUP, "v1alpha1", "Broker", "brokers")
PARTITION_SLICE = ResourceKind(TIDEMARK_GROUP, "v1alpha1", "PartitionSlice", "partitionslices")
REPLICATION_AUDIT = ResourceKind(
    TIDEMARK_GROUP, "v1alpha1", "ReplicationAudit", "replicationaudits"
)
CHAOS_EXPERIMENT = ResourceKind(TIDEMARK_GROUP, "v1alpha1", "ChaosExperiment", "chaosexperiments")
LEASE = ResourceKind("coordination.k8s.io", "v1", "Lease", "leases")
POD = ResourceKind("", "v1", "Pod", "pods")
NODE = ResourceKind("", "v1", "Node", "nodes")
NAMESPACE = ResourceKind("", "v1", "Namespace", "namespaces")
SERVICE = ResourceKind("", "v1", "Service", "services")
CLAIM = ResourceKind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
JOB = ResourceKind("batch", "v1", "Job", "jobs")
CRON_JOB = ResourceKind("batch", "v1", "CronJob", "cronjobs")
SPARK_GROUP = "sparkoperator.k8s.io"
SPARK_APPLICATION = ResourceKind(SPARK_GROUP, "v1beta2", "SparkApplication", "sparkapplications")
SCHEDULED_SPARK_APPLICATION = ResourceKind(
    SPARK_GROUP, "v1beta2", "ScheduledSparkApplication", "scheduledsparkapplications"
)
EVENT = ResourceKind("", "v1", "Event", "events")
DISRUPTION_BUDGET = ResourceKind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
TOKEN_REVIEW = ResourceKind("authentication.k8s.io", "v1", "TokenReview", "tokenreviews")
SUBJECT_ACCESS_REVIEW = ResourceKind(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews"
)
SECRET = ResourceKind("", "v1", "Secret", "secrets")
CONFIG_MAP = ResourceKind("", "v1", "ConfigMap", "configmaps")
LOCAL_SUBJECT_ACCESS_REVIEW = ResourceKind(
    "authorization.k8s.io", "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews"
)
