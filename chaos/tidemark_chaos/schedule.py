"""Derive the planned faults from an experiment and its seed: the same seed, the same plan.

A plan names roles, not brokers: which broker leads is known only when the fault begins. What is
left to chance (partition, jitter, one of several brokers) is drawn here.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from tidemark_chaos.spec import (
    OF_THE_NETWORK,
    Direction,
    ExperimentSpec,
    FaultName,
    FaultSpec,
    Party,
    Role,
    seconds,
    windows,
)

JITTER = 0.2  # of a fault that repeats: as a part of the time that is free before the next one


@dataclass(frozen=True, slots=True)
class PlannedFault:
    number: int  # from 1, in the order of their beginning
    kind: FaultName
    role: Role
    partition: int
    count: int
    for_seconds: float
    away_seconds: float
    draw: float  # from 0 to 1: which one of several brokers
    at_seconds: float | None = None  # since the first moment of the faults
    quiet_seconds: float = 0.0  # load without a fault before it, where it has no time
    from_: tuple[Party, ...] = ()
    direction: Direction = Direction.BOTH
    delay_seconds: float = 0.0
    loss: float = 0.0
    bytes_per_second: int = 0

    @property
    def detail(self) -> str:
        """Return what tells this fault from others of its kind and role."""
        parts = []
        if self.from_ and self.from_ != tuple(Party):
            parts.append(f"from {' and '.join(self.from_)}")
        if self.direction is not Direction.BOTH:
            parts.append(f"{self.direction}bound")
        if self.delay_seconds:
            parts.append(f"by {self.delay_seconds:g} s")
        if self.loss:
            parts.append(f"{self.loss:.0%} lost")
        if self.bytes_per_second:
            parts.append(f"to {self.bytes_per_second} B/s")
        if self.count > 1:
            parts.append(f"{self.count} brokers")
        if self.for_seconds:
            parts.append(f"for {self.for_seconds:g} s")
        return ", ".join(parts)


def schedule(spec: ExperimentSpec, seed: int) -> Iterator[PlannedFault]:
    """Yield the planned faults; without an end where only the duration bounds them."""
    chance = random.Random(seed)
    if spec.is_timed:
        yield from _timed(spec, chance)
        return
    numbers = itertools.count(1) if spec.rounds is None else range(1, spec.rounds + 1)
    faults: list[FaultSpec] = []
    for number in numbers:
        if not faults:
            faults = list(spec.faults)
            if spec.order == "random":
                chance.shuffle(faults)
        quiet = seconds(spec.quiet) * chance.uniform(0.5, 1.5)
        yield _planned(spec, faults.pop(0), number, chance, quiet_seconds=quiet)


def _timed(spec: ExperimentSpec, chance: random.Random) -> Iterator[PlannedFault]:
    entries = windows(spec)
    following = [begin for begin, *_ in entries[1:]] + [spec.duration_seconds or 0.0]
    for number, ((begin, end, place), next_begin) in enumerate(
        zip(entries, following, strict=True), start=1
    ):
        fault = spec.faults[place]
        late = chance.uniform(0.0, JITTER) * max(0.0, next_begin - end)
        at_seconds = begin if fault.every is None else begin + late
        yield _planned(spec, fault, number, chance, at_seconds=at_seconds)


def _planned(
    spec: ExperimentSpec,
    fault: FaultSpec,
    number: int,
    chance: random.Random,
    *,
    at_seconds: float | None = None,
    quiet_seconds: float = 0.0,
) -> PlannedFault:
    partition, draw = chance.randrange(spec.workload.partitions), chance.random()
    if fault.target.partition is not None:
        partition = fault.target.partition
    return PlannedFault(
        number=number,
        kind=fault.kind,
        role=fault.target.role,
        partition=partition,
        count=fault.target.count,
        for_seconds=fault.for_seconds,
        away_seconds=fault.away_seconds,
        draw=draw,
        at_seconds=None if at_seconds is None else round(at_seconds, 3),
        quiet_seconds=round(quiet_seconds, 3),
        from_=fault.from_ if fault.kind in OF_THE_NETWORK else (),
        direction=fault.direction,
        delay_seconds=fault.delay_seconds,
        loss=fault.loss or 0.0,
        bytes_per_second=fault.bytes_per_second or 0,
    )
