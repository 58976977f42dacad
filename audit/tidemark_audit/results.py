"""Define an audit's result as plain values: written by the rules, rendered by `report`.

Times are milliseconds since 1970 of Prometheus's scrapes, durations are milliseconds, intervals are
half open. A renderer needs only an `AuditResult`; `to_json` and `from_json` are the format of
`report.json`.
"""

from dataclasses import dataclass
from enum import StrEnum

import msgspec

RESULT_FORMAT = 1
ANY_EPOCH = 2**31 - 1


class Verdict(StrEnum):
    """Name the verdict: the first that holds, in the order LOSS, VIOLATED, INCONCLUSIVE."""

    PASS = "PASS"
    VIOLATED = "VIOLATED"
    LOSS = "LOSS"
    INCONCLUSIVE = "INCONCLUSIVE"
    NO_SOURCE = "NO-SOURCE"

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self]


EXIT_CODES = {
    Verdict.PASS: 0,
    Verdict.VIOLATED: 1,
    Verdict.LOSS: 2,
    Verdict.INCONCLUSIVE: 3,
    Verdict.NO_SOURCE: 4,
}


class Severity(StrEnum):
    CRITICAL = "critical"
    MAJOR = "major"
    MINOR = "minor"
    INFO = "info"


class Confidence(StrEnum):
    """`proved`: the samples leave no other reading. `indicated`: they fit, but so might others."""

    PROVED = "proved"
    INDICATED = "indicated"


class Outcome(StrEnum):
    """Name one rule's outcome; without its inputs a rule is `not evaluated`, never kept."""

    KEPT = "kept"
    VIOLATED = "violated"
    NOT_EVALUATED = "not evaluated"


class IntervalKind(StrEnum):
    """Name a partition's state in its leader's view; the first five add up to the window."""

    UNDER_REPLICATED = "under-replicated"
    UNDER_MIN_ISR = "under-min-isr"
    OFFLINE = "offline"
    UNOBSERVED = "unobserved"
    HEALTHY = "healthy"
    # These two lie beside the others, not among them.
    ONE_FAILURE_FROM_LOSS = "one-failure-from-loss"
    ONE_FAILURE_FROM_STALL = "one-failure-from-stall"


class LossKind(StrEnum):
    COMMITTED_TRUNCATION = "committed-truncation"
    ELECTION_GAP = "election-gap"
    DIGEST_MISMATCH = "digest-mismatch"
    RECOVERY = "recovery-lost-committed"
    HIGH_WATERMARK_REGRESS = "high-watermark-regress"
    LEADER_BELOW_HIGH_WATERMARK = "leader-below-high-watermark"


@dataclass(frozen=True, slots=True)
class Sample:
    """Hold one sample that proves something; `series` is written as Prometheus writes it."""

    series: str
    at_ms: int
    value: float


@dataclass(frozen=True, slots=True)
class TopicPartition:
    topic: str
    partition: int
    topic_id: str = ""  # a topic created again under its old name is another topic

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Interval:
    partition: TopicPartition
    kind: IntervalKind
    start_ms: int
    end_ms: int
    planned: bool = False
    cause: str = ""  # `broker 2 out of sync`, `planned restart of broker 1`, `move`
    brokers: tuple[str, ...] = ()  # out of the in-sync set meanwhile
    in_sync_replicas: int = -1  # the fewest seen; -1 where nobody said
    replicas: int = -1
    min_in_sync_replicas: int = -1
    earlier_ms: int = 0  # for how long it had lasted when the window began, as far as that was read

    @property
    def duration_ms(self) -> int:
        return self.end_ms - self.start_ms

    @property
    def began_ms(self) -> int:
        return self.start_ms - self.earlier_ms

    @property
    def lasted_ms(self) -> int:
        """Return the duration, including what lies before the window."""
        return self.end_ms - self.began_ms


@dataclass(frozen=True, slots=True)
class SliRow:
    """Divide a partition's window by state; the six add up to the window times `partitions`."""

    topic: str
    partition: int | None  # None: the sum of the topic's partitions
    topic_id: str
    partitions: int
    healthy_ms: int
    degraded_planned_ms: int
    degraded_unplanned_ms: int
    under_min_isr_ms: int
    offline_ms: int
    unobserved_ms: int
    one_failure_from_loss_ms: int = 0
    one_failure_from_stall_ms: int = 0

    @property
    def total_ms(self) -> int:
        return self.observed_ms + self.unobserved_ms

    @property
    def observed_ms(self) -> int:
        degraded = self.degraded_planned_ms + self.degraded_unplanned_ms
        return self.healthy_ms + degraded + self.under_min_isr_ms + self.offline_ms


@dataclass(frozen=True, slots=True)
class FollowerLag:
    """Hold how far one follower was behind; quantiles of samples are right to 1 %."""

    partition: TopicPartition
    follower: str
    samples: int
    never_caught_up_samples: int  # of the age: at those moments it had no number
    age_p50_seconds: float | None
    age_p99_seconds: float | None
    age_p999_seconds: float | None
    age_max_seconds: float | None
    records_p50: float | None
    records_p99: float | None
    records_p999: float | None
    records_max: float | None


@dataclass(frozen=True, slots=True)
class LagBand:
    """Caught-up age of all followers together in one stretch of time; None: never caught up."""

    start_ms: int
    end_ms: int
    samples: int
    p50_seconds: float | None
    p90_seconds: float | None
    p99_seconds: float | None
    max_seconds: float


