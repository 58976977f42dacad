"""R8: is there enough to judge by? Coverage, inputs, clocks, and samples that contradict."""

from collections.abc import Iterator

from tidemark_audit.analysis.partition import PartitionAnalysis
from tidemark_audit.metrics.families import PREFIX
from tidemark_audit.results import Finding, Outcome, RuleResult, Severity
from tidemark_audit.rules.evaluation import (
    AuditAnalysis,
    RuleEvaluation,
    Subject,
    finding,
    not_evaluated,
    percent,
    plural,
    shares,
)

RULE = "R8"
TITLE = "evidence"
NEEDS = ("partition_in_sync_replicas", "broker_clock_skew_seconds", "broker_planned_restart")


def evaluate(analysis: AuditAnalysis) -> RuleEvaluation:
    goal = analysis.slo.objectives
    objective = (
        f"coverage >= {percent(goal.coverage)}, no missing inputs, clocks within"
        f" {goal.clock_skew_seconds:g} s"
    )
    if not analysis.partitions:
        return not_evaluated(RULE, TITLE, objective, analysis.missing(NEEDS))
    covered = shares(
        analysis, lambda row: row.observed_ms, lambda row: row.total_ms, lambda goal: goal.coverage
    )
    reported = [
        finding(
            RULE,
            Severity.MAJOR,
            analysis.about(f"topic {share.topic}"),
            f"only {percent(share.value)} of its partition-time was observed",
            cause="scrapes failed, or the export covers only a part of the window",
            remedy="check the targets of Prometheus for these times; export the complete window",
        )
        for share in covered
        if not share.is_kept
    ]
    for search in (_never_seen, _ended_at_once, _silent, _clocks, _bad_samples, _crc_failures):
        reported += search(analysis)
    observed = sum(share.good_ms for share in covered)
    total = sum(share.observed_ms for share in covered)
    missing = analysis.missing(NEEDS)
    grave = [each for each in reported if each.severity is Severity.MAJOR]
    outcome = Outcome.VIOLATED if grave else Outcome.KEPT
    if missing and not grave:
        outcome = Outcome.NOT_EVALUATED
    return RuleEvaluation(
        RuleResult(
            RULE,
            TITLE,
            outcome,
            objective,
            f"coverage {percent(observed / total if total else 0.0)}"
            + (f"; no samples of {', '.join(missing)}" if missing else ""),
            observed / total if total else 0.0,
            goal.coverage,
            grave[0].subject if grave else "",
            missing,
        ),
        tuple(reported),
    )


def _never_seen(analysis: AuditAnalysis) -> Iterator[Finding]:
    """Yield partitions that were never observed; others of their topic do not make up for it."""
    for partition in analysis.partitions:
        if partition.sli.observed_ms == 0 and partition.sli.total_ms > analysis.slack_ms:
            where = partition.coverage.partition
            yield finding(
                RULE,
                Severity.MAJOR,
                analysis.about(f"{where} unobserved", (where,), partition.cluster),
                "no sample of any leader",
                cause="its leader is not scraped, or it has no leader",
                remedy="check `tidemark status` and the targets of Prometheus",
            )


def _ended_at_once(analysis: AuditAnalysis) -> Iterator[Finding]:
    """Yield findings about series that end together.

    What looks like the deletion of all partitions, or of several topics with most of them, is more
    likely an export without the rest of their series.
    """
    clusters: dict[str, list[PartitionAnalysis]] = {}
    for partition in analysis.partitions:
        clusters.setdefault(partition.cluster, []).append(partition)
    for cluster, all_of_it in sorted(clusters.items()):
        ends = sorted(end for _, end in (each.life_ms for each in all_of_it))
        for last in dict.fromkeys(end for end in ends if end < analysis.window_end_ms):
            living = [each for each in all_of_it if each.life_ms[0] < last <= each.life_ms[1]]
            ended = [each for each in living if each.life_ms[1] <= last + analysis.slack_ms]
            after = [each for each in all_of_it if each.life_ms[1] > last + analysis.slack_ms]
            topics = {each.sli.topic_id for each in ended}
            if after and (len(topics) == 1 or 2 * len(ended) <= len(living)):
                continue
            yield finding(
                RULE,
                Severity.MAJOR,
                Subject(f"{cluster}: series end" if cluster else "series end", last, last),
                f"samples of {plural(len(ended), 'partition')} of {len(living)} end at the"
                " same time, but samples of their brokers continue",
                cause="the export lacks metric families for the rest of the window, or many topics"
                " were deleted at the same time",
                remedy="export the complete window again; if topics were deleted, end the window"
                " there",
            )
            break


def _silent(analysis: AuditAnalysis) -> Iterator[Finding]:
    for exporter, said in analysis.unwitnessed():
        yield finding(
            RULE,
            Severity.MAJOR,
            analysis.about(f"{exporter} without samples"),
            said,
            cause="it is not a target of Prometheus, or the export lacks its series",
            remedy="scrape every broker and the operator; export all their metric families",
        )


def _clocks(analysis: AuditAnalysis) -> Iterator[Finding]:
    limit = analysis.slo.objectives.clock_skew_seconds
    for skew in analysis.clock_skew:
        if skew.p99_seconds > limit:
            yield finding(
                RULE,
                Severity.MAJOR,
                analysis.about(f"broker {skew.broker}", cluster=skew.cluster),
                f"its clock is {skew.p99_seconds:.3g} s off",
                cause="no time synchronisation on its node",
                remedy="start chrony or ntpd there; times of records and retention depend on it",
            )


def _bad_samples(analysis: AuditAnalysis) -> Iterator[Finding]:
    for bad in analysis.bad_samples:
        said = [
            f"{plural(count, 'sample')} {words}"
            for count, words in (
                (bad.conflicts, "with two values at one time"),
                (bad.impossible, "with an invalid value"),
                (bad.out_of_order, "out of order"),
            )
            if count
        ]
        if said:
            yield finding(
                RULE,
                Severity.MAJOR if bad.conflicts or bad.impossible else Severity.MINOR,
                analysis.about(PREFIX + bad.family),
                ", ".join(said),
                cause="two exports mixed into one, or a corrupt export",
                remedy="export again, from one Prometheus",
            )


def _crc_failures(analysis: AuditAnalysis) -> Iterator[Finding]:
    for cluster, where, count in analysis.crc_failures:
        yield finding(
            RULE,
            Severity.MINOR,
            analysis.about(f"{cluster}: CRC in {where}" if cluster else f"CRC in {where}"),
            f"{count} record batch{'' if count == 1 else 'es'} failed the checksum in {where}",
            cause="a disk or a network that corrupts data; no corrupt batch was stored",
            remedy="find the broker by its log, and check its disk and network",
        )
