"""Provide the elements that several sections of the report share."""

from collections.abc import Iterable, Sequence

from tidemark_audit.report.formatting import moment, plural
from tidemark_audit.report.markup import Content, Markup, element
from tidemark_audit.results import Sample

MOST_SAMPLES = 6


def section(title: str, lead: str, *content: Content | Iterable[Content], css: str = "") -> Markup:
    return element(
        "section",
        element("h2", title),
        element("p", lead, class_="lead") if lead else None,
        *content,
        class_=css or None,
    )


def table(head: Markup, rows: Iterable[Markup], *, css: str | None = None) -> Markup:
    inner = element("table", element("thead", head), element("tbody", rows), class_=css)
    return element("div", inner, class_="table")


def numbers(names: Sequence[str], *values: str) -> list[Markup]:
    """Cells of a row; on a narrow screen each has its column's name beside it."""
    return [
        element("td", value, class_="n", data_label=name)
        for name, value in zip(names, values, strict=True)
    ]


def samples(found: Sequence[Sample]) -> Markup | None:
    if not found:
        return None
    shown = (
        element(
            "li", element("code", sample.series), f" = {sample.value:g} at {moment(sample.at_ms)}"
        )
        for sample in found[:MOST_SAMPLES]
    )
    return element(
        "details",
        element("summary", plural(len(found), "sample")),
        element("ul", shown),
    )
