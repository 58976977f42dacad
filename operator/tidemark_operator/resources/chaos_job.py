"""Build the Jobs of a ChaosExperiment: one that runs it, one that heals what a run left."""

from dataclasses import dataclass

from tidemark_protocol.access_messages import pool_audience

from tidemark_operator.api.chaos_experiment import ChaosExperiment
from tidemark_operator.api.kinds import CHAOS_EXPERIMENT, JOB, Object
from tidemark_operator.resources.names import MANAGED_BY
from tidemark_operator.resources.pod_template import (
    USER_ID,
    pull_secrets,
    restricted_container,
    restricted_pod,
)
from tidemark_operator.resources.secret import POOL_BUNDLE_KEY, trust_name

EXPERIMENT_LABEL = "tidemark.dev/chaos-experiment"
UID_LABEL = "tidemark.dev/chaos-uid"  # of the experiment: a later one may have the same name
CONTAINER = "chaos"
GRACE_SECONDS = 45  # to resume brokers and delete the topic after SIGTERM
HEAL_ATTEMPTS_MORE = 4
HEAL_SECONDS = 300
TOKEN_DIRECTORY = "/var/run/secrets/tidemark"
TOKEN_PATH = "token"
TOKEN_SECONDS = 3600  # renewed by the kubelet
TRUST_DIRECTORY = "/var/run/tidemark/trust"
KEPT_SECONDS = 600  # a heal Job that its controller could not delete
# What kopf watches Jobs by, on the server's side.
JOB_SELECTOR = f"app.kubernetes.io/managed-by={MANAGED_BY},app.kubernetes.io/component=chaos"


@dataclass(frozen=True, slots=True)
class ChaosJobSettings:
    image: str
    image_pull_policy: str
    service_account: str  # of the namespace of the experiment
    operator_namespace: str
    resources: Object
    image_pull_secrets: tuple[Object, ...] = ()
    user_id: int | None = USER_ID  # None: the platform assigns one


def run_name(experiment: str) -> str:
    return f"{experiment}-run"


def heal_name(experiment: str) -> str:
    return f"{experiment}-heal"


def experiment_of(item: Object) -> str | None:
    """Return the name of the experiment that a Job or pod belongs to."""
    return (item["metadata"].get("labels") or {}).get(EXPERIMENT_LABEL)


def is_job_of(job: Object, experiment: ChaosExperiment) -> bool:
    """Return whether a Job is of this experiment, not of an earlier one of the same name."""
    labels = job["metadata"].get("labels") or {}
    return bool(labels.get(UID_LABEL) == experiment.metadata.uid)


def job_labels(experiment: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "tidemark",
        "app.kubernetes.io/component": "chaos",
        "app.kubernetes.io/instance": experiment,
        "app.kubernetes.io/managed-by": MANAGED_BY,
        EXPERIMENT_LABEL: experiment,
    }


def run_job(experiment: ChaosExperiment, settings: ChaosJobSettings) -> Object:
    """Return the Job of the only run: it is never tried again, because a second one would differ.

    The experiment owns it, so that its log stays as long as the experiment.
    """
    owner = {
        "apiVersion": CHAOS_EXPERIMENT.api_version,
        "kind": CHAOS_EXPERIMENT.kind,
        "name": experiment.name,
        "uid": experiment.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    manifest = _job(experiment, run_name(experiment.name), "run", settings)
    _add_credentials(manifest["spec"]["template"]["spec"], experiment)
    manifest["metadata"]["ownerReferences"] = [owner]
    # A pod that is being deleted still runs, so it is not replaced.
    manifest["spec"] |= {"backoffLimit": 0, "podReplacementPolicy": "Failed"}
    return manifest


def heal_job(experiment: ChaosExperiment, settings: ChaosJobSettings) -> Object:
    """Return the Job that heals.

    It has no owner: a deletion in the foreground would delete it before the experiment.
    """
    manifest = _job(experiment, heal_name(experiment.name), "heal", settings)
    manifest["spec"] |= {
        "backoffLimit": HEAL_ATTEMPTS_MORE,
        "activeDeadlineSeconds": HEAL_SECONDS,
        "ttlSecondsAfterFinished": KEPT_SECONDS,
    }
    return manifest


def _add_credentials(pod: Object, experiment: ChaosExperiment) -> None:
    """Let the workload authenticate at brokers, and trust them, in a pool that asks for that.

    In a plain pool the token is not asked for, and there is no ConfigMap of trusted authorities.
    """
    pool = experiment.spec.pool
    token: Object = {
        "path": TOKEN_PATH,
        "audience": pool_audience(f"{experiment.namespace}/{pool}"),
        "expirationSeconds": TOKEN_SECONDS,
    }
    pod["volumes"] += [
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}},
        {"name": "trust", "configMap": {"name": trust_name(pool), "optional": True}},
    ]
    (container,) = pod["containers"]
    container["volumeMounts"] += [
        {"name": "token", "mountPath": TOKEN_DIRECTORY, "readOnly": True},
        {"name": "trust", "mountPath": TRUST_DIRECTORY, "readOnly": True},
    ]
    container["env"] += [
        {"name": "TIDEMARK_TOKEN_FILE", "value": f"{TOKEN_DIRECTORY}/{TOKEN_PATH}"},
        {"name": "TIDEMARK_CA_FILE", "value": f"{TRUST_DIRECTORY}/{POOL_BUNDLE_KEY}"},
    ]


def _job(experiment: ChaosExperiment, name: str, action: str, settings: ChaosJobSettings) -> Object:
    labels = job_labels(experiment.name)
    container = {
        "name": CONTAINER,
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "command": ["/usr/bin/tini", "--", "tidemark-chaos"],
        "args": [action, experiment.name],
        "env": [
            {
                "name": "POD_NAMESPACE",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}},
            },
            {"name": "OPERATOR_NAMESPACE", "value": settings.operator_namespace},
        ],
        "resources": settings.resources,
        "securityContext": restricted_container(),
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    pod = {
        "serviceAccountName": settings.service_account,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "enableServiceLinks": False,
        "securityContext": restricted_pod(settings.user_id),
        **pull_secrets(settings.image_pull_secrets),
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {
            "name": name,
            "namespace": experiment.namespace,
            "labels": {**labels, UID_LABEL: experiment.metadata.uid},
        },
        "spec": {"template": {"metadata": {"labels": {**labels, _ACTION: action}}, "spec": pod}},
    }


_ACTION = "tidemark.dev/chaos-action"
RUN_PODS = {_ACTION: "run"}
