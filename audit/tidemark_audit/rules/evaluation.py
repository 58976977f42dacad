"""Define what rules take and return, and what several of them need."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidemark_audit.analysis.partition import PartitionAnalysis
from tidemark_audit.analysis.reporting_coverage import COUNTER, OPERATOR, OPERATORS, Reporter
from tidemark_audit.metrics.families import PREFIX, STAND_FOR
from tidemark_audit.results import (
    Confidence,
    Finding,
    Outcome,
    RuleResult,
    Sample,
    Severity,
    SliRow,
    TopicPartition,
)
from tidemark_audit.slo import Objectives, Slo

DAY_MS = 86_400_000
DOC = "docs/user/audit-rules.md"


@dataclass(frozen=True, slots=True)
class BadSamples:
    """Samples of one family that could not be taken at their word."""

    family: str
    conflicts: int  # two values at one time
    impossible: int
    out_of_order: int


@dataclass(frozen=True, slots=True)
class ClockSkew:
    cluster: str
    broker: str
    p99_seconds: float


@dataclass(frozen=True, slots=True)
class BrokerRun:
    """Describe one process of a broker, as far as it was seen."""

    cluster: str
    pool: str
    broker: str
    epoch: float
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class AuditAnalysis:
    """Everything that rules look at. Rows are typed; `tables` makes Arrow tables of them."""

    window_start_ms: int
    window_end_ms: int
    slack_ms: int  # how far apart two scrapes may see one event
    partitions: tuple[PartitionAnalysis, ...]
    families: frozenset[str]  # of which there was any sample, without the prefix
    clock_skew: tuple[ClockSkew, ...]
    bad_samples: tuple[BadSamples, ...]
    crc_failures: tuple[tuple[str, str, int], ...]  # cluster, where, how many in the window
    slo: Slo
    broker_lives: tuple[BrokerRun, ...] = ()

    @property
    def days(self) -> float:
        return (self.window_end_ms - self.window_start_ms) / DAY_MS

    def about(
        self, subject: str, partitions: Sequence[TopicPartition] = (), cluster: str = ""
    ) -> "Subject":
        """Return a subject that spans the whole window."""
        start, end = self.window_start_ms, self.window_end_ms
        return Subject(subject, start, end, partitions, cluster=cluster, is_lasting=True)

    def missing(self, needed: Iterable[str]) -> tuple[str, ...]:
        return tuple(PREFIX + name for name in needed if not self._has(name))

    def _has(self, family: str) -> bool:
        standing = STAND_FOR.get(family)
        return family in self.families or (standing is not None and standing <= self.families)

    def places(self) -> Mapping[tuple[str, str], str]:
        """Return a name for each cluster and pool: as short as tells them apart."""
        pools = {(partition.cluster, partition.pool) for partition in self.partitions}
        count = Counter(cluster for cluster, _ in pools)
        return {
            (cluster, pool): ": ".join(
                name for name in (cluster, pool if count[cluster] > 1 else "") if name
            )
            for cluster, pool in pools
        }

    def unwitnessed(self) -> list[tuple[str, str]]:
        """Return exporters with too little coverage to report every loss, and how long.

        One replica that was never seen is enough, however many others its broker has.
        """
        places = self.places()
        due: dict[tuple[str, str], list[Reporter]] = {}
        for partition in self.partitions:
            for reporter in partition.witnesses:
                family = OPERATORS if reporter.exporter == OPERATOR else COUNTER
                if family in self.families and reporter.due_ms > 0:
                    due.setdefault(
                        (places[partition.cluster, partition.pool], reporter.exporter), []
                    ).append(reporter)
        found = []
        for (where, exporter), all_of_it in sorted(due.items()):
            share = sum(w.heard_ms for w in all_of_it) / sum(w.due_ms for w in all_of_it)
            silent = sum(not w.heard_ms and w.due_ms > self.slack_ms for w in all_of_it)
            if share < self.slo.objectives.coverage or silent:
                said = f"its metrics cover {percent(share)} of the time"
                if silent:
                    said += f", none of {plural(silent, 'partition')}"
                found.append((f"{where}: {exporter}" if where else exporter, said))
        return found

    def by_topic(self) -> Mapping[str, tuple[PartitionAnalysis, ...]]:
        found: dict[str, list[PartitionAnalysis]] = {}
        for partition in self.partitions:
            found.setdefault(partition.sli.topic, []).append(partition)
        return {topic: tuple(rows) for topic, rows in sorted(found.items())}


@dataclass(frozen=True, slots=True)
class RuleEvaluation:
    result: RuleResult
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Subject:
    """Hold what a finding is about, and what it rests on."""

    subject: str
    start_ms: int
    end_ms: int
    partitions: Sequence[TopicPartition] = ()
    samples: Sequence[Sample] = ()
    planned: bool = False
    confidence: Confidence = Confidence.PROVED
    cluster: str = ""
    is_lasting: bool = False  # of the window as a whole: the next one may tell it again


def finding(
    rule: str, severity: Severity, about: Subject, sentence: str, *, cause: str, remedy: str
) -> Finding:
    """Return a finding whose id the next run finds again.

    The id depends on rule, subject and start alone. What lasts over the window has no start, as
    that differs in each run.
    """
    start = "" if about.is_lasting else about.start_ms
    # Of a partition, not of a broker that happened to have one.
    names_it = len(about.partitions) == 1 and str(about.partitions[0]) in about.subject
    topic = about.partitions[0].topic_id if names_it else ""
    words = f"{rule}|{about.cluster}|{topic}|{about.subject}|{start}"
    return Finding(
        id=hashlib.sha256(words.encode()).hexdigest()[:12],
        rule=rule,
        severity=severity,
        subject=about.subject,
        start_ms=about.start_ms,
        end_ms=about.end_ms,
        sentence=sentence,
        cause=cause,
        remedy=remedy,
        doc=f"{DOC}#{rule.lower()}",
        confidence=about.confidence,
        planned=about.planned,
        partitions=tuple(about.partitions),
        samples=tuple(about.samples),
    )


def not_evaluated(
    rule: str, title: str, objective: str, missing: tuple[str, ...]
) -> RuleEvaluation:
    measured = f"no samples of {', '.join(missing)}" if missing else "no samples"
    return RuleEvaluation(
        RuleResult(
            rule, title, Outcome.NOT_EVALUATED, objective, measured, missing_families=missing
        )
    )


@dataclass(frozen=True, slots=True)
class TopicSlo:
    """Hold one topic's good share of observed partition-time, and its objective."""

    topic: str
    good_ms: int
    observed_ms: int
    limit: float

    @property
    def value(self) -> float:
        return self.good_ms / self.observed_ms

    @property
    def is_kept(self) -> bool:
        return self.good_ms >= self.limit * self.observed_ms


