"""Build the pod of one broker. Its identity is its claim; everything else can be created again.

It is restricted by each rule of Pod Security and has no API credentials: its token is of use to the
controller only. The broker gets its
settings by environment (docs/design/architecture.md lists the ports).
"""

from dataclasses import dataclass

from tidemark_protocol.access_messages import CONTROLLER_AUDIENCE
from tidemark_protocol.ids import BrokerId

from tidemark_operator.api.broker_pool import GROUP_SETTINGS, BrokerPool
from tidemark_operator.api.kinds import Object
from tidemark_operator.api.pool_security import SecuritySpec, security
from tidemark_operator.resources.names import (
    CONTROLLER_TOKEN_VOLUME,
    TEMPLATE_ANNOTATION,
    broker_labels,
    broker_name,
    claim_name,
    pool_selector,
)
from tidemark_operator.resources.pod_template import (
    USER_ID,
    pull_secrets,
    restricted_container,
    restricted_pod,
    template_digest,
)
from tidemark_operator.resources.secret import ALL_BUNDLE_KEY, POOL_BUNDLE_KEY, trust_name

DATA_DIRECTORY = "/var/lib/tidemark"
KAFKA_PORT = 9092
HTTP_PORT = 8080
TOKEN_VARIABLE = "TIDEMARK_CONTROLLER_TOKEN_FILE"
TOKEN_DIRECTORY = "/var/run/secrets/tidemark"
TOKEN_SECONDS = 3600  # the kubelet replaces it after four fifths of that
TLS_VARIABLE = "TIDEMARK_TLS"
_TLS_VALUES = {"Optional": "optional", "Required": "true"}
AUTHENTICATION_VARIABLE = "TIDEMARK_AUTHENTICATION"
REPLICATION_PORT = 9091  # open with TLS, and where clients authenticate
TRUST_DIRECTORY = "/etc/tidemark/trust"
CLIENT_AUTHORITY_DIRECTORY = "/etc/tidemark/client-authority"
TERMINATION_GRACE_S = 30
# Recovery of a big log after a kill reads what was not checkpointed: an hour, then give up.
STARTUP_BUDGET_S = 3600


@dataclass(frozen=True, slots=True)
class PodSettings:
    """The settings of each broker pod that come from the operator's own installation."""

    # Where brokers find the controller: host:port of the operator's headless Service.
    controllers: str = "tidemark-operator:8070"
    controllers_with_tls: str = "tidemark-operator:8443"
    log_format: str = "json"
    # Whether pods of the former release, without a token, stay while nothing else changes.
    keeps_pods_without_token: bool = False
    user_id: int | None = USER_ID  # None: the platform assigns one


def broker_pod_manifest(
    pool: BrokerPool, broker_id: BrokerId, *, claim_uid: str, settings: PodSettings
) -> Object:
    """Return the pod; `claim_uid` is part of the storage identity that the broker reports (S7)."""
    manifest = _manifest(pool, broker_id, claim_uid, settings)
    manifest["metadata"]["annotations"][TEMPLATE_ANNOTATION] = template_digest(manifest)
    return manifest


def present_templates(
    pool: BrokerPool, broker_id: BrokerId, *, claim_uid: str, settings: PodSettings
) -> frozenset[str]:
    """Return the digests of the templates of which a pod need not be replaced."""
    manifest = _manifest(pool, broker_id, claim_uid, settings)
    found = {template_digest(manifest)}
    if settings.keeps_pods_without_token:
        found.add(template_digest(_without_token(manifest)))
    return frozenset(found)


def _without_token(manifest: Object) -> Object:
    """Return the manifest as the former release made it."""
    spec = manifest["spec"]
    (container,) = spec["containers"]
    without = {
        "env": [each for each in container["env"] if each["name"] != TOKEN_VARIABLE],
        "volumeMounts": _others(container["volumeMounts"]),
    }
    return {
        **manifest,
        "spec": {
            **spec,
            "containers": [{**container, **without}],
            "volumes": _others(spec["volumes"]),
        },
    }


