"""Render the report's incidents, worst first, with their effects, and gaps in the evidence."""

from collections.abc import Sequence

from tidemark_audit.report.formatting import plural, span
from tidemark_audit.report.markup import Content, Markup, element, join
from tidemark_audit.report.parts import samples, section
from tidemark_audit.results import AuditResult, Finding
from tidemark_audit.rules.grouping import effects, leads

MOST_INCIDENTS = 200
OPEN_INCIDENTS = 12
MOST_EFFECTS = 12
EVIDENCE = "R8"


def incidents_of(result: AuditResult) -> list[Finding]:
    """Return the findings that lead an incident and were not planned."""
    return [each for each in leads(result.findings) if not each.planned and each.rule != EVIDENCE]


def gaps_of(result: AuditResult) -> list[Finding]:
    return [each for each in leads(result.findings) if each.rule == EVIDENCE]


def incidents(result: AuditResult) -> Markup:
    happened = incidents_of(result)
    planned = [each for each in leads(result.findings) if each.planned]
    shown = happened[:MOST_INCIDENTS]
    lead = "Each incident once, worst first, with effects and remedy."
    return section(
        "Incidents",
        lead if happened else "",
        None if happened else element("p", "None.", class_="quiet"),
        _articles(result, shown[:OPEN_INCIDENTS]),
        _folded(result, shown[OPEN_INCIDENTS:], "more incident"),
        _folded(result, planned[:MOST_INCIDENTS], "planned absence"),
        _rest(len(happened) - len(shown)),
    )


def gaps(result: AuditResult) -> Markup | None:
    found = gaps_of(result)
    if not found:
        return None
    return section(
        "Gaps in the evidence",
        "Times without samples. The cluster may have been healthy.",
        _articles(result, found[:OPEN_INCIDENTS]),
        _folded(result, found[OPEN_INCIDENTS:], "more gap"),
    )


def _rest(count: int) -> Markup | None:
    return element("p", f"{count} more are in report.json.", class_="meta") if count > 0 else None


def _folded(result: AuditResult, found: Sequence[Finding], noun: str) -> Markup | None:
    if not found:
        return None
    summary = element("summary", plural(len(found), noun))
    return element("details", summary, _articles(result, found), class_="more")


def _articles(result: AuditResult, found: Sequence[Finding]) -> list[Markup]:
    below = effects(result.findings)
    return [_article(each, below.get(each.id, [])) for each in found]


def _article(finding: Finding, below: Sequence[Finding]) -> Markup:
    tags: list[Content] = [
        element("span", finding.severity.value, class_=f"chip {finding.severity.value}"),
        element("span", "planned", class_="chip planned-chip") if finding.planned else None,
        element("span", f"{finding.rule} \u00b7 {finding.subject}"),
        element("span", span(finding.start_ms, finding.end_ms)),
    ]
    if len(finding.partitions) > 1:
        tags.append(element("span", plural(len(finding.partitions), "partition")))
    tags.append(element("span", finding.confidence.value))
    tells_cause = finding.sentence.startswith(f"{finding.cause}:")
    return element(
        "article",
        element("h3", finding.sentence),
        element("div", tags, class_="tags"),
        element("p", f"Probable cause: {finding.cause}", class_="cause")
        if finding.cause and not tells_cause
        else None,
        _effects(below),
        element("p", element("b", "Remedy: "), _commands(finding.remedy), class_="remedy")
        if finding.remedy
        else None,
        samples(finding.samples),
        class_=f"finding {finding.severity.value}",
        id=finding.id,
    )


def _effects(below: Sequence[Finding]) -> Markup | None:
    if not below:
        return None
    rest = len(below) - MOST_EFFECTS
    return element(
        "ul",
        (
            element("li", element("b", f"{each.rule} {each.subject}: "), each.sentence, id=each.id)
            for each in below[:MOST_EFFECTS]
        ),
        element("li", f"{rest} more in report.json") if rest > 0 else None,
        class_="effects",
    )


def _commands(text: str) -> Markup:
    """Render text between backticks as code."""
    parts = text.split("`")
    return join(
        element("code", part) if number % 2 else part for number, part in enumerate(parts) if part
    )
