"""What all our pods have in common: no rights but those they need, and a digest that tells a
changed template from the same one. Pure."""

import hashlib
import json
from typing import Any

USER_ID = 10001


def restricted_pod() -> dict[str, Any]:
    """Pod security standard `restricted`; volumes belong to our group."""
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
