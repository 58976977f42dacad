"""Build what all pods share: restricted rights, and a digest that shows a changed template."""

import hashlib
import json

from tidemark_operator.api.kinds import Object

USER_ID = 10001


def restricted_pod() -> Object:
    """Return the security context of Pod Security's `restricted`; volumes belong to our group."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
        "fsGroup": USER_ID,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def restricted_container() -> Object:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def template_digest(template: Object) -> str:
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
