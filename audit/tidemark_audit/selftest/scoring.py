"""Both engines over the same made-up samples; what they say against what is true."""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from tidemark_audit.assembly import assemble
from tidemark_audit.engines.engine import Engine, Observed, Request
from tidemark_audit.engines.planning import aggregation_settings
from tidemark_audit.results import AuditResult, Finding, Outcome
from tidemark_audit.rules.r6_durability import lost_records
from tidemark_audit.selftest.expected_verdict import INTERVAL_MS, ExpectedVerdict, expected
from tidemark_audit.selftest.samples import BASE_MS, write_samples
from tidemark_audit.selftest.scenario import LENGTH_MS, RATE, Scenario, scenario
from tidemark_audit.slo import Objectives, Slo
from tidemark_audit.sources.detect import sources_at
from tidemark_audit.sources.source import Window

# Of six hours at 15 s an outage of seconds cannot be told from none: the budget must be larger.
OBJECTIVES = Slo(Objectives(writable=0.999))
PER_FILE = 25
ABSENCES = ("R1", "R2", "R3", "R5")  # whose findings are of replicas that were not there
RULES = tuple(f"R{number}" for number in range(1, 9))


@dataclass(frozen=True, slots=True)
class Score:
    rule: str
    true_positives: int
    false_positives: int
    false_negatives: int

    @property
    def recall(self) -> float:
        found = self.true_positives + self.false_negatives
        return self.true_positives / found if found else 1.0

    @property
    def precision(self) -> float:
        said = self.true_positives + self.false_positives
        return self.true_positives / said if said else 1.0


@dataclass(frozen=True, slots=True)
class SelfTest:
    scenarios: int
    samples: int
    seconds: dict[str, float]  # by engine
    scores: tuple[Score, ...]
    mistakes: tuple[str, ...]
    differences: tuple[str, ...]  # between the engines

    @property
    def is_good(self) -> bool:
        return not self.mistakes and not self.differences


def self_test(
    engines: Sequence[Engine], *, scenarios: int, seed: int, tell: Callable[[str], None]
) -> SelfTest:
    stories = drawn(scenarios, seed)
    truths = [expected(story) for story in stories]
    with tempfile.TemporaryDirectory(prefix="tidemark-self-test-") as directory:
        samples = 0
        for first in range(0, scenarios, PER_FILE):
            tell(f"writing samples of scenario {first} and on")
            path = Path(directory) / f"{first:05d}.parquet"
            samples += write_samples(stories[first : first + PER_FILE], path)
        responses, seconds = {}, {}
        for engine in engines:
            tell(f"{samples} samples on engine {engine.name}")
            started = time.monotonic()
            responses[engine.name] = by_scenario(_observed(engine, directory), stories)
            seconds[engine.name] = time.monotonic() - started
    first_answers, *others = responses.values()
    differences = tuple(
        f"{story.cluster} ({', '.join(story.names)})"
        for other in others
        for story, one, two in zip(stories, first_answers, other, strict=True)
        if one != two
    )
    mistakes = [
        mistake
        for story, truth, found in zip(stories, truths, first_answers, strict=True)
        for mistake in mistakes_of(story, truth, found)
    ]
    scores = tuple(_score(rule, truths, first_answers) for rule in RULES)
    return SelfTest(scenarios, samples, seconds, scores, tuple(mistakes), differences)


def drawn(count: int, seed: int) -> list[Scenario]:
    """Scenarios whose truth no scrape's lateness could turn."""
    random = Random(seed)
    found: list[Scenario] = []
    while len(found) < count:
        story = scenario(len(found), random)
        if expected(story).is_clear:
            found.append(story)
    return found


def _observed(engine: Engine, directory: str) -> Observed:
    sources = sources_at([directory])
    window = Window(BASE_MS, BASE_MS + LENGTH_MS).looking_back()
    slices = [part for source in sources for part in source.slices(window.to_read)]
    settings = aggregation_settings(sources, window, INTERVAL_MS)
    return engine.observe(Request(slices, window, settings, INTERVAL_MS), lambda done, total: None)


def by_scenario(observed: Observed, stories: Sequence[Scenario]) -> list[AuditResult]:
    """Judge each cluster on its own."""
    return [
        assemble(
            replace(
                observed,
                partitions=tuple(p for p in observed.partitions if p.cluster == story.cluster),
                clock_skew=tuple(s for s in observed.clock_skew if s.cluster == story.cluster),
                lag_bands=(),
                clusters=(story.cluster,),
            ),
            OBJECTIVES,
            engine="",
            sources=(),
            wall_seconds=0.0,
            unsettled_ms=0,
        )
        for story in stories
    ]


def _violated(result: AuditResult) -> frozenset[str]:
    return frozenset(rule.rule for rule in result.rules if rule.outcome is Outcome.VIOLATED)


def _score(rule: str, truths: Sequence[ExpectedVerdict], found: Sequence[AuditResult]) -> Score:
    pairs = [
        (rule in truth.violated, rule in _violated(result))
        for truth, result in zip(truths, found, strict=True)
    ]
    return Score(
        rule,
        sum(true and said for true, said in pairs),
        sum(said and not true for true, said in pairs),
        sum(true and not said for true, said in pairs),
    )


def mistakes_of(story: Scenario, truth: ExpectedVerdict, result: AuditResult) -> list[str]:
    """Return what the audit reported wrongly, or failed to report."""
    where = f"{story.cluster} ({', '.join(story.names)})"
    found = [
        f"{where}: {rule} is {'' if rule in truth.violated else 'not '}violated"
        for rule in sorted(_violated(result) ^ truth.violated)
    ]
    if result.verdict.value != truth.verdict:
        found.append(f"{where}: verdict {result.verdict.value}, expected {truth.verdict}")
    for partition, records, is_exact in truth.lost:
        evidence = [e for e in result.loss_evidence if e.partition.partition == partition]
        counted = lost_records(evidence)
        # Gauges alone are a lower bound, by what is written between two scrapes.
        least = records if is_exact else records - 2 * RATE * INTERVAL_MS // 1000
        both = sum(r for p, r, _ in truth.lost if p == partition)
        if not least <= counted <= both:
            found.append(f"{where}: {counted} records lost in {partition}, expected {records}")
    for broker, start, end in truth.falls:
        if not _is_reported(result, broker, BASE_MS + start, BASE_MS + end):
            found.append(f"{where}: broker {broker}'s failure at {start} ms not reported")
    found += [
        f"{where}: {finding.rule} reports {finding.subject} at {finding.start_ms - BASE_MS} ms"
        for finding in result.findings
        if finding.rule in ABSENCES and not finding.planned and not _was(truth, finding)
    ]
    return found


def _was(truth: ExpectedVerdict, finding: Finding) -> bool:
    slack = 2 * INTERVAL_MS
    return any(
        finding.start_ms < BASE_MS + end + slack and finding.end_ms > BASE_MS + start - slack
        for start, end in truth.troubles
    )


def _is_reported(result: AuditResult, broker: int, start_ms: int, end_ms: int) -> bool:
    """Return whether an unplanned finding names the broker.

    Its start may be off by two scrapes.
    """
    slack = 2 * INTERVAL_MS + 8000
    return any(
        finding.rule in ("R1", "R2")
        and not finding.planned
        and str(broker) in finding.subject.rpartition("broker")[2]
        and finding.start_ms <= start_ms + slack
        and finding.end_ms >= end_ms - slack
        for finding in result.findings
    )
