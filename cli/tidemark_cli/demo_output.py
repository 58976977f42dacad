"""Print how the demo ended: each fault, the verdict, figures of many rounds, and the audit."""

from pathlib import Path

from rich.console import Console
from tidemark_chaos.environments.prometheus import AuditResponse
from tidemark_chaos.report.results import ChaosReport, Verdict

from tidemark_cli.output import table

FEW_ROUNDS = 4  # up to here each fault is told, and figures over them mean little
# After PASSED another verdict would read as a contradiction.
AUDIT_WORDS = {
    "VIOLATED": "the audit applies production objectives, so the faults above count as violations:",
    "INCONCLUSIVE": "PASSED is based on the records; samples alone do not suffice for a verdict:",
    "LOSS": "metrics disagree with the records that were read; please report this:",
    "NO-SOURCE": "PASSED is based on the records; the audit had no samples:",
}


def draw_demo(
    console: Console, report: ChaosReport, audited: AuditResponse | str, page: Path
) -> None:
    console.print("\n[bold]Faults[/]")
    if len(report.faults) <= FEW_ROUNDS:
        _draw_faults(console, report)
    else:
        _draw_figures(console, report)
    console.print("\n[bold]Verdict[/]")
    _draw_verdict(console, report)
    console.print("\n[bold]Audit[/]")
    _draw_audit(console, audited)
    console.print(f"\nreport: {page}", markup=False)


def _draw_faults(console: Console, report: ChaosReport) -> None:
    rows = [
        (
            fault.text or f"skipped: {fault.skipped}",
            _ms(fault.elect_ms),
            _ms(fault.full_isr_ms),
            _ms(fault.write_gap_ms),
            _ms(fault.workload_stall_ms or None),
        )
        for fault in report.faults
    ]
    heads = ("fault", "new leader", "all in sync", "write gap", "load had no CPU")
    console.print(table(heads, rows))


def _draw_figures(console: Console, report: ChaosReport) -> None:
    """Print p50, p99 and maximum of each time in ms, over many rounds."""
    rows = [
        (kind.kind, kind.count, name, *(f"{each:.0f}" for each in spread.percentiles_ms))
        for kind in report.by_kind
        for name, spread in (
            ("write gap", kind.write_gap),
            ("leader elected", kind.elect),
            ("in sync again", kind.full_isr),
        )
        if spread is not None
    ]
    console.print(table(("rounds of", "", "ms", "p50", "p99", "max"), rows))


def _draw_verdict(console: Console, report: ChaosReport) -> None:
    differing = next(row for row in report.anomalies if row.name == "replicas that differ").count
    rows = [
        ("acknowledged", report.acknowledged),
        ("found", report.found),
        ("lost", report.lost),
        ("duplicated", report.duplicated),
        ("unknown", report.unknown),
        ("replicas", "DIFFER" if differing else "identical" if report.found else "not compared"),
        ("longest write gap", _ms(report.write_gap_ms)),
    ]
    console.print(table((), rows))
    for reason in report.reasons:
        console.print(f"  {reason}", style="red", markup=False)
    if report.verdict is Verdict.PASSED:
        words = f"nothing lost, nothing duplicated ({report.seconds:.0f} s)"
        console.print(f"\n[bold green]PASSED[/]  {words}")
    else:
        console.print(f"\n[bold red]{report.verdict.value}[/]  ", end="")
        console.print(report.sentence, markup=False)


def _draw_audit(console: Console, audited: AuditResponse | str) -> None:
    """Print verdict and incidents of `tidemark audit` over the run, or why there are none."""
    if isinstance(audited, str):
        console.print(f"none: {audited}", markup=False)
        return
    if audited.verdict in AUDIT_WORDS:
        console.print(AUDIT_WORDS[audited.verdict], markup=False)
    console.print(f"  {audited.verdict}  {audited.sentence}", markup=False, style="bold")
    for incident in audited.incidents:
        console.print(f"  {incident}", markup=False)
    console.print(f"report of the audit: {audited.page}", markup=False)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"
