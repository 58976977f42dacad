"""Render the result as a few lines of Markdown, for a pull request or a chat."""

from collections.abc import Sequence

from tidemark_audit.report.findings import gaps_of, incidents_of
from tidemark_audit.report.formatting import count, day, duration, moment, plural, share, span
from tidemark_audit.report.sections import total_row
from tidemark_audit.results import AuditResult, Finding, Outcome, Severity, Verdict
from tidemark_audit.rules.grouping import effects
from tidemark_audit.rules.r6_durability import lost_records

MOST_FINDINGS = 10
MOST_EFFECTS = 5
_SIGNS = {Outcome.KEPT: "kept", Outcome.VIOLATED: "**violated**"}
_ESCAPED = "\\`*_{}[]<>()#+!|~"


def render_markdown(result: AuditResult) -> str:
    total = total_row(result)
    observed = share(total.observed_ms / max(1, total.total_ms))
    lines = [
        f"## Replication audit: {result.verdict.value}",
        "",
        f"{_plain(result.sentence)}.",
        "",
        f"{_when(result)} UTC ({duration(result.window_ms)}),"
        f" {plural(len(result.sli_by_partition), 'partition')}, {observed} of the time observed.",
        "",
    ]
    if result.verdict is Verdict.LOSS:
        lost = count(lost_records(result.loss_evidence))
        lines += [f"At least **{lost}** committed records are lost: see the incidents.", ""]
    lines += ["| rule | outcome | measured | objective |", "|---|---|---|---|"]
    lines += [
        f"| {rule.rule} {_plain(rule.title)} | {_SIGNS.get(rule.outcome, rule.outcome.value)} |"
        f" {_plain(rule.measured)} | {_plain(rule.objective)} |"
        for rule in result.rules
    ]
    if result.what_if:
        response = result.what_if
        lines += ["", f"### What if {_plain(response.settings)}", ""]
        lines += [f"{response.verdict.value}: {_plain(response.sentence)}.", ""]
        lines += ["| rule | actual | what if | measured then |", "|---|---|---|---|"]
        lines += [
            f"| {was.rule} {_plain(was.title)} | {_SIGNS.get(was.outcome, was.outcome.value)} |"
            f" {_SIGNS.get(would.outcome, would.outcome.value)} | {_plain(would.measured)} |"
            for was, would in zip(result.rules, response.rules, strict=True)
        ]
    lines += _reported(result, incidents_of(result), "incident")
    lines += _reported(result, gaps_of(result), "gap in the evidence")
    return "\n".join(lines) + "\n"


def _reported(result: AuditResult, found: Sequence[Finding], noun: str) -> list[str]:
    if not found:
        return []
    plural_noun = noun if len(found) == 1 else noun.replace("gap", "gaps", 1)
    if plural_noun == noun and len(found) > 1:
        plural_noun += "s"
    lines = ["", f"### {count(len(found))} {plural_noun}", ""]
    below = effects(result.findings)
    for number, finding in enumerate(found[:MOST_FINDINGS], 1):
        lines.append(
            f"{number}. **{finding.severity.value}** {_plain(finding.subject)}:"
            f" {_plain(finding.sentence)} ({span(finding.start_ms, finding.end_ms)})."
            f" {_with_code(finding.remedy)}"
        )
        if finding.severity is Severity.CRITICAL:
            lines.append(f"   - {_plain(finding.cause)}")
        lines += [
            f"   - {_plain(each.subject)}: {_plain(each.sentence)}"
            for each in below.get(finding.id, [])[:MOST_EFFECTS]
        ]
    if len(found) > MOST_FINDINGS:
        lines.append(f"\n{count(len(found) - MOST_FINDINGS)} more are in report.json.")
    return lines


def _when(result: AuditResult) -> str:
    start, end = result.window_start_ms, result.window_end_ms
    to = moment(end, with_date=day(start) != day(end))
    return f"{day(start)}, {moment(start, with_date=False)} to {to}"


def _with_code(text: str) -> str:
    """Keep text between backticks as code, and escape the rest."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one has no partner
        return _plain(text)
    return "".join(f"`{part}`" if number % 2 else _plain(part) for number, part in enumerate(parts))


def _plain(text: str) -> str:
    """Names of topics hold characters that Markdown would take for its own."""
    return "".join(f"\\{sign}" if sign in _ESCAPED else sign for sign in text.replace("\n", " "))
