"""R6: nothing that was committed is gone, and nothing happened that could have lost it.

Absolute: there is no budget. Evidence of one partition and one leader epoch is of one loss, whose
size is the largest that any of it shows.
"""

import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from tidemark_audit.analysis.anomalies import Anomaly, AnomalyKind
from tidemark_audit.analysis.partition import PartitionAnalysis
from tidemark_audit.results import (
    Finding,
    LossEvidence,
    Outcome,
    RuleResult,
    Severity,
    TopicPartition,
)
from tidemark_audit.rules.evaluation import (
    AuditAnalysis,
    RuleEvaluation,
    Subject,
    not_evaluated,
    plural,
)
from tidemark_audit.rules.evaluation import finding as make_finding

RULE = "R6"
TITLE = "durability"
NEEDS = (
    "replica_committed_truncated_records_total",
    "partition_election_committed_gap_records",
    "replica_high_watermark_offset",
    "replica_leader_epoch",
    "replica_leader_epoch_start_offset",
    "replica_is_leader",
    "partition_leader_elections_total",
)
OBJECTIVE = "no committed record lost, no unclean election, no decreasing epoch or high watermark"
_CAUSES = {
    AnomalyKind.UNCLEAN_ELECTION: "no replica with all committed records was live",
    AnomalyKind.TWO_LEADERS: "a defect of Tidemark, or two clusters with the same labels",
    AnomalyKind.EPOCH_REGRESS: "metadata restored from a backup, or an old disk",
    AnomalyKind.LOSS_ON_RECORD: "an earlier loss that counters still show",
    AnomalyKind.LOSS_OF_UNKNOWN_TIME: "the counters showed the loss in their first sample",
}
_REMEDIES = {
    AnomalyKind.UNCLEAN_ELECTION: (
        "{shows}; compare them with the records that producers had acknowledged;"
        " unclean.leader.election.enable=false prevents this election"
    ),
    AnomalyKind.TWO_LEADERS: (
        "report it with the logs of both brokers; give each cluster a distinct label"
    ),
    AnomalyKind.EPOCH_REGRESS: (
        "find what was restored and what producers have sent since; {shows}"
    ),
    AnomalyKind.LOSS_ON_RECORD: "audit the time of the loss",
    AnomalyKind.LOSS_OF_UNKNOWN_TIME: (
        "audit from an earlier time; without earlier samples assume that the records are"
        " lost: {shows}"
    ),
}


def evaluate(analysis: AuditAnalysis) -> RuleEvaluation:
    reported = [each for partition in analysis.partitions for each in _findings(partition)]
    lost = sum(lost_records(partition.loss_evidence) for partition in analysis.partitions)
    hurt = sum(bool(partition.loss_evidence) for partition in analysis.partitions)
    grave = [each for each in reported if each.severity is Severity.CRITICAL]
    if (missing := analysis.missing(NEEDS)) and not grave:
        return not_evaluated(RULE, TITLE, OBJECTIVE, missing)
    if (unheard := analysis.unwitnessed()) and not grave:
        names = ", ".join(exporter for exporter, _ in unheard)
        return RuleEvaluation(
            RuleResult(
                RULE, TITLE, Outcome.NOT_EVALUATED, OBJECTIVE, f"too few samples of: {names}"
            ),
            tuple(reported),
        )
    measured = "no evidence of loss"
    if hurt:
        where = plural(hurt, "partition")
        measured = f"at least {plural(lost, 'committed record')} lost in {where}"
    elif grave:
        measured = f"{plural(len(grave), 'event')} that could have lost records"
    return RuleEvaluation(
        RuleResult(
            RULE,
            TITLE,
            Outcome.VIOLATED if grave else Outcome.KEPT,
            OBJECTIVE,
            measured,
            float(lost),
            0.0,
            grave[0].subject if grave else "",
            missing,
        ),
        tuple(reported),
    )


def losses(evidence: Sequence[LossEvidence]) -> list[list[LossEvidence]]:
    """Evidence by the loss that it may be of: of one partition, in epochs that overlap."""
    found: list[list[LossEvidence]] = []
    last: tuple[TopicPartition, int] | None = None
    for each in sorted(
        evidence, key=lambda each: (str(each.partition), each.partition.topic_id, each.epochs)
    ):
        first, end = each.epochs
        if last is None or last[0] != each.partition or first > last[1]:
            found.append([])
            last = (each.partition, end)
        found[-1].append(each)
        last = (each.partition, max(last[1], end))
    return found


