"""Judge the same samples under another durability setting: its cost or benefit.

`min.insync.replicas` only moves a limit. With fewer replicas, those with the lowest ids are kept,
and a leader outside them is taken to be one of them; with more, the new ones never fail: a best
case. `replica.lag.time.max.ms` moves the limit of R4; the ISR stays as it was.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tidemark_audit.aggregation.samples import Floats, Longs
from tidemark_audit.analysis.step_function import StepFunction


class BadSetting(ValueError):
    """Report a setting that cannot be judged."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    min_in_sync_replicas: int | None = None
    replicas: int | None = None
    lag_max_seconds: float | None = None

    def words(self) -> str:
        said = (
            ("min.insync.replicas", self.min_in_sync_replicas),
            ("replicationFactor", self.replicas),
            (
                "replica.lag.time.max.ms",
                None if self.lag_max_seconds is None else round(1000 * self.lag_max_seconds),
            ),
        )
        return ", ".join(f"{name}={value}" for name, value in said if value is not None)


def what_if_of(text: str) -> WhatIf:
    """Parse `min.insync.replicas=1,replicationFactor=2`.

    Raises BadSetting.
    """
    found: dict[str, int] = {}
    for entry in text.split(","):
        name, _, number = entry.strip().partition("=")
        if name not in ("min.insync.replicas", "replicationFactor", "replica.lag.time.max.ms"):
            raise BadSetting(f"{name!r} is not a setting of --what-if")
        if name in found:
            raise BadSetting(f"{name} appears twice")
        if not number.isdecimal() or int(number) == 0:
            raise BadSetting(f"{entry!r}: expected a number above 0")
        found[name] = int(number)
    lag = found.get("replica.lag.time.max.ms")
    return WhatIf(
        found.get("min.insync.replicas"),
        found.get("replicationFactor"),
        None if lag is None else lag / 1000,
    )


@dataclass(frozen=True, slots=True)
class Counts:
    """Hold each segment's counts, as the leader reports them or as they would have been."""

    in_sync: Floats
    replicas: Floats
    min_in_sync: Floats


def as_if(
    what_if: WhatIf,
    counts: Counts,
    brokers: tuple[str, ...],
    leaders: Longs,
    followers: Mapping[tuple[str, str], StepFunction],
    times_ms: Longs,
) -> Counts:
    in_sync, replicas, min_in_sync = counts.in_sync, counts.replicas, counts.min_in_sync
    wanted = what_if.replicas
    if wanted is not None:
        more = wanted >= replicas
        kept = brokers[:wanted]
        out = np.zeros(len(times_ms))
        for (broker, follower), function in followers.items():
            if follower in kept and broker in brokers:
                leads = leaders == brokers.index(broker)
                out += leads & (function.at(times_ms) == 0.0)
        fewer_in_sync = np.where(np.isnan(in_sync), np.nan, wanted - out)
        in_sync = np.where(more, in_sync + (wanted - replicas), fewer_in_sync)
        replicas = np.where(np.isnan(replicas), np.nan, float(wanted))
        min_in_sync = np.minimum(min_in_sync, replicas)
    if what_if.min_in_sync_replicas is not None:
        requested = np.where(np.isnan(min_in_sync), np.nan, float(what_if.min_in_sync_replicas))
        min_in_sync = np.minimum(requested, replicas)
    return Counts(in_sync, replicas, min_in_sync)
