"""R7: the in-sync set and the leader stay put. Planned moves of leadership are free."""

import itertools

from tidemark_audit.facts.partition import PartitionFacts
from tidemark_audit.results import Interval, IntervalKind, Outcome, RuleResult, Severity
from tidemark_audit.rules.judgement import (
    AuditFacts,
    Judgement,
    duration,
    finding,
    not_evaluated,
)

RULE = "R7"
TITLE = "churn"
NEEDS = ("partition_in_sync_replicas", "replica_leader_epoch", "replica_is_leader")
FLAP_MS = 300_000


def evaluate(facts: AuditFacts) -> Judgement:
    goal = facts.slo.objectives
    objective = (
        f"<= {goal.isr_flaps_per_partition_day:g} ISR flaps and"
        f" <= {goal.leader_moves_per_partition_day:g} leader moves per partition-day"
    )
    if missing := facts.missing(NEEDS):
        return not_evaluated(RULE, TITLE, objective, missing)
    days = max(1.0, facts.days)  # a part of a day has the budget of one
    window = duration(facts.window_end_ms - facts.window_start_ms)
    told, most_flaps, most_moves = [], 0, 0
    for partition in facts.partitions:
        limits = facts.slo.of(partition.sli.topic)
        flaps, moves = _flaps(partition), _moves(facts, partition)
        most_flaps, most_moves = max(most_flaps, flaps), max(most_moves, moves)
        said = []
        if flaps > limits.isr_flaps_per_partition_day * days:
            said.append(f"the ISR shrank and grew again {flaps} times")
        if moves > limits.leader_moves_per_partition_day * days:
            said.append(f"{moves} unplanned leader moves")
        if said:
            where = partition.coverage.partition
            told.append(
                finding(
                    RULE,
                    Severity.MINOR,
                    facts.about(str(where), (where,), partition.cluster),
                    f"{' and '.join(said)} in {window}",
                    cause="a follower at the edge of replica.lag.time.max.ms, or a broker that"
                    " keeps losing its session",
                    remedy="look at disk latency, CPU limits and broker restarts at these times",
                )
            )
    return Judgement(
        RuleResult(
            RULE,
            TITLE,
            Outcome.VIOLATED if told else Outcome.KEPT,
            objective,
            f"at most {most_flaps} flaps and {most_moves} leader moves of a partition",
            float(max(most_flaps, most_moves)),
            None,
            told[0].subject if told else "",
        ),
        tuple(told),
    )


def _flaps(partition: PartitionFacts) -> int:
    """A shrink and an expand within five minutes, outside planned absences."""
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


def _moves(facts: AuditFacts, partition: PartitionFacts) -> int:
    return sum(
        election.kind != "planned"
        and not _is_planned(partition.intervals, election.at_ms, facts.slack_ms)
        for election in partition.elections
    )


def _is_planned(intervals: tuple[Interval, ...], at_ms: int, slack_ms: int = 0) -> bool:
    return any(
        interval.planned
        and interval.kind is not IntervalKind.UNOBSERVED
        and interval.start_ms - slack_ms <= at_ms <= interval.end_ms + slack_ms
        for interval in intervals
    )
