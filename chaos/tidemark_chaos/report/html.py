"""Render a report as one HTML page that fetches nothing and runs no script. Pure.

Everything that came from the cluster, a file or a name is escaped.
"""

import time
from collections.abc import Sequence
from html import escape

from tidemark_chaos.report.comparison import comparison_section
from tidemark_chaos.report.html_parts import latency_text, spread_text, table, time_text
from tidemark_chaos.report.results import AnomalyRow, ChaosReport, FaultFigures, KindFigures
from tidemark_chaos.report.timeline_svg import (
    COLOURS,
    MAX_PARTITIONS,
    around_fault,
    shown_partitions,
    whole_run,
)

MAX_DRAWN = 40  # faults with a picture of their own
MAX_LINES = 2_000  # of the time line in words
BROKER_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe, Ito

STYLE = """
:root{color-scheme:light dark;--ink:#1c2127;--dim:#5d6873;--line:#d9dee3;--page:#fff;--card:#f5f7f9;
--good:#0b6e4f;--bad:#b3261e;--warn:#8a5a00;--band:#f6c34433;--begin:#b98500;--fault:#8a5a00;
--most:#9fc3dd;--least:#3f7ea8}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ec;--dim:#9aa5b0;--line:#39424b;--page:#14181c;
--card:#1d2329;--good:#58c99b;--bad:#ff8a80;--warn:#f0c060;--band:#f6c34426;--begin:#f0c060;
--fault:#f0c060;--most:#33566e;--least:#6fb0db}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1260px;padding:24px 28px 60px;background:var(--page);color:var(--ink);
font:15px/1.45 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}
h1{font-size:20px;margin:0}h2{font-size:17px;margin:34px 0 10px}
header{display:flex;gap:18px;align-items:center;border:1px solid var(--line);border-left:10px solid;
border-radius:6px;padding:16px 20px;background:var(--card)}
header.PASSED{border-left-color:var(--good)}header.FAILED,header.ABORTED{border-left-color:var(--bad)}
.verdict{font-size:30px;font-weight:700;letter-spacing:.02em}
.PASSED .verdict{color:var(--good)}.FAILED .verdict,.ABORTED .verdict{color:var(--bad)}
header p{margin:2px 0 0}.dim{color:var(--dim)}
.reasons{margin:12px 0 0;padding:10px 14px 10px 32px;border:1px solid var(--bad);border-radius:6px}
code{font:13px/1.4 ui-monospace,"DejaVu Sans Mono",monospace;background:var(--card);
padding:2px 6px;border-radius:4px;overflow-wrap:anywhere}
.again{margin:14px 0 0}
dl.tiles{display:grid;grid-template-columns:repeat(5,1fr);gap:10px;margin:18px 0 0}
@media (max-width:720px){dl.tiles{grid-template-columns:repeat(2,1fr)}body{padding:14px}
header{display:block}}
dl.tiles div{border:1px solid var(--line);border-radius:6px;padding:8px 11px}
dl.tiles dt{color:var(--dim);font-size:12.5px}dl.tiles dd{margin:0;font-size:19px;font-weight:600;
font-variant-numeric:tabular-nums}dl.tiles .bad dd{color:var(--bad)}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:13.5px}
th,td{text-align:right;padding:5px 8px;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--dim);font-weight:600;vertical-align:bottom}td.l,th.l{text-align:left}
td.w{white-space:normal;text-align:left;min-width:220px}
tr.bad td{color:var(--bad)}td.worst{font-weight:700}
details{margin:8px 0;border:1px solid var(--line);border-radius:6px;padding:6px 12px}
summary{cursor:pointer}details pre{margin:8px 0;overflow:auto;font-size:12.5px;max-height:480px}
svg{display:block;max-width:none}svg text{fill:var(--ink);font-size:12px}
svg .dim{fill:var(--dim)}svg .small{fill:var(--dim);font-size:9.5px}svg .name{font-weight:600}
svg .tag{font-size:11px;fill:var(--ink)}svg .in{font-size:11px;fill:var(--page)}
svg .rail{stroke:var(--line);stroke-width:1}svg .tick{stroke:var(--line);stroke-width:.6}
svg .band{fill:var(--band)}svg .begin{stroke:var(--begin);stroke-width:1;stroke-dasharray:3 2}
svg .fault{fill:var(--fault)}svg .noleader{fill:var(--bad);opacity:.35}
svg .most{fill:var(--most)}svg .least{fill:var(--least)}svg .none{fill:var(--bad)}
.legend{display:flex;flex-wrap:wrap;gap:6px 18px;margin:8px 0 0;font-size:12.5px;color:var(--dim)}
.legend i{display:inline-block;width:18px;height:8px;margin-right:6px;vertical-align:1px;
border-radius:2px}
""" + "".join(
    f"svg .b{number}{{fill:{colour}}}" for number, colour in enumerate(BROKER_COLOURS[:COLOURS])
)


