"""Read the annotation by which a user asks for another certificate authority of a pool."""

import logging
from datetime import datetime

from tidemark_operator.api.kinds import Object

RENEW_AUTHORITY_ANNOTATION = "tidemark.dev/renew-authority"

_log = logging.getLogger(__name__)


def asked_at_s(pool: Object) -> int:
    """Return the moment of the annotation (RFC 3339) in seconds; 0 without one, or for another."""
    annotations = pool["metadata"].get("annotations") or {}
    text = str(annotations.get(RENEW_AUTHORITY_ANNOTATION, ""))
    if not text:
        return 0
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        _log.warning("annotation ignored", extra={"annotation": RENEW_AUTHORITY_ANNOTATION})
        return 0
    return int(moment.timestamp())
