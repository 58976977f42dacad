"""Every interleaving of a small world, breadth first: the first violation found is a shortest one.

A state is a world with what is left to spend; two with equal keys have the same futures. Only
hashes of keys (64 bits) are kept: among ten million states two differ and collide with a chance of
three in a million, and then only a future would be missed, never a false alarm be given.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.model.invariants import broken_by, broken_in, broken_on_the_way
from tests.model.model_cluster import Cluster
from tests.model.moves import KINDS, moves
from tests.model.script import begun, moved, reported


@dataclass(frozen=True, slots=True)
class Bounds:
    records: int = 2
    faults: int = 1
    kinds: tuple[str, ...] = KINDS
    depth: int = 1000
    states: int = 100_000_000


@dataclass(slots=True)
class Result:
    states: int = 0
    depth: int = 0  # every order of so many moves was tried; more of some, at the bound on states
    seconds: float = 0.0
    is_complete: bool = True
    broken: str = ""
    path: list[str] = field(default_factory=list)

    @property
    def states_per_second(self) -> int:
        return int(self.states / max(self.seconds, 1e-9))


State = tuple[Cluster, int, int, int]  # world, records left, faults left, hash of its key


def explored(
    begin: Callable[[], Cluster], bounds: Bounds, progress: Callable[[Result], None] | None = None
) -> Result:
    started = time.process_time()
    gc.freeze()
    gc.disable()  # worlds hold no cycles; looking for some takes longer than everything else
    first = begin()
    result = Result(broken=broken_by(None, first))
    root = _state(first, bounds.records, bounds.faults)
    came_from: dict[int, tuple[int, str]] = {root[3]: (0, "")}
    frontier = [root]
    while frontier and not result.broken:
        following = _next_depth(frontier, bounds, came_from, result)
        result.states, result.seconds = len(came_from), time.process_time() - started
        if not result.is_complete:
            break
        result.depth += 1
        if progress is not None:
            progress(result)
        if result.depth >= bounds.depth:
            result.is_complete = not following
            break
        frontier = following
    gc.enable()
    return result


def _next_depth(
    frontier: list[State],
    bounds: Bounds,
    came_from: dict[int, tuple[int, str]],
    result: Result,
) -> list[State]:
    """States that one more move leads to. Ends early with what broke, or, with the result no
    longer complete, at the bound on states."""
    following: list[State] = []
    for cluster, records_left, faults_left, key in frontier:
        if len(came_from) >= bounds.states:
            result.is_complete = False
            break
        for line, cost in moves(
            cluster, records_left=records_left, faults_left=faults_left, kinds=bounds.kinds
        ):
            after = moved(cluster, line)
            broken = broken_on_the_way(cluster, after)
            records = records_left - line.startswith("append")
            found = _state(after, records, faults_left - cost)
            if found[3] not in came_from:
                broken = broken or broken_in(after)
                came_from[found[3]] = (key, line)
                following.append(found)
            if broken:
                result.broken = broken
                result.path = [*_path(came_from, key), line]
                return []
    return following


def _state(cluster: Cluster, records_left: int, faults_left: int) -> State:
    return cluster, records_left, faults_left, hash((cluster.key(), records_left, faults_left))


def _path(came_from: dict[int, tuple[int, str]], key: int) -> list[str]:
    lines: list[str] = []
    while True:
        key, line = came_from[key]
        if not line:
            return lines[::-1]
        lines.append(line)


def begun_in(situation: str) -> Callable[[], Cluster]:
    """The world after those lines of a transcript."""

    def begin() -> Cluster:
        first, *lines = situation.strip().splitlines()
        cluster = begun(first)
        for line in lines:
            cluster = moved(cluster, line)
        return cluster

    return begin


def transcript(situation: str, result: Result) -> str:
    """The interleaving as a file of tests/traces."""
    first, *lines = situation.strip().splitlines()
    cluster, parts = begun(first), [f"# {result.broken}", "", first, ""]
    for line in [*lines, *result.path]:
        cluster, effects = reported(cluster, line)
        parts += [line, "----", *effects, ""]
    return "\n".join(parts)
