"""Build what all pods share: restricted rights, and a digest that shows a changed template."""

import hashlib
import json
from collections.abc import Iterable

from tidemark_operator.api.kinds import Object

USER_ID = 10001


def restricted_pod(user_id: int | None = USER_ID) -> Object:
    """Return the security context of Pod Security's `restricted`; volumes belong to our group.

    Without a user id the platform assigns user and groups (OpenShift's restricted-v2).
    """
    context: Object = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if user_id is not None:
        context |= {"runAsUser": user_id, "runAsGroup": user_id, "fsGroup": user_id}
    return context


def restricted_container() -> Object:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def pull_secrets(names: Iterable[Object]) -> Object:
    """Return the field of a pod's spec, or none, so that pods without such Secrets stay."""
    found = list(names)
    return {"imagePullSecrets": found} if found else {}


def template_digest(template: Object) -> str:
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
