"""Derive from a scenario's events what an audit should report, and whether that is clear.

A scrape sees an event up to an interval late. A scenario in which that could change an outcome is
not clear, and another one is drawn in its place.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tidemark_audit.selftest.scenario import (
    LENGTH_MS,
    MIN_ISR,
    PARTITIONS,
    ExpectedFacts,
    Scenario,
    replicas,
)

INTERVAL_MS = 15_000
FULL, WITH_PLANNED, WRITABLE, STALL, COVERAGE = 0.999, 0.995, 0.999, 0.001, 0.99
LONGEST_MIN_ISR_MS, LONGEST_REPLICATED_MS = 60_000, 600_000
AGE_LIMIT_MS = 10_000 / 3
FLAP_MS, FLAPS, MOVES = 300_000, 1, 2


@dataclass(frozen=True, slots=True)
class ExpectedVerdict:
    """Hold a scenario's violated rules, lost records, and brokers that failed unplanned."""

    violated: frozenset[str]
    verdict: str
    lost: tuple[tuple[int, int, bool], ...]  # partition, records, whether the number is exact
    falls: tuple[tuple[int, int, int], ...]  # broker, from, to in ms; unplanned, once each
    troubles: tuple[tuple[int, int], ...]  # from, to: a partition lacked a replica, unplanned
    is_clear: bool


@dataclass(frozen=True, slots=True)
class _Part:
    start_ms: int
    end_ms: int
    state: ExpectedFacts
    planned: bool

    @property
    def length_ms(self) -> int:
        return self.end_ms - self.start_ms


def expected(scenario: Scenario) -> ExpectedVerdict:
    parts = [list(_parts(scenario, place)) for place in range(PARTITIONS)]
    checks = {
        "R1": _r1(parts),
        "R2": _share(parts, lambda p: not _writable(p), WRITABLE),
        "R3": _r3(parts),
        "R4": _r4(scenario),
        "R5": _r5(parts),
        "R6": (_hurt(scenario), True),
        "R7": _r7(scenario, parts),
        "R8": _r8(scenario),
    }
    violated = frozenset(rule for rule, (is_violated, _) in checks.items() if is_violated)
    lost = tuple(
        (loss.partition, loss.records, bool(loss.shown)) for loss in scenario.losses
    ) + tuple((s.partition, s.size, False) for s in scenario.episodes_of("watermark back"))
    has_lost = bool(lost or scenario.episodes_of("digest"))
    return ExpectedVerdict(
        violated,
        _verdict(violated, has_lost=has_lost),
        lost,
        tuple(
            (a.broker, a.start_ms, a.end_ms)
            for a in scenario.absences
            if not a.planned and any(a.broker in replicas(p) for p in range(PARTITIONS))
        ),
        tuple(
            (part.start_ms, part.end_ms)
            for history in parts
            for part in history
            if not part.planned and (_degraded(part) or not _writable(part))
        ),
        all(clear for _, clear in checks.values()),
    )


def _verdict(violated: frozenset[str], *, has_lost: bool) -> str:
    if has_lost:
        return "LOSS"
    if violated - {"R8"}:
        return "VIOLATED"
    return "INCONCLUSIVE" if "R8" in violated else "PASS"


def _parts(scenario: Scenario, place: int) -> Iterator[_Part]:
    history = scenario.histories[place]
    planned = [
        (a.broker, a.start_ms - 300, a.end_ms + 8000) for a in scenario.absences if a.planned
    ]
    ends = [state.at_ms for state in history[1:]] + [LENGTH_MS]
    for state, end in zip(history, ends, strict=True):
        missing = set(replicas(place)) - state.in_sync
        excused = {b for b, start, until in planned if start <= state.at_ms < until}
        yield _Part(state.at_ms, end, state, bool(missing) and missing <= excused)


def _writable(part: _Part) -> bool:
    return part.state.leader is not None and len(part.state.in_sync) >= MIN_ISR


def _degraded(part: _Part) -> bool:
    return _writable(part) and len(part.state.in_sync) < 3


def _share(
    parts: list[list[_Part]],
    is_bad: Callable[[_Part], bool],
    limit: float,
    *,
    of_ms: int = PARTITIONS * LENGTH_MS,
) -> tuple[bool, bool]:
    bad = [part for history in parts for part in history if is_bad(part)]
    spent = sum(part.length_ms for part in bad)
    allowed = (1 - limit) * of_ms
    return spent > allowed, abs(spent - allowed) > 2 * INTERVAL_MS * (1 + len(bad))


