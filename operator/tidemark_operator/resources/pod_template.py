"""Build what all pods share: restricted rights, and a digest that shows a changed template."""

import hashlib
import json
from typing import Any

USER_ID = 10001


def restricted_pod() -> dict[str, Any]:
    """Return the security context of Pod Security's `restricted`; volumes belong to our group."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER_ID,
        "runAsGroup": USER_ID,
        "fsGroup": USER_ID,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def restricted_container() -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def template_digest(template: dict[str, Any]) -> str:
    text = json.dumps(template, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