def lost_records(evidence: Sequence[LossEvidence]) -> int:
    """Return how many records are lost at least.

    Evidence may be about the same records: the figure is the most that any choice of evidence with
    disjoint epochs shows.
    """
    return sum(_most_apart(loss) for loss in losses(evidence))


def _most_apart(loss: Sequence[LossEvidence]) -> int:
    best: list[tuple[int, int]] = [(-1, 0)]  # up to this epoch, at most so many records
    for each in sorted(loss, key=lambda each: each.epochs[1]):
        first, last = each.epochs
        before = max(records for until, records in best if until < first)
        best.append((last, max(best[-1][1], before + (each.records or 0))))
    return best[-1][1]


def _findings(partition: PartitionAnalysis) -> Iterator[Finding]:
    for loss in losses(partition.loss_evidence):
        shown = "; ".join(dict.fromkeys(each.sentence for each in loss))
        yield make_finding(
            RULE,
            Severity.CRITICAL,
            Subject(
                str(loss[0].partition),
                min(each.after_ms for each in loss),
                max(each.at_ms for each in loss),
                (loss[0].partition,),
                [sample for each in loss for sample in each.samples],
                confidence=loss[0].confidence,
                cluster=partition.cluster,
            ),
            _what_is_lost(loss),
            cause="a leader without these records was elected, or a replica's disk lost them;"
            f" evidence: {shown}",
            remedy=_how_to_mend(loss),
        )
    for anomaly in partition.oddities:
        yield _of_anomaly(partition, anomaly)


def _what_is_lost(loss: Sequence[LossEvidence]) -> str:
    """Describe a loss once: partition, how many records, offsets, epoch."""
    records, where = lost_records(loss), loss[0].partition
    if not records:
        return f"{where}: replicas differ"
    offsets = lost_offsets(loss)
    place = f", offsets {offsets[0]} to {offsets[1]}" if offsets else ""
    epoch = min(each.leader_epoch for each in loss)  # a replica may cut them elections later
    since = f", by leader epoch {epoch}" if epoch >= 0 else ""
    return f"at least {plural(records, 'committed record')} lost: {where}{place}{since}"


def lost_offsets(loss: Sequence[LossEvidence]) -> tuple[int, int] | None:
    """First and last of what one loss took, by the evidence that shows the most of it."""
    known = [each for each in loss if each.offsets is not None]
    widest = max(known, key=lambda each: each.records or 0, default=None)
    return None if widest is None else widest.offsets


def _how_to_mend(loss: Sequence[LossEvidence]) -> str:
    where, offsets = loss[0].partition, lost_offsets(loss)
    shows = _shows_all_of(where)
    if offsets is not None:
        count = offsets[1] - offsets[0] + 1
        shows = (
            f"`{_consume(where)} --from {offsets[0]} --max {count} --until-end` prints"
            " the present records at these offsets"
        )
    after, at = (
        datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        for ms in (min(each.after_ms for each in loss), max(each.at_ms for each in loss))
    )
    since = f" (it was lost after {after})" if after != at else ""
    return (
        f"pause retention of topic {where.topic} on upstream sources; {shows}; send"
        f" missing records again that producers had acknowledged before {at} UTC{since}"
    )


def _shows_all_of(where: TopicPartition) -> str:
    return f"`{_consume(where)} --from earliest --until-end` prints the present records"


def _consume(where: TopicPartition) -> str:
    """Return a command that reads the partition, without a load file of an experiment."""
    return f"tidemark consume {shlex.quote(where.topic)} --partition {where.partition}"


def _of_anomaly(partition: PartitionAnalysis, anomaly: Anomaly) -> Finding:
    is_old = anomaly.kind is AnomalyKind.LOSS_ON_RECORD
    where = partition.coverage.partition
    return make_finding(
        RULE,
        Severity.MAJOR if is_old else Severity.CRITICAL,
        Subject(
            f"{where} {anomaly.kind.value}",
            anomaly.after_ms,
            anomaly.at_ms,
            (where,),
            anomaly.samples,
            confidence=anomaly.confidence,
            cluster=partition.cluster,
            is_lasting=is_old or anomaly.kind is AnomalyKind.LOSS_OF_UNKNOWN_TIME,
        ),
        anomaly.sentence,
        cause=_CAUSES[anomaly.kind],
        remedy=remedy_of(anomaly, where),
    )


def remedy_of(anomaly: Anomaly, where: TopicPartition) -> str:
    return _REMEDIES[anomaly.kind].replace("{shows}", _shows_all_of(where))
