"""Findings by incident: what one cause did stands below the finding that tells of the cause.

A finding keeps its rule, its id and its sentence; the first of an incident leads it, begins with
the cause, and is as grave as the gravest of them. Gaps in the evidence come last: they say little
of the cluster, and would hide what happened to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tidemark_audit.results import Finding, Severity, TopicPartition
from tidemark_audit.rules.evaluation import AuditAnalysis, BrokerRun
from tidemark_audit.rules.incidents import Incident, incidents

GRAVITY = {Severity.CRITICAL: 0, Severity.MAJOR: 1, Severity.MINOR: 2, Severity.INFO: 3}
_FALLS = ("R1", "R2")  # of an incident as a whole
_LAG, _DURABILITY, _CHURN, _EVIDENCE = "R4", "R6", "R7", "R8"


@dataclass(frozen=True, slots=True)
class _Fall:
    """Hold an incident of brokers, and the finding that reports it."""

    incident: Incident
    lead: Finding

    def overlap_ms(self, finding: Finding) -> int:
        return min(self.incident.end_ms, finding.end_ms) - max(
            self.incident.start_ms, finding.start_ms
        )


def grouped(findings: Sequence[Finding], analysis: AuditAnalysis) -> tuple[Finding, ...]:
    """Group findings by incident, in the order in which people should read them."""
    falls = _falls(findings, analysis)
    members: dict[str, list[Finding]] = {}
    alike: dict[tuple[str, ...], str] = {}
    for finding in (_with_planned_cause(each, falls) for each in findings):
        fall = _fall_of(finding, falls)
        leads = alike.setdefault(_likeness(finding), finding.id) if fall is None else fall.lead.id
        members.setdefault(leads, []).append(finding)
    causes = {fall.lead.id: cause(fall.incident, analysis) for fall in falls}
    groups = [_led(leads, group, causes.get(leads, "")) for leads, group in members.items()]
    groups.sort(key=lambda group: _order(group[0]))
    return tuple(finding for group in groups for finding in group)


def leads(findings: Sequence[Finding]) -> list[Finding]:
    """Return the leading finding of each incident."""
    return [each for each in findings if each.incident in ("", each.id)]


def effects(findings: Sequence[Finding]) -> Mapping[str, list[Finding]]:
    """Return the other findings of each incident, by the leading one."""
    found: dict[str, list[Finding]] = {}
    for each in findings:
        if each.incident not in ("", each.id):
            found.setdefault(each.incident, []).append(each)
    return found


def cause(incident: Incident, analysis: AuditAnalysis) -> str:
    """Describe an incident's cause by brokers' own epochs, else by what leaders reported."""
    reported = [
        words
        for broker in incident.brokers
        if (words := _life_of(broker, incident, analysis)) and not incident.planned
    ]
    return "; ".join(reported) or incident.intervals[0].cause


def _life_of(broker: str, incident: Incident, analysis: AuditAnalysis) -> str:
    places = analysis.places()
    lives: list[BrokerRun] = sorted(
        (
            life
            for life in analysis.broker_lives
            if life.broker == broker and places.get((life.cluster, life.pool)) == incident.where
        ),
        key=lambda life: life.first_ms,
    )
    first, last = incident.start_ms - analysis.slack_ms, incident.end_ms + analysis.slack_ms
    # A restart lies between two sights, which scrapes that fail move apart.
    starts = [
        at
        for at in range(1, len(lives))
        if lives[at - 1].last_ms <= last and lives[at].first_ms >= first
    ]
    if starts:
        times = f" {len(starts)} times" if len(starts) > 1 else ""
        old, new = lives[starts[0] - 1].epoch, lives[starts[-1]].epoch
        return f"broker {broker} restarted{times}, epoch {old:g} -> {new:g}"
    if lives and first <= lives[-1].last_ms < incident.end_ms - analysis.slack_ms:
        return f"broker {broker} stopped and did not return"
    return ""


def _with_planned_cause(finding: Finding, falls: Sequence[_Fall]) -> Finding:
    """Lag of a follower that was away on request is no slow disk."""
    follower = finding.subject.split()[-1]
    if finding.rule != _LAG or _fall_of(finding, falls) is not None:
        return finding
    planned = [
        fall.lead.cause
        for fall in falls
        if fall.incident.planned
        and follower in fall.incident.brokers
        and set(finding.partitions) & set(fall.incident.partitions)
        and fall.overlap_ms(finding) >= 0
    ]
    return replace(finding, cause=f"{planned[0]} in this window") if planned else finding


def _falls(findings: Sequence[Finding], analysis: AuditAnalysis) -> list[_Fall]:
    found = {
        (each.subject, each.start_ms, each.planned): each
        for each in findings
        if each.rule in _FALLS
    }
    falls = []
    for incident in incidents(analysis):
        lead = found.get((incident.subject, incident.start_ms, incident.planned))
        if lead is not None:
            falls.append(_Fall(incident, lead))
    return falls


def _fall_of(finding: Finding, falls: Sequence[_Fall]) -> _Fall | None:
    """Return the incident that explains a finding."""
    if finding.rule in _FALLS:
        return next((fall for fall in falls if fall.lead is finding), None)
    if finding.rule in (_DURABILITY, _EVIDENCE):
        return None
    about = set(finding.partitions)
    if finding.rule == _CHURN:
        fallen: set[TopicPartition] = set()
        for fall in falls:
            fallen |= set(() if fall.incident.planned else fall.incident.partitions)
        if not about <= fallen:
            return None
    fit = [
        fall
        for fall in falls
        if about & set(fall.incident.partitions)
        and fall.overlap_ms(finding) >= 0
        and fall.incident.planned == finding.planned
        and (finding.rule != _LAG or finding.subject.split()[-1] in fall.incident.brokers)
    ]
    return max(
        fit,
        key=lambda fall: (
            fall.overlap_ms(finding),
            len(about & set(fall.incident.partitions)),
        ),
        default=None,
    )


def _likeness(finding: Finding) -> tuple[str, ...]:
    """Return a key that equal findings without an incident of brokers share."""
    if finding.rule == _EVIDENCE:
        return finding.rule, finding.cause, finding.severity.value
    if finding.rule == _DURABILITY and finding.subject != str(finding.partitions[0]):
        # Elections of one moment are of one incident; losses are told one by one.
        return finding.rule, finding.cause, finding.severity.value, str(finding.end_ms)
    return (finding.id,)


def _led(leads: str, group: Sequence[Finding], cause: str) -> list[Finding]:
    group = sorted(group, key=lambda each: (each.id != leads, GRAVITY[each.severity], each.rule))
    gravest = min((each.severity for each in group), key=GRAVITY.__getitem__)
    head, *rest = (replace(each, incident=leads) for each in group)
    if cause:
        head = replace(head, sentence=f"{cause}: {head.sentence}", cause=cause)
    return [replace(head, severity=gravest), *rest]


def _order(lead: Finding) -> tuple[bool, int, bool, int, str, str]:
    """Return a sort key: findings about the whole window stand behind those with a time."""
    gravity = GRAVITY[lead.severity]
    is_lasting = lead.rule in (_LAG, _CHURN)
    return lead.rule == _EVIDENCE, gravity, is_lasting, lead.start_ms, lead.rule, lead.subject