def html_page(report: ChaosReport, others: Sequence[ChaosReport] = ()) -> str:
    """Return the page; `others` are reports of other systems, whose figures are compared."""
    title = f"{report.verdict.value}: {report.name}, seed {report.seed}"
    body = (
        _header(report),
        _tiles(report),
        comparison_section(report, others) if others else "",
        "<h2>Time line</h2>",
        f'<div class="wide">{whole_run(report)}</div>',
        _legend(report),
        "<h2>Faults by kind, in ms (p50 / longest)</h2>",
        _kind_table(report.by_kind),
        "<h2>Faults</h2>",
        _fault_table(report),
        "<h2>Latency of acknowledged records, in ms (p50 / p99 / longest)</h2>",
        _latency_table(report.faults),
        "<h2>Checks</h2>",
        _checks(report.anomalies),
        "<h2>Each fault</h2>",
        _each_fault(report),
        "<h2>Partitions</h2>",
        _partitions(report),
        "<h2>Details</h2>",
        _details(report),
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _header(report: ChaosReport) -> str:
    began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(report.started_ms / 1000))
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in report.reasons)
    return (
        f'<header class="{report.verdict.value}"><div class="verdict">{report.verdict.value}</div>'
        f"<div><h1>{escape(report.name)}</h1><p>{escape(report.sentence)}.</p>"
        f'<p class="dim">{began}, {report.seconds:.0f} s, {escape(report.system_name)}</p>'
        "</div></header>"
        + (f'<ul class="reasons">{reasons}</ul>' if reasons else "")
        + f'<p class="again">Seed {report.seed}; again: <code>{escape(report.command)}</code></p>'
    )


def _tiles(report: ChaosReport) -> str:
    tiles = [
        ("acknowledged", f"{report.acknowledged:,}", False),
        ("lost", f"{report.lost:,}", bool(report.lost)),
        ("duplicated", f"{report.duplicated:,}", bool(report.duplicated)),
        ("unknown outcome", f"{report.unknown:,}", False),
        ("rejected", f"{report.rejected:,}", False),
        ("faults", f"{sum(not fault.skipped for fault in report.faults)}", False),
        ("longest write gap", time_text(report.write_gap_ms), False),
        ("longest read gap", time_text(report.read_gap_ms), False),
        ("latency p50", time_text(report.latency.p50_ms), False),
        ("latency p99", time_text(report.latency.p99_ms), False),
    ]
    cells = "".join(
        f"<div{' class=bad' * is_bad}><dt>{name}</dt><dd>{value}</dd></div>"
        for name, value, is_bad in tiles
    )
    return f'<dl class="tiles">{cells}</dl>'


def _legend(report: ChaosReport) -> str:
    brokers = sorted({broker for change in report.timeline for broker in change.in_sync})
    items = [
        f'<span><i style="background:{BROKER_COLOURS[broker % COLOURS]}"></i>broker {broker}</span>'
        for broker in brokers
    ]
    items += [
        "<span>thick: leads, thin: in sync, nothing: not in sync</span>",
        '<span><i style="background:var(--bad);opacity:.35"></i>no leader</span>',
        '<span><i style="background:var(--least)"></i>acknowledgements per 100 ms (light: the most'
        " of several bins in a column)</span>",
        '<span><i style="background:var(--bad)"></i>none for 100 ms or more</span>',
        '<span><i style="background:var(--band)"></i>from the fault to full in-sync sets</span>',
    ]
    if len(report.partitions) > MAX_PARTITIONS:
        shown = len(shown_partitions(report))
        items.append(f"<span>{shown} partitions with the longest write gaps are drawn</span>")
    return f'<div class="legend">{"".join(items)}</div>'


def _kind_table(kinds: Sequence[KindFigures]) -> str:
    heads = (
        *("<kind", "<role", "<", "faults", "detected", "elected", "first ack", "full ISR"),
        *("write gap", "read gap"),
    )

    def row(kind: KindFigures) -> str:
        spreads = (kind.detect, kind.elect, kind.first_ack, kind.full_isr)
        return (
            f'<tr><td class="l">{escape(kind.kind)}</td><td class="l">{escape(kind.role)}</td>'
            f'<td class="l">{escape(kind.detail)}</td><td>{kind.count}</td>'
            + "".join(f"<td>{spread_text(each)}</td>" for each in spreads)
            + f"<td>{spread_text(kind.write_gap)}</td><td>{spread_text(kind.read_gap)}</td></tr>"
        )

    return table(heads, map(row, kinds))