def _r1(parts: list[list[_Part]]) -> tuple[bool, bool]:
    planned = sum(p.length_ms for h in parts for p in h if _degraded(p) and p.planned)
    of_ms = PARTITIONS * LENGTH_MS - planned
    unplanned = _share(
        parts, lambda p: not (_writable(p) and (not _degraded(p) or p.planned)), FULL, of_ms=of_ms
    )
    every = _share(parts, lambda p: _degraded(p) or not _writable(p), WITH_PLANNED)
    return unplanned[0] or every[0], unplanned[1] and every[1]


def _r3(parts: list[list[_Part]]) -> tuple[bool, bool]:
    found, clear = False, True
    checks: tuple[tuple[Callable[[_Part], bool], int], ...] = (
        (lambda p: not _writable(p), LONGEST_MIN_ISR_MS),
        (lambda p: _degraded(p) or not _writable(p), LONGEST_REPLICATED_MS),
    )
    for history in parts:
        for is_bad, limit in checks:
            for length in _intervals(history, is_bad):
                found |= length > limit
                clear &= abs(length - limit) > 3 * INTERVAL_MS
    return found, clear


def _intervals(history: list[_Part], is_bad: Callable[[_Part], bool]) -> Iterator[int]:
    length = 0
    for part in [*history, None]:
        if part is not None and is_bad(part) and not part.planned:
            length += part.length_ms
        else:
            if length:
                yield length
            length = 0


def _r4(scenario: Scenario) -> tuple[bool, bool]:
    """Judge the share of a follower's time in which it was further behind than allowed.

    A topic that is created again has other partitions, which are judged on their own.
    """
    found, clear = False, True
    for place in range(PARTITIONS):
        for broker in replicas(place):
            behind = [*_behind(scenario, place, broker)]
            followed = [*_followed(scenario, place, broker)]
            for life in _lives(scenario, place):
                share = _within(life, behind) / max(1, _within(life, followed))
                found |= share > 0.01
                clear &= abs(share - 0.01) > 0.004
    return found, clear


def _behind(scenario: Scenario, place: int, broker: int) -> Iterator[tuple[float, float]]:
    for absence in scenario.absences:
        if absence.broker == broker:
            yield absence.start_ms + AGE_LIMIT_MS, absence.end_ms + 8000
    for episode in scenario.episodes:
        is_its = (episode.partition, episode.broker) == (place, broker)
        is_slow = is_its and episode.kind in ("lagging", "flapping")
        if is_slow and leader_at(scenario, place, episode.start_ms) != broker:
            yield episode.start_ms, episode.end_ms


def _followed(scenario: Scenario, place: int, broker: int) -> Iterator[tuple[float, float]]:
    history = scenario.histories[place]
    ends = [state.at_ms for state in history[1:]] + [LENGTH_MS]
    for state, end_ms in zip(history, ends, strict=True):
        if state.leader not in (None, broker):
            yield state.at_ms, end_ms


def _lives(scenario: Scenario, place: int) -> Iterator[tuple[float, float]]:
    made = [s.start_ms for s in scenario.episodes_of("topic again") if s.partition == place]
    yield from itertools.pairwise([0, *made, LENGTH_MS])


def _within(life: tuple[float, float], spans: list[tuple[float, float]]) -> float:
    return sum(max(0, min(life[1], end) - max(life[0], start)) for start, end in spans)


def leader_at(scenario: Scenario, place: int, at_ms: int) -> int | None:
    return next(t.leader for t in reversed(scenario.histories[place]) if t.at_ms <= at_ms)


def _r5(parts: list[list[_Part]]) -> tuple[bool, bool]:
    alone = any(len(part.state.in_sync) == 1 for history in parts for part in history)
    stall, clear = _share(
        parts, lambda p: len(p.state.in_sync) == MIN_ISR and not p.planned, 1 - STALL
    )
    return alone or stall, clear


def _hurt(scenario: Scenario) -> bool:
    grave = ("watermark back", "digest", "two leaders", "epoch back")
    return bool(scenario.losses) or any(episode.kind in grave for episode in scenario.episodes)


def _r7(scenario: Scenario, parts: list[list[_Part]]) -> tuple[bool, bool]:
    flaps = [0] * PARTITIONS
    for place, history in enumerate(parts):
        shrunk_at, was_planned = None, False
        for before, after in itertools.pairwise(history):
            change = len(after.state.in_sync) - len(before.state.in_sync)
            if change < 0:
                shrunk_at, was_planned = after.start_ms, after.planned
            elif change > 0:
                if shrunk_at and after.start_ms - shrunk_at <= FLAP_MS and not was_planned:
                    flaps[place] += 1
                shrunk_at = None
    return max(flaps) > FLAPS or max(scenario.unplanned_moves) > MOVES, True


def _r8(scenario: Scenario) -> tuple[bool, bool]:
    unseen = sum(end - start for start, end in scenario.blind) / LENGTH_MS
    return unseen > 1 - COVERAGE or scenario.has("clock"), abs(unseen - (1 - COVERAGE)) > 0.004
