"""Put the figures of other systems, under the same experiment and seed next to ours. Pure."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

import msgspec

from tidemark_chaos.report.html_parts import latency_text, spread_text, table, time_text
from tidemark_chaos.report.results import ChaosReport, FaultFigures, KindFigures, Verdict


class NotComparable(Exception):
    """An error: the text says what was expected and found."""


def read_other(path: Path, name: str, seed: int) -> ChaosReport:
    """Return the report of another system under this experiment. Raises NotComparable."""
    try:
        other = msgspec.json.decode(path.read_bytes(), type=ChaosReport)
    except (OSError, msgspec.DecodeError) as error:
        raise NotComparable(f"{path} is no report.json of an experiment: {error}") from error
    if (other.name, other.seed) != (name, seed):
        raise NotComparable(
            f"expected a report of {name} with seed {seed}, {path} is of {other.name} with seed"
            f" {other.seed}"
        )
    return other


def comparison_section(report: ChaosReport, others: Sequence[ChaosReport]) -> str:
    """Return the section that has a row of each system for each kind and each fault."""
    reports = (report, *others)
    names = ", ".join(escape(each.system_name) for each in others)
    return (
        f"<h2>Compared with {names}</h2>"
        "<p>The same experiment, seed and checks on the same kind of cluster, one system after"
        " the other. Times are since the fault.</p>"
        f"{_totals(reports)}<h2>By kind, in ms (p50 / longest)</h2>{_by_kind(reports)}"
        f"<details><summary>By fault</summary>{_by_fault(reports)}</details>"
    )


def _totals(reports: Sequence[ChaosReport]) -> str:
    heads = (
        *("<system", "<verdict", "faults", "acknowledged", "lost", "duplicated", "unknown"),
        *("longest write gap", "latency p50 / p99 / longest, ms"),
    )

    def row(report: ChaosReport) -> str:
        is_bad = report.verdict is not Verdict.PASSED
        struck = sum(not fault.skipped for fault in report.faults)
        counts = (struck, report.acknowledged, report.lost, report.duplicated, report.unknown)
        return (
            f"<tr{' class=bad' * is_bad}>"
            f'<td class="l">{escape(report.system_name)}</td>'
            f'<td class="l">{report.verdict.value}</td>'
            + "".join(f"<td>{count:,}</td>" for count in counts)
            + f"<td>{time_text(report.write_gap_ms)}</td><td>{latency_text(report.latency)}</td>"
            "</tr>"
        )

    return table(heads, map(row, reports))


def _by_kind(reports: Sequence[ChaosReport]) -> str:
    heads = (
        *("<kind", "<role", "<", "<system", "faults", "detected", "elected", "first ack"),
        *("full ISR", "write gap", "read gap"),
    )
    keys = dict.fromkeys(_key(kind) for report in reports for kind in report.by_kind)
    rows = []
    for key in keys:
        words = key
        for report in reports:
            for kind in report.by_kind:
                if _key(kind) != key:
                    continue
                spreads = (
                    *(kind.detect, kind.elect, kind.first_ack, kind.full_isr),
                    *(kind.write_gap, kind.read_gap),
                )
                rows.append(
                    "<tr>"
                    + "".join(f'<td class="l">{escape(word)}</td>' for word in words)
                    + f'<td class="l">{escape(report.system_name)}</td><td>{kind.count}</td>'
                    + "".join(f"<td>{spread_text(each)}</td>" for each in spreads)
                    + "</tr>"
                )
                words = ("", "", "")
    return table(heads, rows)


def _by_fault(reports: Sequence[ChaosReport]) -> str:
    heads = (
        *("#", "<kind", "<role", "<system", "<brokers", "detected", "elected", "first ack"),
        *("full ISR", "write gap"),
    )
    numbers = sorted({fault.number for report in reports for fault in report.faults})
    rows = []
    for number in numbers:
        for report in reports:
            rows += [_fault_row(report, each) for each in report.faults if each.number == number]
    return table(heads, rows)


def _fault_row(report: ChaosReport, fault: FaultFigures) -> str:
    times = (
        *(fault.detect_ms, fault.elect_ms, fault.first_ack_ms, fault.full_isr_ms),
        fault.write_gap_ms,
    )
    brokers = fault.skipped and f"skipped: {fault.skipped}"
    brokers = brokers or ", ".join(map(str, fault.brokers)) or "-"
    return (
        f'<tr><td>{fault.number}</td><td class="l">{escape(fault.kind)}</td>'
        f'<td class="l">{escape(fault.role)}</td><td class="l">{escape(report.system_name)}</td>'
        f'<td class="l">{escape(brokers)}</td>'
        + "".join(f"<td>{time_text(each)}</td>" for each in times)
        + "</tr>"
    )


def _key(kind: KindFigures) -> tuple[str, str, str]:
    return kind.kind, kind.role, kind.detail
