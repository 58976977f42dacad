"""Points in time as they are given on the command line: RFC 3339, relative to now, or epoch ms.

`@MS` is epoch milliseconds as rpk has it, `s@MS` as kcat has it; digits alone are an offset.
"""

import re
from datetime import UTC, datetime

MOMENT_HELP = "2026-01-31T12:00:00Z, -1h (also s, m, d), or @MS in ms since 1970"
MAX_INT64 = 2**63 - 1
_MS_OF_UNIT = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_RELATIVE = re.compile(r"-(\d{1,12})(ms|s|m|h|d)")


def is_relative(text: str) -> bool:
    return _match(text) is not None


def _match(text: str) -> re.Match[str] | None:
    return _RELATIVE.fullmatch(text) if text.isascii() else None


def moment_ms(text: str, now_ms: int) -> int | None:
    """Return ms since 1970, at least 0; None where the text is no point in time."""
    named = text.removeprefix("s") if text.startswith("s@") else text
    named = named.removeprefix("@")
    if named.isascii() and named.isdecimal():
        return int(named) if named != text and int(named) <= MAX_INT64 else None
    if found := _match(named):
        return max(0, now_ms - int(found[1]) * _MS_OF_UNIT[found[2]])
    try:
        moment = datetime.fromisoformat(named)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1000))
