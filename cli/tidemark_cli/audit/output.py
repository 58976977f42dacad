"""Print an audit for people: the verdict in a box, each rule's result, and what to do about it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.panel import Panel
from rich.text import Text

from tidemark_cli.output import table

if TYPE_CHECKING:
    from tidemark_audit.results import AuditResult, Finding
    from tidemark_audit.selftest.scoring import SelfTest

COLOURS = {
    "PASS": "green",
    "VIOLATED": "yellow",
    "LOSS": "red",
    "INCONCLUSIVE": "magenta",
    "NO-SOURCE": "magenta",
}
MARKS = {"kept": "ok", "violated": "VIOLATED", "not evaluated": "not evaluated"}
MOST_FINDINGS = 20
MOST_EFFECTS = 5


def draw(console: Console, result: "AuditResult", directory: Path | None) -> None:
    colour = COLOURS[result.verdict.value]
    head = Text(result.verdict.value, style=f"bold {colour}")
    lines = [head, Text(result.sentence), Text(_window(result), style="dim")]
    # The box wraps its text; the console itself leaves long lines whole, for pipes.
    box = Panel(Group(*lines), border_style=colour, expand=False, padding=(0, 2))
    console.print(box, soft_wrap=False)
    console.print()
    for each in result.rules:
        mark = MARKS[each.outcome.value]
        console.print(f"{each.rule}  {mark:13}  {each.title}: {each.measured}", markup=False)
    _draw_findings(console, result)
    console.print()
    if result.unsettled_ms:
        words = f"The last {result.unsettled_ms / 1000:g} s are left out: samples may still arrive."
        console.print(words, style="dim")
    for note in result.notes:
        console.print(note, style="dim", markup=False)
    if directory is not None:
        console.print(f"report: {directory}", markup=False)


def _draw_findings(console: Console, result: "AuditResult") -> None:
    """Print the cause of each incident with its effects; gaps in the evidence come last."""
    from tidemark_audit.report.findings import EVIDENCE
    from tidemark_audit.rules.grouping import effects, leads

    reported = leads(result.findings)
    below = effects(result.findings)
    gaps = [each for each in reported if each.rule == EVIDENCE]
    happened = [each for each in reported if each.rule != EVIDENCE]
    for title, found in (("INCIDENTS", happened), ("GAPS IN THE EVIDENCE", gaps)):
        if found:
            console.print()
            console.print(title, style="bold")
        for finding in found[:MOST_FINDINGS]:
            _draw_finding(console, finding, below.get(finding.id, []))
        if len(found) > MOST_FINDINGS:
            console.print(f"and {len(found) - MOST_FINDINGS} more: see report.json")


def draw_what_if(console: Console, result: "AuditResult", what_if: "AuditResult") -> None:
    """Rule by rule, as it was and as it would have been."""
    rows = [
        (was.rule, MARKS[was.outcome.value], MARKS[would.outcome.value], was.measured)
        for was, would in zip(result.rules, what_if.rules, strict=True)
    ]
    console.print(table(("rule", "actual", "what if", "measured"), rows))
    console.print()
    for was, would in zip(result.rules, what_if.rules, strict=True):
        if was.measured != would.measured:
            console.print(f"{was.rule}  would have been: {would.measured}", markup=False)
    console.print()
    for words, each in (("actual", result), ("what if", what_if)):
        console.print(f"{words:10} {each.verdict.value}  {each.sentence}", markup=False)


def draw_self_test(console: Console, found: "SelfTest") -> None:
    rows = [
        (
            score.rule,
            score.true_positives + score.false_negatives,
            _ratio(score.recall, score.true_positives + score.false_negatives),
            _ratio(score.precision, score.true_positives + score.false_positives),
        )
        for score in found.scores
    ]
    console.print(table(("rule", "violated in", "recall", "precision"), rows))
    console.print()
    for mistake in found.mistakes:
        console.print(f"wrong result: {mistake}", markup=False)
    for difference in found.differences:
        console.print(f"engines differ: {difference}", markup=False)
    times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in found.seconds.items())
    words = "[bold green]PASSED[/]" if found.is_good else "[bold red]FAILED[/]"
    console.print(f"{words}  {found.scenarios} clusters, {found.samples} samples; {times}")


def _ratio(value: float, cases: int) -> str:
    """Format a ratio; of zero cases there is none."""
    return f"{value:.3f}" if cases else "no case"


def _draw_finding(console: Console, finding: "Finding", below: "Sequence[Finding]") -> None:
    planned = " (planned)" if finding.planned else ""
    console.print(
        f"{clock(finding.start_ms)} to {clock(finding.end_ms)}  {finding.severity.value}"
        f"  {finding.rule}  {finding.subject}{planned}",
        markup=False,
    )
    console.print(f"  {finding.sentence}", markup=False)
    if not finding.sentence.startswith(f"{finding.cause}:"):
        console.print(f"  cause:   {finding.cause}", markup=False, style="dim")
    for each in below[:MOST_EFFECTS]:
        console.print(f"  effect:  {each.rule} {each.subject}: {each.sentence}", markup=False)
    if len(below) > MOST_EFFECTS:
        console.print(f"  effect:  {len(below) - MOST_EFFECTS} more: see report.json")
    console.print(f"  action:  {finding.remedy}", markup=False, style="dim")


def _window(result: "AuditResult") -> str:
    seconds = result.window_ms / 1000
    count = len(result.sli_by_partition)
    partitions = f"{count} partition{'' if count == 1 else 's'}"
    return (
        f"{clock(result.window_start_ms)} to {clock(result.window_end_ms)} ({seconds:g} s),"
        f" {partitions}, scraped every {result.scrape_interval_ms / 1000:g} s,"
        f" engine {result.engine}, {result.wall_seconds:.1f} s"
    )


def clock(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
