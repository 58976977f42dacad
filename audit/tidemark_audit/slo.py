"""Objectives: defaults of the audit, and a file's overrides for all topics or for some.

objectives: {fullyReplicated: 0.999, longestUnderMinIsrSeconds: 60}
topics:
  - topic: orders          # a name, or a pattern as in a shell: pay-*
    objectives: {writable: 0.9999}
"""

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
import yaml


@dataclass(frozen=True, slots=True)
class Objectives:
    """Shares of observed partition-time, durations in seconds, counts."""

    fully_replicated: float = 0.999  # planned absences left out
    fully_replicated_with_planned: float = 0.995
    writable: float = 0.9999
    longest_under_min_isr_seconds: float = 60.0
    longest_under_replicated_seconds: float = 600.0
    lag_p99_share_of_max: float = 1 / 3  # of replica.lag.time.max.ms
    lag_p99_largest_appends: float = 2.0
    lag_p99_records_floor: float = 100.0  # appends of one record make no rule of two
    one_failure_from_loss_seconds: float = 0.0
    one_failure_from_stall: float = 0.001
    isr_flaps_per_partition_day: float = 1.0
    leader_moves_per_partition_day: float = 2.0
    coverage: float = 0.99
    clock_skew_seconds: float = 1.0


SHARES = (
    "fully_replicated", "fully_replicated_with_planned", "writable", "one_failure_from_stall",
    "coverage",
)  # fmt: skip


class BadObjectives(ValueError):
    """Report an SLO file that cannot be parsed."""


@dataclass(frozen=True, slots=True)
class Slo:
    objectives: Objectives = Objectives()
    topics: tuple[tuple[str, dict[str, float]], ...] = ()

    def of(self, topic: str) -> Objectives:
        """Return a topic's objectives: the last matching entry wins, field by field."""
        found = self.objectives
        for pattern, overrides in self.topics:
            if fnmatchcase(topic, pattern):
                found = replace(found, **overrides)
        return found


class _Topic(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    objectives: dict[str, float]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    objectives: dict[str, float] = {}
    topics: list[_Topic] = []


def read_slo(path: Path) -> Slo:
    """Read an SLO file.

    Raises BadObjectives, which names the file and what is wrong in it.
    """
    try:
        return slo_of_text(path.read_text())
    except (OSError, UnicodeDecodeError, BadObjectives) as error:
        raise BadObjectives(f"{path}: {error}") from error


def slo_of_text(text: str) -> Slo:
    """Read objectives from YAML, or from JSON, which is YAML too."""
    try:
        return slo_of(yaml.safe_load(text) or {})
    except yaml.YAMLError as error:
        raise BadObjectives(str(error)) from error


def slo_of(document: Any) -> Slo:
    """Read objectives from a parsed file, or from `spec.slo` of a ReplicationAudit.

    Raises BadObjectives.
    """
    try:
        read = msgspec.convert(document, _File)
    except msgspec.ValidationError as error:
        raise BadObjectives(str(error)) from error
    return Slo(
        replace(Objectives(), **_fields(read.objectives)),
        tuple((entry.topic, _fields(entry.objectives)) for entry in read.topics),
    )


def _fields(written: dict[str, float]) -> dict[str, float]:
    known = {_camel(name): name for name in Objectives.__slots__}
    found = {}
    for name, value in written.items():
        if name not in known:
            raise BadObjectives(f"unknown objective {name!r}; known are {', '.join(known)}")
        if not value >= 0 or (known[name] in SHARES and value > 1):
            raise BadObjectives(f"{name}: {value} is not a {'share' if value > 1 else 'limit'}")
        found[known[name]] = value
    return found


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
