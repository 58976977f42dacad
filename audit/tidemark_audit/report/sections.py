"""Render the report's sections, in the order in which people ask."""

import math

from tidemark_audit.report import plots
from tidemark_audit.report.findings import incidents_of
from tidemark_audit.report.formatting import count, duration, seconds, share, span
from tidemark_audit.report.in_sync_plot import in_sync_minima
from tidemark_audit.report.markup import Content, Markup, element, join
from tidemark_audit.report.partition_states import State, badness, shares
from tidemark_audit.report.parts import numbers, samples, section, table
from tidemark_audit.report.timescale import TimeScale
from tidemark_audit.results import (
    AuditResult,
    FollowerLag,
    LossEvidence,
    Outcome,
    RuleResult,
    SliRow,
    WhatIfAnswer,
)
from tidemark_audit.rules.r6_durability import lost_records

MOST_PROOFS = 50
WORST = 20
WORST_NAMES = (
    "partition", "time by state", "planned", "unplanned", "no writes", "unobserved",
)  # fmt: skip
DEFAULT_LAG_LIMIT_SECONDS = 10.0 / 3
SHORTEST_BUDGET_MS = 1_800_000
_LAG_RULE = "R4"
_LOSS_RULE = "R6"


def verdict(result: AuditResult) -> Markup:
    total = total_row(result)
    figures = [
        ("partitions", count(len(result.sli_by_partition))),
        ("time observed", share(total.observed_ms / max(1, total.total_ms))),
        ("fully replicated", _if_judged(result, "R1", _of_observed(total, total.healthy_ms))),
        ("writable", _if_judged(result, "R2", _of_observed(total, _writable_ms(total)))),
        ("committed records lost", _lost(result)),
        ("incidents", count(len(incidents_of(result)))),
    ]
    entries = (element("div", element("dt", name), element("dd", value)) for name, value in figures)
    return element(
        "section",
        element("span", result.verdict.value, class_="word"),
        element("p", result.sentence, class_="why"),
        element("dl", entries, class_="figures"),
        class_=f"verdict {result.verdict.value.lower()}",
    )


def total_row(result: AuditResult) -> SliRow:
    names = [name for name in SliRow.__slots__ if name == "partitions" or name.endswith("_ms")]
    sums = {name: sum(getattr(row, name) for row in result.sli_by_partition) for name in names}
    return SliRow(topic="all", partition=None, topic_id="", **sums)


def _of_observed(total: SliRow, good_ms: int) -> str:
    return share(good_ms / total.observed_ms) if total.observed_ms else "\u2013"


def _writable_ms(total: SliRow) -> int:
    return total.observed_ms - total.under_min_isr_ms - total.offline_ms


def _if_judged(result: AuditResult, rule: str, text: str) -> str:
    """Return the text if a rule was evaluated: the report claims nothing that was not evaluated."""
    is_evaluated = any(
        r.rule == rule and r.outcome is not Outcome.NOT_EVALUATED for r in result.rules
    )
    return text if is_evaluated else "not evaluated"


def _lost(result: AuditResult) -> str:
    lost = lost_records(result.loss_evidence)
    if lost:
        return f"\u2265 {count(lost)}"
    return "some" if result.loss_evidence else _if_judged(result, _LOSS_RULE, "none seen")


# ---- loss


def loss(result: AuditResult) -> Markup:
    if not result.loss_evidence:
        found = _if_judged(result, _LOSS_RULE, "No evidence was found.")
        if found == "not evaluated":
            why = "".join(f": {r.measured}" for r in result.rules if r.rule == _LOSS_RULE)
            found = f"Loss was not evaluated{why}."
        scraped = " ".join(result.notes)
        return section("Loss evidence", "", element("p", f"{found} ", scraped, class_="quiet"))
    shown = result.loss_evidence[:MOST_PROOFS]
    rest = len(result.loss_evidence) - len(shown)
    return section(
        "Loss evidence",
        "Lost committed records, as reported by replicas. Numbers are lower bounds.",
        [_proof(each) for each in shown],
        element("p", f"{rest} more are in report.json.", class_="meta") if rest else None,
    )


def _proof(evidence: LossEvidence) -> Markup:
    number: Content = "?" if evidence.records is None else f"\u2265 {count(evidence.records)}"
    return element(
        "div",
        element("div", number, element("small", "records"), class_="number"),
        element("p", element("b", str(evidence.partition)), ": ", evidence.sentence),
        element(
            "p",
            f"{_offsets(evidence)}{span(evidence.after_ms, evidence.at_ms)}, leader epoch"
            f" {evidence.leader_epoch},"
            f" {evidence.kind.value}, {evidence.confidence.value}",
            class_="meta",
        ),
        samples(evidence.samples),
        class_="proof",
    )