def _others(volumes: list[Object]) -> list[Object]:
    return [each for each in volumes if each["name"] != CONTROLLER_TOKEN_VOLUME]


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
            controller_token_volume(),
            *_trust_volume(pool),
            *_client_authority_volume(pool),
        ],
    }
    spec |= pull_secrets(pool.spec.image_pull_secrets)
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
                **({"prometheus.io/scheme": "https"} if _requires_tls(pool) else {}),
            },
            "ownerReferences": [pool_owner_reference(pool)],
        },
        "spec": spec,
    }


def controller_token_volume() -> Object:
    """Return the volume with the token by which the controller knows the pod."""
    token = {
        "path": "token",
        "audience": CONTROLLER_AUDIENCE,
        "expirationSeconds": TOKEN_SECONDS,
    }
    return {
        "name": CONTROLLER_TOKEN_VOLUME,
        "projected": {"sources": [{"serviceAccountToken": token}]},
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
    has_tls = pool.spec.security.has_tls
    scheme = "https" if _requires_tls(pool) else "http"
    return {
        "name": "broker",
        "image": pool.spec.image,
        "imagePullPolicy": pool.spec.image_pull_policy,
        "env": [
            {"name": "TIDEMARK_BROKER_ID", "value": str(broker_id)},
            {"name": "TIDEMARK_POOL", "value": pool.pool},
            {"name": "TIDEMARK_DATA_DIR", "value": DATA_DIRECTORY},
            {
                "name": "TIDEMARK_CONTROLLERS",
                "value": settings.controllers_with_tls if has_tls else settings.controllers,
            },
            {"name": TOKEN_VARIABLE, "value": f"{TOKEN_DIRECTORY}/token"},
            {
                "name": "TIDEMARK_ADVERTISED_HTTP_URL",
                "value": f"{scheme}://{service}:{HTTP_PORT}",
            },
            {"name": "TIDEMARK_CLAIM_UID", "value": claim_uid},
            {"name": "TIDEMARK_LOG_FORMAT", "value": settings.log_format},
            *_listeners_env(pool),
            *_authentication_env(pool),
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
            *_tls_env(pool),
            _from_field("TIDEMARK_POD_UID", "metadata.uid"),
            _from_field("TIDEMARK_ADVERTISED_HOST", "status.podIP"),
        ],
        "ports": [
            {"name": "kafka", "containerPort": KAFKA_PORT},
            {"name": "http", "containerPort": HTTP_PORT},
            *_replication_port(pool),
            *({"name": each.name, "containerPort": each.port} for each in pool.spec.listeners),
        ],
        "resources": pool.spec.resources,
        "startupProbe": _http_probe(pool, "/healthz", period_s=1, failures=STARTUP_BUDGET_S),
        # Cheap and local: never depends on peers or the controller.
        "livenessProbe": _http_probe(pool, "/healthz", period_s=10, failures=6),
        "readinessProbe": _http_probe(pool, "/readyz", period_s=1, failures=2),
        "securityContext": restricted_container(),
        "volumeMounts": [
            {"name": "data", "mountPath": DATA_DIRECTORY},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": CONTROLLER_TOKEN_VOLUME, "mountPath": TOKEN_DIRECTORY, "readOnly": True},
            *(
                [{"name": "trust", "mountPath": TRUST_DIRECTORY, "readOnly": True}]
                if has_tls
                else []
            ),
            *_client_authority_mount(pool),
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


def _authentication_env(pool: BrokerPool) -> list[Object]:
    """Return the variables only if clients authenticate, so that open pools keep their pods."""
    found = []
    if pool.spec.security.authenticates:
        value = pool.spec.security.authentication
        found.append({"name": AUTHENTICATION_VARIABLE, "value": value})
    own = [
        f"{each.name}:{each.authentication}" for each in pool.spec.listeners if each.authentication
    ]
    if own:
        found.append({"name": "TIDEMARK_LISTENER_AUTHENTICATION", "value": ",".join(own)})
    return found


def _replication_port(pool: BrokerPool) -> list[Object]:
    if not pool.spec.security.has_replication_port:
        return []
    return [{"name": "replication", "containerPort": REPLICATION_PORT}]


def _topic_creation_env(pool: BrokerPool) -> list[Object]:
    value = {"name": "TIDEMARK_AUTO_CREATE_TOPICS_ENABLE", "value": "true"}
    return [value] if pool.spec.creates_topics else []  # as before it could be wished for


def _default_partitions_env(pool: BrokerPool) -> list[Object]:
    """Return the variable only if it is not 1.

    So pods that were created before this field existed are not replaced.
    """
    value = {"name": "TIDEMARK_NUM_PARTITIONS", "value": str(pool.spec.default_partitions)}
    return [value] if pool.spec.default_partitions != 1 else []


def _tls_env(pool: BrokerPool) -> list[Object]:
    """Return the variables of a pool with TLS only: pods of others are not replaced."""
    if not pool.spec.security.has_tls:
        return []
    found = [
        {"name": TLS_VARIABLE, "value": _TLS_VALUES[pool.spec.security.tls.mode]},
        # Commands in the pod trust it too.
        {"name": "TIDEMARK_CA_FILE", "value": f"{TRUST_DIRECTORY}/{ALL_BUNDLE_KEY}"},
    ]
    for name, has_tls in (("TIDEMARK_PLAIN_LISTENERS", False), ("TIDEMARK_TLS_LISTENERS", True)):
        names = ",".join(each.name for each in pool.spec.listeners if each.tls is has_tls)
        if names:
            found.append({"name": name, "value": names})
    if _has_client_authority(pool):
        path = f"{CLIENT_AUTHORITY_DIRECTORY}/{POOL_BUNDLE_KEY}"
        found.append({"name": "TIDEMARK_CLIENT_CA_FILE", "value": path})
    return found


def _requires_tls(pool: BrokerPool) -> bool:
    """Return whether the HTTP port serves no plain request: probes and URLs need `https` then."""
    return pool.spec.security.tls.mode == "Required"


def security_of(pod: Object) -> SecuritySpec:
    """Return the security of the pool that the pod was created for."""
    containers = pod.get("spec", {}).get("containers", ())  # others may have added some
    env = next((each.get("env", ()) for each in containers if each["name"] == "broker"), ())
    values = {each["name"]: each.get("value", "") for each in env}
    modes = {value: mode for mode, value in _TLS_VALUES.items()}
    return security(
        modes.get(values.get(TLS_VARIABLE, ""), "Disabled"),
        values.get(AUTHENTICATION_VARIABLE, "none"),
    )


def _trust_volume(pool: BrokerPool) -> list[Object]:
    if not pool.spec.security.has_tls:
        return []
    return [{"name": "trust", "configMap": {"name": trust_name(pool.name)}}]


def _has_client_authority(pool: BrokerPool) -> bool:
    security = pool.spec.security
    return security.has_tls and security.client_authority is not None


def _client_authority_volume(pool: BrokerPool) -> list[Object]:
    """Return the volume of the object with the authorities of clients: its certificates only.

    The kubelet mounts it, so the operator needs no right to read it. Brokers start without it.
    """
    authority = pool.spec.security.client_authority
    if not _has_client_authority(pool) or authority is None:
        return []
    items = [{"key": POOL_BUNDLE_KEY, "path": POOL_BUNDLE_KEY}]
    source: Object = {"items": items, "optional": True}
    volume: Object = {"name": "client-authority"}
    if authority.secret_name:
        volume["secret"] = {"secretName": authority.secret_name, **source}
    else:
        volume["configMap"] = {"name": authority.config_map_name, **source}
    return [volume]


def _client_authority_mount(pool: BrokerPool) -> list[Object]:
    if not _has_client_authority(pool):
        return []
    path = CLIENT_AUTHORITY_DIRECTORY
    return [{"name": "client-authority", "mountPath": path, "readOnly": True}]


def _http_probe(pool: BrokerPool, path: str, *, period_s: int, failures: int) -> Object:
    # The kubelet verifies no certificate.
    scheme = {"scheme": "HTTPS"} if _requires_tls(pool) else {}
    return {
        "httpGet": {"path": path, "port": "http", **scheme},
        "periodSeconds": period_s,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _from_field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
