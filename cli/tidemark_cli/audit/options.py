"""Times, durations and objectives as people write them on the command line of the audit."""

import argparse
import contextlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tidemark_client.errors import CommandFailed

if TYPE_CHECKING:
    from tidemark_audit.analysis.what_if import WhatIf
    from tidemark_audit.slo import Slo
    from tidemark_audit.sources.source import Source, Window

EXIT_USAGE = 4  # 2 would say that records are lost
MOST_SECONDS = 60_000_000_000  # two thousand years either way
UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def window_of(arguments: argparse.Namespace, sources: "Sequence[Source]") -> "tuple[Window, int]":
    """Return the window [start, end), and how many ms up to now are left out as not settled.

    The end is the requested one, else the last settled moment of a running Prometheus, else the
    last sample of the files. Raises CommandFailed and SourceError.
    """
    from tidemark_audit.sources.source import EARLIEST_MS, Window, last_sample_ms

    start = None if arguments.start is None else time_ms(arguments.start, "--start")
    end = None if arguments.end is None else time_ms(arguments.end, "--end")
    length = None if arguments.window is None else duration_ms(arguments.window, "--window")
    if start is not None and length is not None:
        raise CommandFailed(
            expected="--start or --window",
            found="both",
            to_do="remove one of them",
            exit_code=EXIT_USAGE,
        )
    unsettled = 0
    if end is None and any(source.is_live for source in sources):
        unsettled = duration_ms(arguments.settle, "--settle")
        end = int(time.time() * 1000) - unsettled
        if start is None and length is None:
            length = UNITS_MS["d"]
    if end is None and length is not None:
        end = last_sample_ms(sources)
    if start is None and length is not None and end is not None:
        start = max(end - length, EARLIEST_MS)
    if start is not None and end is not None and start >= end:
        raise CommandFailed(
            expected="a window that starts before it ends",
            found=f"{start} ms to {end} ms",
            to_do="check --start, --end and --window",
            exit_code=EXIT_USAGE,
        )
    return Window(start, end), unsettled


def objectives(text: str | None) -> "Slo":
    """Read objectives from a file, or from a JSON document in braces.

    Raises CommandFailed.
    """
    from tidemark_audit.slo import BadObjectives, Slo, read_slo, slo_of_text

    if text is None:
        return Slo()
    try:
        return slo_of_text(text) if text.startswith("{") else read_slo(Path(text))
    except BadObjectives as error:
        raise CommandFailed(
            expected="objectives in YAML",
            found=str(error),
            to_do="see docs/user/audit-rules.md for the names and units",
            exit_code=EXIT_USAGE,
        ) from error


def what_if_settings(text: str | None) -> "WhatIf | None":
    """Read the settings of --what-if.

    Raises CommandFailed.
    """
    from tidemark_audit.analysis.what_if import BadSetting, what_if_of

    try:
        return None if text is None else what_if_of(text)
    except BadSetting as error:
        raise CommandFailed(
            expected="settings such as min.insync.replicas=1,replicationFactor=2",
            found=str(error),
            to_do="use min.insync.replicas, replicationFactor or replica.lag.time.max.ms",
            exit_code=EXIT_USAGE,
        ) from error


def time_ms(text: str, option: str) -> int:
    """RFC 3339, or seconds since 1970. Raises CommandFailed."""
    number = _number(text)
    if number is not None and abs(number) <= MOST_SECONDS:
        return round(number * 1000)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        from tidemark_audit.sources.source import unit_of

        unit = "" if number is None else unit_of(number)
        expected = f"{option} such as 2026-05-01T12:00:00Z, or seconds since 1970"
        raise _bad_time(expected, text, unit) from error
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def duration_ms(text: str, option: str) -> int:
    """Parse a duration as Prometheus writes it: 500ms, 15s, 1h.

    Raises CommandFailed.
    """
    number, unit = (text[:-2], 1) if text.endswith("ms") else (text[:-1], UNITS_MS.get(text[-1:]))
    if unit is None or not number.isdecimal():
        raise _bad_time(f"{option} such as 500ms, 15s, 5m, 24h, 7d or 2w", text)
    return int(number) * unit


def _number(text: str) -> float | None:
    with contextlib.suppress(ValueError):
        return float(text)
    return None


def _bad_time(expected: str, text: str, unit: str = "") -> CommandFailed:
    return CommandFailed(
        expected=expected, found=repr(text) + unit, to_do="use this format", exit_code=EXIT_USAGE
    )