def _offsets(evidence: LossEvidence) -> str:
    if evidence.offsets is None:
        return ""
    first, last = evidence.offsets
    return f"offsets {first} to {last}, "


# ---- rules


def rules(result: AuditResult) -> Markup:
    head = element(
        "tr",
        (element("th", name) for name in ("rule", "outcome", "measured")),
        element("th", "objective", class_="wide"),
    )
    return section(
        "Promises",
        "Each rule with its objective. A rule with missing data is not evaluated.",
        table(head, (_rule(rule) for rule in result.rules), css="stacked"),
    )


def _chip(outcome: Outcome) -> Markup:
    css = {Outcome.VIOLATED: "violated-rule", Outcome.KEPT: "kept"}.get(outcome, "not-evaluated")
    return element("span", outcome.value, class_=f"chip {css}")


def _rule(rule: RuleResult) -> Markup:
    measured: Content = rule.measured
    if rule.missing_families:
        measured = join(
            "missing: ", [join(element("code", name), " ") for name in rule.missing_families[:4]]
        )
    elif rule.worst and rule.outcome is Outcome.VIOLATED:
        measured = join(rule.measured, element("div", f"worst: {rule.worst}", class_="meta"))
    return element(
        "tr",
        element("td", f"{rule.rule} {rule.title}", class_="name"),
        element("td", _chip(rule.outcome)),
        element("td", measured),
        element("td", rule.objective, class_="wide meta"),
    )


def what_if(result: AuditResult, answer: WhatIfAnswer) -> Markup:
    """Rules whose measure is another one, and those alone."""
    names = ("rule", "actual", "what if")
    head = element("tr", (element("th", name) for name in names))
    moved = [
        (was, would)
        for was, would in zip(result.rules, answer.rules, strict=True)
        if (was.outcome, was.measured) != (would.outcome, would.measured)
    ]
    rows = [
        element(
            "tr",
            element("td", f"{was.rule} {was.title}", class_="name"),
            (
                element("td", _chip(rule.outcome), element("div", rule.measured))
                for rule in (was, would)
            ),
        )
        for was, would in moved
    ]
    return section(
        f"What if {answer.settings}",
        f"The same samples evaluated under these settings. Verdict: {answer.verdict.value}:"
        f" {answer.sentence}.",
        table(head, rows, css="stacked both")
        if rows
        else element("p", "No rule measures another value.", class_="quiet"),
    )


# ---- over time


def in_sync(result: AuditResult, scale: TimeScale) -> list[Markup]:
    others = len(result.sli_by_partition) - plots.HEAT_ROWS
    hidden = (
        (f" Shown: the {plots.HEAT_ROWS} worst of {len(result.sli_by_partition)} partitions.")
        if others > 0
        else ""
    )
    marks = (
        ("dot", "election"),
        *((("diamond", "loss"),) if result.loss_evidence else ()),
    )
    return [
        section(
            "In-sync replicas",
            f"Every partition over the window, as reported by its leader.{hidden}",
            plots.heat_map(result, scale),
            plots.legend(State, *marks, ("number", "brokers out of sync")),
        ),
        section(
            "Closest to rejecting writes",
            "Fewest in-sync replicas of any partition. Below the dashed line"
            " (min.insync.replicas) acks=all writes are rejected. Shaded: planned.",
            in_sync_minima(result, scale),
        ),
    ]


def lag(result: AuditResult, scale: TimeScale) -> Markup | None:
    if not result.lag_bands:
        return None
    limit = next((r.limit for r in result.rules if r.rule == _LAG_RULE and r.limit), None)
    return section(
        "Follower lag",
        "Time since followers were last caught up: areas for p50, p90 and p99 of samples, a"
        " thin line for the maximum. Dashed: the objective.",
        plots.lag_plot(result.lag_bands, limit or DEFAULT_LAG_LIMIT_SECONDS, scale),
        _slowest(result),
    )


