"""Build what a client of a closed pool has: a ServiceAccount, its rights, trust and a token."""

from typing import Any

CLIENT = "tidemark-demo"
TRUST_DIRECTORY = "/etc/tidemark/trust"
TOKEN_DIRECTORY = "/var/run/secrets/tidemark"


def client_objects(namespace: str) -> list[dict[str, Any]]:
    """Return the ServiceAccount, which may write and read all topics of the namespace."""
    rbac = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": CLIENT, "namespace": namespace}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": CLIENT}},
        *(
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": f"{CLIENT}-{role}"},
                "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": f"tidemark-{role}"},
                "subjects": [subject],
            }
            for role in ("producer", "consumer")
        ),
    ]


def as_client(pod: dict[str, Any], namespace: str, pool: str) -> dict[str, Any]:
    """Return the pod with the ServiceAccount's token, and the trust in the pool's brokers."""
    token = {
        "path": "token",
        "audience": f"tidemark/{namespace}/{pool}",
        "expirationSeconds": 3600,
    }
    settings = {
        "env": [
            {"name": "TIDEMARK_CA_FILE", "value": f"{TRUST_DIRECTORY}/ca.crt"},
            {"name": "TIDEMARK_TOKEN_FILE", "value": f"{TOKEN_DIRECTORY}/token"},
        ],
        "volumeMounts": [
            {"name": "trust", "mountPath": TRUST_DIRECTORY, "readOnly": True},
            {"name": "token", "mountPath": TOKEN_DIRECTORY, "readOnly": True},
        ],
    }
    volumes = [
        {"name": "trust", "configMap": {"name": f"{pool}-trust"}},
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": token}]}},
    ]
    spec = pod["spec"]
    containers = [{**each, **settings} for each in spec["containers"]]
    more = {"serviceAccountName": CLIENT, "containers": containers, "volumes": volumes}
    return {**pod, "spec": {**spec, **more}}
