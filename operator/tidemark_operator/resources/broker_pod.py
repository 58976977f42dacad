"""Build the pod of one broker. Its identity is its claim; everything else can be created again.

It is restricted by each rule of Pod Security and has no API credentials. The broker gets its
settings by environment (docs/design/architecture.md lists the ports).
"""

from dataclasses import dataclass

from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.broker_pool import GROUP_SETTINGS, BrokerPool
from tidemark_operator.api.kinds import Object
from tidemark_operator.resources.names import (
    TEMPLATE_ANNOTATION,
    broker_labels,
    broker_name,
    claim_name,
    pool_selector,
)
from tidemark_operator.resources.pod_template import (
    USER_ID,
    restricted_container,
    restricted_pod,
    template_digest,
)

DATA_DIRECTORY = "/var/lib/tidemark"
KAFKA_PORT = 9092
HTTP_PORT = 8080
TERMINATION_GRACE_S = 30
# Recovery of a big log after a kill reads what was not checkpointed: an hour, then give up.
STARTUP_BUDGET_S = 3600


@dataclass(frozen=True, slots=True)
class PodSettings:
    """The settings of each broker pod that come from the operator's own installation."""

    # Where brokers find the controller: host:port of the operator's headless Service.
    controllers: str = "tidemark-operator:8070"
    log_format: str = "json"
    user_id: int | None = USER_ID  # None: the platform assigns one


def broker_pod_manifest(
    pool: BrokerPool, broker_id: BrokerId, *, claim_uid: str, settings: PodSettings
) -> Object:
    """Return the pod; `claim_uid` is part of the storage identity that the broker reports (S7)."""
    manifest = _manifest(pool, broker_id, claim_uid, settings)
    manifest["metadata"]["annotations"][TEMPLATE_ANNOTATION] = template_digest(manifest)
    return manifest


def template_of(pod: Object) -> str:
    """Return the digest of the template that the pod was created from, or ""."""
    found: str = (pod["metadata"].get("annotations") or {}).get(TEMPLATE_ANNOTATION, "")
    return found


def _manifest(
    pool: BrokerPool, broker_id: BrokerId, claim_uid: str, settings: PodSettings
) -> Object:
    template = pool.spec.pod_template
    spec: Object = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": TERMINATION_GRACE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": restricted_pod(settings.user_id)
        | {"fsGroupChangePolicy": "OnRootMismatch"},
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": pool_selector(pool.name)},
            }
            for key in dict.fromkeys((pool.spec.rack_key, "kubernetes.io/hostname"))
            if key
        ],
        "containers": [_broker_container(pool, broker_id, claim_uid, settings)],
        "volumes": [
            {
                "name": "data",
                "persistentVolumeClaim": {"claimName": claim_name(pool.name, broker_id)},
            },
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
        ],
    }
    for name in ("nodeSelector", "tolerations", "priorityClassName"):
        if name in template:
            spec[name] = template[name]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": broker_name(pool.name, broker_id),
            "namespace": pool.namespace,
            "labels": {**template.get("labels", {}), **broker_labels(pool.name, broker_id)},
            "annotations": {
                **template.get("annotations", {}),
                "prometheus.io/scrape": "true",
                "prometheus.io/port": str(HTTP_PORT),
                "prometheus.io/path": "/metrics",
            },
            "ownerReferences": [pool_owner_reference(pool)],
        },
        "spec": spec,
    }


def pool_owner_reference(pool: BrokerPool) -> Object:
    """Return the owner reference for pods, Services and the budget.

    Never use it for claims and slices (S4).
    """
    return {
        "apiVersion": "tidemark.dev/v1alpha1",
        "kind": "BrokerPool",
        "name": pool.name,
        "uid": pool.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _broker_container(
    pool: BrokerPool, broker_id: BrokerId, claim_uid: str, settings: PodSettings
) -> Object:
    service = f"{broker_name(pool.name, broker_id)}.{pool.namespace}.svc"
    return {
        "name": "broker",
        "image": pool.spec.image,
        "imagePullPolicy": pool.spec.image_pull_policy,
        "env": [
            {"name": "TIDEMARK_BROKER_ID", "value": str(broker_id)},
            {"name": "TIDEMARK_POOL", "value": pool.pool},
            {"name": "TIDEMARK_DATA_DIR", "value": DATA_DIRECTORY},
            {"name": "TIDEMARK_CONTROLLERS", "value": settings.controllers},
            {
                "name": "TIDEMARK_ADVERTISED_HTTP_URL",
                "value": f"http://{service}:{HTTP_PORT}",
            },
            {"name": "TIDEMARK_CLAIM_UID", "value": claim_uid},
            {"name": "TIDEMARK_LOG_FORMAT", "value": settings.log_format},
            *_listeners_env(pool),
            {"name": "TIDEMARK_METRICS_PROFILE", "value": pool.spec.metrics_profile},
            *(
                {
                    "name": f"TIDEMARK_{GROUP_SETTINGS[name].upper().replace('-', '_')}",
                    "value": str(value),
                }
                for name, value in pool.spec.groups.items()
            ),
            *_topic_creation_env(pool),
            *_default_partitions_env(pool),
            _from_field("TIDEMARK_POD_UID", "metadata.uid"),
            _from_field("TIDEMARK_ADVERTISED_HOST", "status.podIP"),
        ],
        "ports": [
            {"name": "kafka", "containerPort": KAFKA_PORT},
            {"name": "http", "containerPort": HTTP_PORT},
            *({"name": each.name, "containerPort": each.port} for each in pool.spec.listeners),
        ],
        "resources": pool.spec.resources,
        "startupProbe": _http_probe("/healthz", period_s=1, failures=STARTUP_BUDGET_S),
        # Cheap and local: never depends on peers or the controller.
        "livenessProbe": _http_probe("/healthz", period_s=10, failures=6),
        "readinessProbe": _http_probe("/readyz", period_s=1, failures=2),
        "securityContext": restricted_container(),
        "volumeMounts": [
            {"name": "data", "mountPath": DATA_DIRECTORY},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }


def _listeners_env(pool: BrokerPool) -> list[Object]:
    found = []
    for name, protocol in (("TIDEMARK_LISTENERS", "Kafka"), ("TIDEMARK_HTTP_LISTENERS", "HTTP")):
        those = [each for each in pool.spec.listeners if each.protocol == protocol]
        if those:  # as before there were any: nothing is replaced for this
            value = ",".join(f"{each.name}:{each.port}" for each in those)
            found.append({"name": name, "value": value})
    return found


def _topic_creation_env(pool: BrokerPool) -> list[Object]:
    value = {"name": "TIDEMARK_AUTO_CREATE_TOPICS_ENABLE", "value": "true"}
    return [value] if pool.spec.creates_topics else []  # as before it could be wished for


def _default_partitions_env(pool: BrokerPool) -> list[Object]:
    """Return the variable only if it is not 1.

    So pods that were created before this field existed are not replaced.
    """
    value = {"name": "TIDEMARK_NUM_PARTITIONS", "value": str(pool.spec.default_partitions)}
    return [value] if pool.spec.default_partitions != 1 else []


def _http_probe(path: str, *, period_s: int, failures: int) -> Object:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _from_field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