def _slowest(result: AuditResult) -> Markup | None:
    slowest = sorted(
        (lag for lag in result.follower_lag if lag.age_p99_seconds is not None),
        key=lambda lag: (lag.age_p99_seconds or 0, lag.age_max_seconds or 0),
        reverse=True,
    )[:5]
    if not slowest:
        return None
    names = ("follower", "p50", "p99", "longest", "records, p99")
    head = element(
        "tr", (element("th", name, class_="n" if name != "follower" else None) for name in names)
    )
    rows = (
        element(
            "tr",
            element("td", f"{lag.partition} on broker {lag.follower}", class_="name"),
            numbers(
                names[1:],
                seconds(lag.age_p50_seconds),
                seconds(lag.age_p99_seconds),
                seconds(_longest(lag)),
                count(lag.records_p99),
            ),
        )
        for lag in slowest
    )
    return element("div", table(head, rows, css="cards"), style="margin-top:14px")


def _longest(lag: FollowerLag) -> float | None:
    """Return the longest age; infinite if some samples report that it never caught up."""
    return math.inf if lag.never_caught_up_samples else lag.age_max_seconds


# ---- budgets, coverage, worst


def budgets(result: AuditResult) -> Markup | None:
    shown = [
        rule
        for rule in result.rules
        if rule.value is not None and rule.limit is not None and rule.rule in ("R1", "R2")
    ]
    if not shown:
        return None
    if result.window_ms < SHORTEST_BUDGET_MS:
        # A budget is a share of days and weeks: of seconds, one fall spends it hundreds of times.
        return section(
            "Error budget",
            f"Not shown: the window of {duration(result.window_ms)} is too short. Audit at"
            f" least {duration(SHORTEST_BUDGET_MS)}.",
        )
    return section(
        "Error budget",
        "Share of each objective's error budget that was used in this window, and the burn rate.",
        element("div", (_budget(rule, result) for rule in shown), class_="budgets"),
    )


def _budget(rule: RuleResult, result: AuditResult) -> Markup:
    assert rule.value is not None
    assert rule.limit is not None
    allowed = 1 - rule.limit
    used = (1 - rule.value) / allowed if allowed > 0 else float(rule.value < 1)
    burnt = ", ".join(
        f"{burn.rate:.1f}\u00d7 over {duration(burn.window_ms)} (alarm at {burn.limit:g}\u00d7)"
        for burn in result.burn
        if burn.rule == rule.rule
    )
    bar = element("i", style=f"width:{min(100.0, 100 * used):.2f}%")
    times = f"{used:.2g}" if used < 100 else f"{used:.0f}"
    reported = f"{used:.0%} used" if used <= 1 else f"used {times} times over"
    return element(
        "div",
        element("h3", f"{rule.rule} {rule.title}: {reported}"),
        element("div", bar, class_="bar", role="img", aria_label=reported),
        element("p", burnt and f"Burn: {burnt}", class_="meta"),
        class_="budget spent" if used > 1 else "budget",
    )


def coverage(result: AuditResult, scale: TimeScale) -> Markup:
    total = total_row(result)
    ratio = total.observed_ms / max(1, total.total_ms)
    missing = sorted({name for each in result.coverage for name in each.missing_families})
    return section(
        "Coverage",
        f"{share(ratio)} of partition time was observed. Dark: unobserved.",
        plots.coverage_strip(result, scale),
        element(
            "p", "Not exported: ", [join(element("code", name), " ") for name in missing],
            class_="meta",
        )
        if missing
        else None,
    )  # fmt: skip


def worst(result: AuditResult) -> Markup | None:
    hurt = [row for row in result.sli_by_partition if any(badness(row))]
    rows = sorted(hurt, key=badness, reverse=True)[:WORST]
    if not rows:
        return None
    head = element(
        "tr",
        (
            element("th", name, class_="n" if number > 1 else None)
            for number, name in enumerate(WORST_NAMES)
        ),
    )
    return section(
        f"Worst {len(rows)} partitions" if len(rows) > 1 else "Worst partition",
        "Sorted by time without a leader, below min.insync.replicas and under-replicated.",
        table(head, (_worst(row) for row in rows), css="cards"),
    )


def _worst(row: SliRow) -> Markup:
    spent = (
        row.degraded_planned_ms,
        row.degraded_unplanned_ms,
        row.under_min_isr_ms + row.offline_ms,
        row.unobserved_ms,
    )
    return element(
        "tr",
        element("td", f"{row.topic}-{row.partition}", class_="name"),
        element("td", plots.mini_bar(row, shares(row))),
        numbers(WORST_NAMES[2:], *(duration(ms) if ms else "\u2013" for ms in spent)),
    )
