"""R7: the in-sync set and the leader stay put. Planned moves of leadership are free.

What scrapes saw and what was counted between them are both lower bounds: the greater counts.
"""

import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_audit.analysis.changes import Change
from tidemark_audit.analysis.partition import PartitionAnalysis
from tidemark_audit.results import (
    Finding,
    Interval,
    IntervalKind,
    Outcome,
    RuleResult,
    Severity,
    TopicPartition,
)
from tidemark_audit.rules.evaluation import (
    AuditAnalysis,
    RuleEvaluation,
    duration,
    finding,
    not_evaluated,
    plural,
)

RULE = "R7"
TITLE = "churn"
NEEDS = ("partition_in_sync_replicas", "replica_leader_epoch", "replica_is_leader")
FLAP_MS = 300_000
MOST_AT_ONCE = 10_000  # of a counter whose value is nonsense, no more than this is worth counting


def evaluate(analysis: AuditAnalysis) -> RuleEvaluation:
    goal = analysis.slo.objectives
    objective = (
        f"<= {goal.isr_flaps_per_partition_day:g} ISR flaps and"
        f" <= {goal.leader_moves_per_partition_day:g} leader moves per partition-day"
    )
    if missing := analysis.missing(NEEDS):
        return not_evaluated(RULE, TITLE, objective, missing)
    days = max(1.0, analysis.days)  # a part of a day has the budget of one
    churned: dict[str, list[_Churn]] = {}
    most_flaps = most_moves = 0
    for partition in analysis.partitions:
        limits = analysis.slo.of(partition.sli.topic)
        flaps = max(_flaps_seen(partition), _flaps_counted(partition))
        moves = max(_moves_seen(analysis, partition), _moves_counted(analysis, partition))
        most_flaps, most_moves = max(most_flaps, flaps), max(most_moves, moves)
        is_over = (
            flaps > limits.isr_flaps_per_partition_day * days,
            moves > limits.leader_moves_per_partition_day * days,
        )
        if any(is_over):
            counted = (flaps if is_over[0] else 0, moves if is_over[1] else 0)
            found = _Churn(partition.coverage.partition, *counted)
            churned.setdefault(partition.cluster, []).append(found)
    reported = [_finding(analysis, cluster, found) for cluster, found in sorted(churned.items())]
    all_of_it = [each for found in churned.values() for each in found]
    return RuleEvaluation(
        RuleResult(
            RULE,
            TITLE,
            Outcome.VIOLATED if reported else Outcome.KEPT,
            objective,
            f"at most {plural(most_flaps, 'flap')} and {plural(most_moves, 'leader move')} of a"
            " partition",
            float(max(most_flaps, most_moves)),
            None,
            str(_worst(all_of_it).partition) if all_of_it else "",
        ),
        tuple(reported),
    )


@dataclass(frozen=True, slots=True)
class _Churn:
    """Hold one partition's excess of flaps and moves."""

    partition: TopicPartition
    flaps: int
    moves: int


def _worst(churned: Sequence[_Churn]) -> _Churn:
    return max(churned, key=lambda each: each.flaps + each.moves)


def _finding(analysis: AuditAnalysis, cluster: str, churned: Sequence[_Churn]) -> Finding:
    """Return one finding per cluster: a cause that affects one partition mostly affects many."""
    worst = _worst(churned)
    said = []
    if flaps := max(each.flaps for each in churned):
        said.append(f"the ISR shrank and grew again {flaps} times")
    if moves := max(each.moves for each in churned):
        said.append(plural(moves, "unplanned leader move"))
    where = str(worst.partition)
    if len(churned) > 1:
        where = f"{len(churned)} partitions, the worst {where}: up to"
    window = duration(analysis.window_end_ms - analysis.window_start_ms)
    return finding(
        RULE,
        Severity.MINOR,
        analysis.about(
            f"{cluster}: churn" if cluster else "churn",
            [each.partition for each in churned],
            cluster,
        ),
        f"{where}{'' if len(churned) > 1 else ':'} {' and '.join(said)} in {window}",
        cause="a follower close to replica.lag.time.max.ms, or a broker that loses its session"
        " repeatedly",
        remedy="check disk latency, CPU limits and broker restarts at these times",
    )


def _flaps_seen(partition: PartitionAnalysis) -> int:
    """Count pairs of a shrink and an expand within five minutes, outside planned absences."""
    flaps = 0
    pairs = itertools.pairwise(partition.isr_changes)
    for shrink, expand in pairs:
        if not (
            shrink.to_in_sync_replicas < shrink.from_in_sync_replicas
            and expand.to_in_sync_replicas > expand.from_in_sync_replicas
            and expand.at_ms - shrink.at_ms <= FLAP_MS
        ):
            continue
        if shrink.reason not in ("planned", "move") and not _is_planned(
            partition.intervals, shrink.at_ms
        ):
            flaps += 1
    return flaps


def _moves_seen(analysis: AuditAnalysis, partition: PartitionAnalysis) -> int:
    return sum(
        election.kind != "planned"
        and not _is_planned(partition.intervals, election.at_ms, analysis.slack_ms)
        for election in partition.elections
    )


def _flaps_counted(partition: PartitionAnalysis) -> int:
    """Count flaps of counters: an expand belongs to the replica that is out for longest.

    Only then does it belong to one that left since the last scrape.
    """
    flaps = 0
    out: deque[tuple[float, bool]] = deque()  # since when, and whether on its own
    by_time = itertools.groupby(partition.counted, key=lambda counted: counted.at_ms)
    for at_ms, together in by_time:
        steps = list(together)
        missing = _missing_at(partition.intervals, min(step.after_ms for step in steps))
        out.extendleft([(-math.inf, False)] * (missing - len(out)))  # whom no counter told of
        excused = _is_planned(partition.intervals, at_ms)
        left = [
            (at_ms, not (step.planned or excused))
            for step in steps
            if step.change is Change.SHRINK
            for _ in range(min(step.by, MOST_AT_ONCE))
        ]
        out.extend(left)
        back = sum(step.by for step in steps if step.change is Change.EXPAND)
        for _ in range(min(back, len(out))):
            since_ms, is_own = out.popleft()
            flaps += is_own and at_ms - since_ms <= FLAP_MS
    return flaps


def _missing_at(intervals: tuple[Interval, ...], at_ms: int) -> int:
    return max(
        (
            interval.replicas - interval.in_sync_replicas
            for interval in intervals
            if interval.start_ms <= at_ms < interval.end_ms and interval.in_sync_replicas >= 0
        ),
        default=0,
    )


def _moves_counted(analysis: AuditAnalysis, partition: PartitionAnalysis) -> int:
    return sum(
        counted.by
        for counted in partition.counted
        if counted.change is Change.ELECTION
        and not counted.planned
        and not _is_planned(partition.intervals, counted.at_ms, analysis.slack_ms)
    )


def _is_planned(intervals: tuple[Interval, ...], at_ms: int, slack_ms: int = 0) -> bool:
    return any(
        interval.planned
        and interval.kind is not IntervalKind.UNOBSERVED
        and interval.start_ms - slack_ms <= at_ms <= interval.end_ms + slack_ms
        for interval in intervals
    )