def _fault_table(report: ChaosReport) -> str:
    heads = (
        *("#", "at", "<kind", "<role", "<", "<brokers", "detected", "elected", "first ack"),
        *("healed", "full ISR", "write gap", "read gap", "no CPU"),
    )
    worst = max((fault.write_gap_ms for fault in report.faults), default=0.0)

    def row(fault: FaultFigures) -> str:
        begin = (
            f"<td>{fault.number}</td><td>{fault.at_ms / 1000:.1f} s</td>"
            f'<td class="l">{escape(fault.kind)}</td><td class="l">{escape(fault.role)}</td>'
            f'<td class="l">{escape(fault.detail)}</td>'
        )
        if fault.skipped:
            return (
                f'<tr>{begin}<td class="w" colspan="9">skipped: {escape(fault.skipped)}</td></tr>'
            )
        is_worst = fault.write_gap_ms == worst and worst > 0
        return (
            f'<tr>{begin}<td class="l">{", ".join(map(str, fault.brokers)) or "-"}</td>'
            + "".join(
                f"<td>{time_text(value)}</td>"
                for value in (
                    *(fault.detect_ms, fault.elect_ms, fault.first_ack_ms),
                    *(fault.healed_ms, fault.full_isr_ms),
                )
            )
            + f"<td{' class=worst' * is_worst}>{time_text(fault.write_gap_ms)}</td>"
            f"<td>{time_text(fault.read_gap_ms)}</td>"
            f"<td>{time_text(fault.workload_stall_ms or None)}</td>"
            "</tr>"
        )

    return table(heads, map(row, report.faults)) + (
        '<p class="dim">Times since the fault. The status is sampled every 25 ms, so an election'
        " can show later than the first acknowledgement of the new leader. First ack: the"
        " end of the first interruption (50 ms, or 3 records) of the partitions that it led."
        " No CPU: the longest time that the workload itself waited for a processor.</p>"
    )


def _latency_table(faults: Sequence[FaultFigures]) -> str:
    rows = (
        f'<tr><td>{fault.number}</td><td class="l">{escape(fault.kind)} of {escape(fault.role)}'
        f"</td><td>{latency_text(fault.latency_before)}</td><td>{latency_text(fault.latency_during)}</td>"
        f"<td>{latency_text(fault.latency_after)}</td></tr>"
        for fault in faults
        if not fault.skipped
    )
    heads = ("#", "<fault", "10 s before", "until full ISR", "10 s after")
    return table(heads, rows)


def _checks(anomalies: Sequence[AnomalyRow]) -> str:
    found = [row for row in anomalies if row.count]
    clean = [row.name for row in anomalies if not row.count]
    rows = (
        f'<tr{" class=bad" * row.breaks_guarantee}><td class="l">{escape(row.name)}</td>'
        f"<td>{row.count:,}</td>"
        f'<td class="l">{"fails the run" if row.breaks_guarantee else "reported only"}</td>'
        f'<td class="w">{"<br>".join(escape(text) for text in row.samples[:3])}</td></tr>'
        for row in found
    )
    drawn = table(("<check", "found", "<meaning", "<samples"), rows) if found else ""
    words = f"{len(clean)} checks found nothing: {escape(', '.join(clean))}."
    return f"{drawn}<p>{words}</p>"


def _each_fault(report: ChaosReport) -> str:
    drawn = [fault for fault in report.faults if not fault.skipped][:MAX_DRAWN]
    parts = []
    for fault in drawn:
        head = f"{fault.number}. {fault.kind} of {fault.role}: {fault.text}"
        gap, full = time_text(fault.write_gap_ms), time_text(fault.full_isr_ms)
        figures = f"write gap {gap}, full ISR after {full}"
        is_open = " open" if fault is drawn[0] else ""
        summary = f'<summary>{escape(head)} <span class="dim">{figures}</span></summary>'
        parts.append(
            f"<details{is_open}>{summary}"
            f'<div class="wide">{around_fault(report, fault)}</div></details>'
        )
    rest = sum(not fault.skipped for fault in report.faults) - len(drawn)
    return "".join(parts) + (f"<p>{rest} more are in report.json.</p>" if rest else "")


def _partitions(report: ChaosReport) -> str:
    rows = (
        f"<tr><td>{row.partition}</td><td>{row.acknowledged:,}</td>"
        f"<td>{time_text(row.write_gap_ms)}</td><td>{time_text(row.read_gap_ms)}</td></tr>"
        for row in report.partitions
    )
    heads = ("partition", "acknowledged", "longest write gap", "longest read gap")
    return table(heads, rows)


def _details(report: ChaosReport) -> str:
    workload = report.workload
    config = ", ".join(f"{name}={value}" for name, value in workload.config.items()) or "defaults"
    mixed = "in turn all (idempotent), all, 1 and 0"
    acks = mixed if workload.acks == "mixed" else workload.acks
    words = (
        f"Topic {workload.topic}: {workload.partitions} partitions, replication factor"
        f" {workload.replication_factor}, {config}. Producers: acks={acks}, "
        f"{'idempotent' if workload.idempotence else 'not idempotent'}, up to {workload.producers}"
        f" records in flight and {workload.records_per_second:g} records/s per partition;"
        f" {workload.consumers} consumers per partition."
        + f" {report.unpromised:,} records had acks 0 or 1, which may be lost."
        * bool(report.unpromised)
        + " Worst lag of a read:"
        f" {time_text(report.worst_read_lag_ms)}."
    )
    lines = [
        f"{(change.t_ms - report.steady_ms) / 1000:10.3f} s  {change.text}"
        for change in report.timeline[:MAX_LINES]
    ]
    if (rest := len(report.timeline) - MAX_LINES) > 0:
        lines.append(f"{rest} more are in report.json")
    text = escape("\n".join(lines))
    summary = "<summary>Time line in words</summary>"
    return f"<p>{escape(words)}</p><details>{summary}<pre>{text}</pre></details>"
