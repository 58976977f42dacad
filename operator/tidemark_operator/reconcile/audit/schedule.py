"""Decide when a scheduled audit is overdue, from its schedule and its last success."""

from dataclasses import dataclass

from tidemark_operator.api.replication_audit import AuditSpec

PERIODS = 2  # a run that is late or fails once is none yet
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_WEEK, _MONTH, _YEAR = 7 * _DAY, 31 * _DAY, 366 * _DAY
_MACROS = {
    "@hourly": _HOUR,
    "@daily": _DAY,
    "@midnight": _DAY,
    "@weekly": _WEEK,
    "@monthly": _MONTH,
    "@yearly": _YEAR,
    "@annually": _YEAR,
}


@dataclass(frozen=True, slots=True)
class Schedule:
    """The schedule of an audit that should run by itself."""

    created_time: str  # RFC 3339
    period_seconds: int


def schedule_of(spec: AuditSpec, created_time: str) -> Schedule | None:
    """Return the schedule, or None if there is none, it is suspended or cannot be read here."""
    if spec.schedule is None or spec.is_suspended:
        return None
    period = period_seconds(spec.schedule)
    return None if period is None else Schedule(created_time, period)


def period_seconds(schedule: str) -> int | None:
    """Return a bound of the time between two runs, or None for an invalid schedule."""
    if schedule.startswith("@"):
        return _MACROS.get(schedule)
    fields = schedule.split()
    if len(fields) != 5:
        return None
    minute, hour, day, month, weekday = (field in ("*", "?") for field in fields)
    if not month:
        return _YEAR
    if not day:
        # Either of the two days counts where both are named.
        return _MONTH if weekday else _WEEK
    if not weekday:
        return _WEEK
    if not hour:
        return _DAY
    return _MINUTE if minute else _HOUR
