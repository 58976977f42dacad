"""R4: followers keep up, each on its own: 99 of 100 looks find it near the leader."""

from collections.abc import Iterator

from tidemark_audit.analysis.partition import PartitionAnalysis
from tidemark_audit.results import Finding, FollowerLag, Outcome, RuleResult, Severity
from tidemark_audit.rules.evaluation import AuditAnalysis, RuleEvaluation, finding, not_evaluated

RULE = "R4"
TITLE = "follower lag"
NEEDS = ("follower_caught_up_age_seconds", "partition_replica_lag_max_seconds")


def evaluate(analysis: AuditAnalysis) -> RuleEvaluation:
    goal = analysis.slo.objectives
    objective = (
        f"p99 of caught-up age <= {goal.lag_p99_share_of_max:.3g} x replica.lag.time.max.ms, p99 of"
        f" records <= the greater of {goal.lag_p99_largest_appends:g} largest appends and"
        f" {goal.lag_p99_records_floor:g}"
    )
    if missing := analysis.missing(NEEDS):
        return not_evaluated(RULE, TITLE, objective, missing)
    reported = list(_findings(analysis))
    followers = [(lag, each) for each in analysis.partitions for lag in each.follower_lag]
    if not followers:
        return not_evaluated(RULE, TITLE, objective, ())
    behind = [pair for pair in followers if _excess(analysis, pair[1], pair[0])]
    slowest, partition = max(behind or followers, key=lambda pair: _how_far(pair[0]))
    excess = _excess(analysis, partition, slowest)
    return RuleEvaluation(
        RuleResult(
            RULE,
            TITLE,
            Outcome.VIOLATED if reported else Outcome.KEPT,
            objective,
            f"worst follower: {excess or f'p99 {_seconds(slowest.age_p99_seconds)}'}",
            slowest.age_p99_seconds,
            _longest_age(analysis, partition),
            f"{slowest.partition} follower {slowest.follower}",
        ),
        tuple(reported),
    )


def _findings(analysis: AuditAnalysis) -> Iterator[Finding]:
    """Yield one finding per follower, whichever partitions it follows."""
    places = analysis.places()
    behind: dict[tuple[str, str], list[tuple[FollowerLag, str]]] = {}
    for partition in analysis.partitions:
        place = places[partition.cluster, partition.pool]
        for lag in partition.follower_lag:
            if sentence := _excess(analysis, partition, lag):
                behind.setdefault((place, lag.follower), []).append((lag, sentence))
    for (place, follower), found in sorted(behind.items()):
        worst, sentence = max(found, key=lambda each: _how_far(each[0]))
        where = f"{worst.partition}: "
        if len(found) > 1:
            where = f"behind in {len(found)} partitions; the worst, {worst.partition}: "
        subject = f"follower {follower}"
        yield finding(
            RULE,
            Severity.MINOR,
            analysis.about(
                f"{place}: {subject}" if place else subject, [lag.partition for lag, _ in found]
            ),
            where + sentence,
            cause=f"broker {follower} or its network is slow, or it was stopped",
            remedy="compare its disk and network with those of other brokers; if it was stopped,"
            " find the reason",
        )


def _how_far(lag: FollowerLag) -> tuple[float, float]:
    return lag.age_p99_seconds or 0.0, lag.records_p99 or 0.0


def _excess(analysis: AuditAnalysis, partition: PartitionAnalysis, lag: FollowerLag) -> str:
    """Return which limits the follower exceeds, with its figures; empty if none."""
    goal = analysis.slo.of(lag.partition.topic)
    said = []
    limit = _longest_age(analysis, partition)
    if limit is not None and lag.age_p99_seconds is not None and lag.age_p99_seconds > limit:
        said.append(f"p99 of caught-up age {_seconds(lag.age_p99_seconds)}, limit {limit:.3g} s")
    if partition.largest_append_records is not None and lag.records_p99 is not None:
        largest = partition.largest_append_records * goal.lag_p99_largest_appends
        records = max(largest, goal.lag_p99_records_floor)
        if lag.records_p99 > records:
            said.append(f"p99 of lag {lag.records_p99:.0f} records, limit {records:.0f}")
    return ", ".join(said)


def _longest_age(analysis: AuditAnalysis, partition: PartitionAnalysis) -> float | None:
    if partition.lag_max_seconds is None:
        return None
    return partition.lag_max_seconds * analysis.slo.of(partition.sli.topic).lag_p99_share_of_max


def _seconds(age: float | None) -> str:
    if age is None:
        return "unknown"
    return "never caught up" if age == float("inf") else f"{age:.3g} s"