def shares(
    analysis: AuditAnalysis,
    good_ms: Callable[[SliRow], int],
    observed_ms: Callable[[SliRow], int],
    limit: Callable[[Objectives], float],
) -> list[TopicSlo]:
    """Return the shares by topic; topics without observed time are left out (R8 reports them)."""
    found = []
    for topic, partitions in analysis.by_topic().items():
        rows = [partition.sli for partition in partitions]
        observed = sum(observed_ms(row) for row in rows)
        if observed:
            good = sum(good_ms(row) for row in rows)
            found.append(TopicSlo(topic, good, observed, limit(analysis.slo.of(topic))))
    return found


def topic_slo_evaluation(
    rule: str, title: str, objective: str, found: Sequence[TopicSlo]
) -> RuleResult:
    """Kept if each topic keeps its own; the value is that of all together."""
    if not found:
        return not_evaluated(rule, title, objective, ()).result
    good, observed = sum(s.good_ms for s in found), sum(s.observed_ms for s in found)
    worst = min(found, key=lambda share: (share.value - share.limit, share.topic))
    kept = all(share.is_kept for share in found)
    return RuleResult(
        rule,
        title,
        Outcome.KEPT if kept else Outcome.VIOLATED,
        objective,
        f"{percent(good / observed)}"
        + ("" if kept or len(found) == 1 else f" ({worst.topic} {percent(worst.value)})"),
        good / observed,
        worst.limit,
        worst.topic,
    )


def percent(share: float) -> str:
    """Format a share with two digits of its distance from all, or from nothing.

    It is never rounded to an objective that was missed: near 100 % it is rounded down, near 0 % up.
    """
    value = 100 * share
    gap = min(value, 100 - value)
    if gap <= 1e-9:
        return f"{round(value):g} %"
    digits = max(0, 1 - math.floor(math.log10(gap) + 1e-9))
    scale = 10.0**digits
    exact = round(value * scale, 6)
    whole = math.floor(exact) if value > 50 else math.ceil(exact)
    text = f"{whole / scale:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if digits else text} %"


def duration(ms: float) -> str:
    return _with_unit(ms, two_digits)


def at_most(ms: float) -> str:
    """Return the duration rounded up, so that it never reads as a limit which it exceeds."""
    return _with_unit(ms, lambda value: two_digits(value, math.ceil))


def _with_unit(ms: float, digits: Callable[[float], str]) -> str:
    seconds = ms / 1000
    if seconds < 120:
        return f"{digits(seconds)} s"
    if seconds < 7200:
        return f"{digits(seconds / 60)} min"
    return f"{digits(seconds / 3600)} h"


def two_digits(value: float, to_whole: Callable[[float], int] = round) -> str:
    """Return two significant digits, and whole numbers whole. Scrapes know no more."""
    if not value:
        return "0"
    scale = 10.0 ** max(0, 1 - math.floor(math.log10(value) + 1e-9))
    return f"{to_whole(round(value * scale, 6)) / scale:.12g}"


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
