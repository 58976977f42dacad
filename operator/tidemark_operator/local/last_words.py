"""Why a broker process ended, as far as the last line of its log says it."""

import json
from pathlib import Path

TAIL_BYTES = 16_384


def last_words(log_path: Path) -> str:
    """`message: reason` of an error; "" of anything else, as of a process that was killed."""
    try:
        with log_path.open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - TAIL_BYTES))
            lines = log.read().splitlines()
        found = json.loads(lines[-1]) if lines else {}
    except (OSError, ValueError):
        return ""
    if not isinstance(found, dict) or found.get("level") != "error":
        return ""
    return ": ".join(str(found[key]) for key in ("message", "reason") if found.get(key))
