"""Render the whole report as one HTML file: no script, no requests, light and dark."""

from importlib.resources import files

from tidemark_audit.report import sections
from tidemark_audit.report.findings import gaps, incidents
from tidemark_audit.report.formatting import day, duration, moment, plural
from tidemark_audit.report.markup import Markup, element, join
from tidemark_audit.report.plots import hatches
from tidemark_audit.report.timescale import TimeScale
from tidemark_audit.results import AuditResult


def render_html(result: AuditResult) -> str:
    scale = TimeScale(result.window_start_ms, result.window_end_ms)
    main = element(
        "main",
        _header(result),
        sections.verdict(result),
        sections.loss(result),
        incidents(result),
        *(sections.in_sync(result, scale) if result.sli_by_partition else ()),
        sections.rules(result),
        sections.what_if(result, result.what_if) if result.what_if else None,
        sections.lag(result, scale),
        sections.budgets(result),
        sections.worst(result),
        gaps(result),
        sections.coverage(result, scale) if result.sli_by_partition else None,
        _footer(result),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{result.verdict.value}: replication audit of {_clusters(result)}"),
        element("style", Markup(_style())),
    )
    body = element("body", hatches(), main)
    return "<!doctype html>\n" + element("html", head, body, lang="en") + "\n"


def _style() -> str:
    return files("tidemark_audit.report").joinpath("report.css").read_text("utf-8")


def _clusters(result: AuditResult) -> str:
    return ", ".join(name for name in result.clusters if name) or "one cluster"


def _header(result: AuditResult) -> Markup:
    start, end = result.window_start_ms, result.window_end_ms
    to = moment(end) if day(start) != day(end) else moment(end, with_date=False)
    return element(
        "header",
        element("h1", "Replication audit"),
        element("p", _clusters(result)),
        element("p", f"{day(start)}, {moment(start, with_date=False)} to {to} UTC"),
        element("p", duration(end - start)),
    )


def _footer(result: AuditResult) -> Markup:
    read = sum(source.samples for source in result.sources)
    places = ", ".join(f"{source.place} ({source.kind})" for source in result.sources[:8])
    unsettled = (
        f" The last {duration(result.unsettled_ms)} are ignored: samples may still arrive."
        if result.unsettled_ms
        else ""
    )
    notes = result.notes if result.loss_evidence else ()
    return element(
        "footer",
        element(
            "p",
            f"{plural(read, 'sample')} every {duration(result.scrape_interval_ms)} from"
            f" {places or 'no source'}, evaluated by the {result.engine} engine in"
            f" {result.wall_seconds:.1f} s.{unsettled}",
        ),
        element(
            "p",
            "A sample is valid until the next scrape, at most two and a half scrape"
            " intervals; gaps count as unobserved. Times are scrape times of Prometheus in"
            f" UTC. {plural(len(result.sli_by_partition), 'partition')}, each in exactly one"
            " state at any time.",
        ),
        (element("p", note) for note in notes),
        join(),
    )
