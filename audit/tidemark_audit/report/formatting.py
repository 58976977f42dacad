"""Numbers as people read them: durations, shares, counts and moments (UTC). Pure."""

from datetime import UTC, datetime

from tidemark_audit.rules.evaluation import percent, two_digits

NBSP = "\u00a0"
THIN = "\u202f"

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms"))


def duration(ms: float) -> str:
    """Format the two largest units: `2 h 5 min`, `850 ms`, `2.5 s`; infinity is `never`."""
    if ms == float("inf"):
        return "never"
    if ms < 999.5:
        return f"{ms:.0f}{NBSP}ms"
    if ms < 59_500:
        return f"{two_digits(ms / 1000)}{NBSP}s"
    rest = round(ms / 1000) * 1000
    parts: list[tuple[int, str]] = []
    for size, unit in _UNITS[:-1]:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append((count, unit))
    return " ".join(f"{count}{NBSP}{unit}" for count, unit in parts[:2] if count)


def seconds(value: float | None) -> str:
    return "\u2013" if value is None else duration(1000 * value)


def share(ratio: float) -> str:
    """Return the share as the rules write it, so that the page has one number for one thing."""
    return percent(ratio).replace(" ", NBSP)


def count(number: float | None) -> str:
    """Thousands apart: `12 345`."""
    if number is None:
        return "\u2013"
    return f"{number:,.0f}".replace(",", THIN)


def plural(number: int, noun: str) -> str:
    return f"{count(number)} {noun}{'' if number == 1 else 's'}"


def moment(ms: int, *, with_date: bool = True) -> str:
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return at.strftime("%d %b %H:%M:%S" if with_date else "%H:%M:%S").lstrip("0")


def day(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%d %B %Y").lstrip("0")


def span(start_ms: int, end_ms: int) -> str:
    """`21 Nov 12:00:05 to 12:00:09 (4 s)`; a moment where both are the same."""
    if start_ms == end_ms:
        return moment(start_ms)
    same_day = day(start_ms) == day(end_ms)
    end = moment(end_ms, with_date=not same_day)
    return f"{moment(start_ms)} to {end} ({duration(end_ms - start_ms)})"