@dataclass(frozen=True, slots=True)
class Election:
    """Record a leader with a new epoch, seen between two scrapes."""

    partition: TopicPartition
    after_ms: int  # last sample before it
    at_ms: int  # first sample after it
    kind: str  # clean, unclean, planned, or unknown where nobody counted it
    from_broker: str
    to_broker: str
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class IsrChange:
    partition: TopicPartition
    after_ms: int
    at_ms: int
    from_in_sync_replicas: int
    to_in_sync_replicas: int
    reason: str  # lag, fenced, planned, move, expand, or empty


@dataclass(frozen=True, slots=True)
class LossEvidence:
    partition: TopicPartition
    kind: LossKind
    after_ms: int
    at_ms: int
    leader_epoch: int  # evidence of epochs that overlap may be of one loss: it is not added up
    records: int | None  # a lower bound; None where the evidence holds no number
    confidence: Confidence
    sentence: str
    samples: tuple[Sample, ...] = ()
    # The records were there in this epoch, and lost in a later one up to `leader_epoch`; None: in
    # the one before.
    since_epoch: int | None = None
    first_offset: int | None = None  # of the records that are gone, where somebody said it

    @property
    def offsets(self) -> tuple[int, int] | None:
        """First and last of what is gone at least."""
        if self.first_offset is None or not self.records:
            return None
        return self.first_offset, self.first_offset + self.records - 1

    @property
    def epochs(self) -> tuple[int, int]:
        """First and last epoch that may have lost them; where none is known, any."""
        if self.leader_epoch < 0:
            return 0, ANY_EPOCH
        since = self.leader_epoch - 1 if self.since_epoch is None else self.since_epoch
        return min(since + 1, self.leader_epoch), self.leader_epoch


@dataclass(frozen=True, slots=True)
class Coverage:
    """Hold how much of a partition's window was observed."""

    partition: TopicPartition
    observed_ms: int
    window_ms: int
    samples: int
    missing_families: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        return self.observed_ms / self.window_ms if self.window_ms else 0.0


@dataclass(frozen=True, slots=True)
class BurnRate:
    """Error budget burnt, as a multiple of what the objective allows, over the last hours."""

    rule: str
    window_ms: int
    rate: float
    limit: float


@dataclass(frozen=True, slots=True)
class Finding:
    id: str  # the same in every run: hash of rule, subject and start
    rule: str
    severity: Severity
    subject: str  # a partition, a broker, a file
    start_ms: int
    end_ms: int
    sentence: str
    cause: str
    remedy: str  # a command or a sentence
    doc: str  # place in docs/user/audit-rules.md
    confidence: Confidence
    planned: bool = False
    partitions: tuple[TopicPartition, ...] = ()
    samples: tuple[Sample, ...] = ()
    incident: str = ""  # id of the finding that leads: its own, or that of what caused it


@dataclass(frozen=True, slots=True)
class RuleResult:
    rule: str
    title: str
    outcome: Outcome
    objective: str  # as a sentence: `>= 99.9 % of observed partition-minutes`
    measured: str
    value: float | None = None
    limit: float | None = None
    worst: str = ""  # the subject that decided
    missing_families: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """Describe what was read; several places of one audit are joined."""

    place: str
    kind: str
    samples: int
    series: int
    skipped_histogram_series: int = 0  # native histograms in a file, of whatever family


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """Hold the same samples' judgement under other settings."""

    settings: str  # min.insync.replicas=1, replicationFactor=2
    verdict: Verdict
    sentence: str
    rules: tuple[RuleResult, ...]
    sli_by_topic: tuple[SliRow, ...]


@dataclass(frozen=True, slots=True)
class AuditResult:
    verdict: Verdict
    sentence: str
    clusters: tuple[str, ...]
    window_start_ms: int
    window_end_ms: int
    unsettled_ms: int  # between the window's end and the run, left out as still open
    scrape_interval_ms: int
    engine: str
    wall_seconds: float
    sources: tuple[SourceInfo, ...]
    rules: tuple[RuleResult, ...]
    sli_by_topic: tuple[SliRow, ...]
    sli_by_partition: tuple[SliRow, ...]
    intervals: tuple[Interval, ...]  # all but healthy ones
    follower_lag: tuple[FollowerLag, ...]
    lag_bands: tuple[LagBand, ...]
    elections: tuple[Election, ...]
    isr_changes: tuple[IsrChange, ...]
    loss_evidence: tuple[LossEvidence, ...]
    coverage: tuple[Coverage, ...]
    burn: tuple[BurnRate, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()  # e.g. what is too small to be seen by sampling
    format: int = RESULT_FORMAT
    what_if: WhatIfAnswer | None = None

    @property
    def window_ms(self) -> int:
        return self.window_end_ms - self.window_start_ms


def to_json(result: AuditResult) -> bytes:
    """Encode the document of `report.json`; infinities and NaN become null."""
    return msgspec.json.format(msgspec.json.encode(result), indent=2)


def from_json(document: bytes) -> AuditResult:
    """Decode the document of `report.json`.

    Raises msgspec.ValidationError for a document of another format.
    """
    return msgspec.json.decode(document, type=AuditResult)
