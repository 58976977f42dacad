"""Numbers as people read them: durations, shares, counts and moments (UTC). Pure."""

from datetime import UTC, datetime

NBSP = "\u00a0"
THIN = "\u202f"

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"), (1, "ms"))


def duration(ms: float) -> str:
    """The two largest units: `2 h 5 min`, `850 ms`, `12.5 s`; without end: `never`."""
    if ms == float("inf"):
        return "never"
    if ms < 1000:
        return f"{ms:.0f}{NBSP}ms"
    if ms < 60_000:
        return f"{ms / 1000:.4g}{NBSP}s"
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
    """Never 100 % for less than all, nor 0 % for more than nothing."""
    percent = 100 * ratio
    for digits in (1, 2, 3, 4):
        text = f"{percent:.{digits}f}"
        if 0 < percent < 100 and float(text) in (0.0, 100.0):
            continue
        return f"{text}{NBSP}%"
    return f"{'< 0.0001' if percent < 50 else '> 99.9999'}{NBSP}%"


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
