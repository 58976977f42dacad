"""Draw the report's plots over time: ISR heat map, in-sync minimum, lag bands, coverage.

Each is an SVG that the browser stretches to the page's width, so strokes do not scale and all text
stands outside of it, as HTML. Every shape has a title: what it is, when, why.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from tidemark_audit.report.formatting import duration, plural, share, span
from tidemark_audit.report.markup import Content, Markup, element, join
from tidemark_audit.report.partition_states import State, badness, state_of, steps
from tidemark_audit.report.timescale import WIDTH, TimeScale
from tidemark_audit.results import AuditResult, Interval, IntervalKind, LagBand, SliRow

HEAT_ROWS = 40
ROW = 16.0  # height of a partition's row, with the gap below it
NARROWEST = 1.6  # what is shorter than this is drawn this wide: a second of a day is seen
HEIGHT = 150.0
MOST_NAMES = 400
# Of the picture, where there is room for a digit: on a narrow screen, and on a wide one.
NARROW_DIGIT, WIDE_DIGIT = 0.042, 0.009
LAG_FLOOR_SECONDS = 0.001


def plot(
    body: Content | Iterable[Content],
    *,
    height: float,
    labels: Iterable[tuple[float, str]],
    scale: TimeScale,
    css: str = "",
    title: str,
) -> Markup:
    """`labels`: (height from the top, text); `body` is SVG in WIDTH by `height`."""
    svg = element(
        "svg",
        element("title", title),
        body,
        viewBox=f"0 0 {WIDTH:g} {height:g}",
        preserveAspectRatio="none",
        style=f"height:{height:g}px",
        role="img",
    )
    written = (
        element("span", element("bdi", text), style=f"top:{top:.1f}px", title=text)
        for top, text in labels
    )
    area = element("div", svg, class_="area")
    return element(
        "div",
        element("div", written, class_="labels"),
        area,
        scale.axis(),
        class_=f"plot {css}".strip(),
    )


def legend(states: Iterable[State], *marks: tuple[str, str]) -> Markup:
    """Draw a legend of states and of marks, which are (class, words)."""
    entries = [
        element(
            "li",
            element(
                "i", class_="hatched" if state.is_hatched else None, style=f"--c:var(--{state.css})"
            ),
            state.words,
        )
        for state in states
    ]
    entries += [element("li", element("i", class_=css), words) for css, words in marks]
    return element("ul", entries, class_="legend")


def hatches() -> Markup:
    """Patterns that other pictures refer to; once on a page."""
    return element(
        "svg",
        element("defs", [_hatch("planned"), _hatch("unobserved")]),
        width=0,
        height=0,
        aria_hidden="true",
        style="position:absolute",
    )


def _hatch(name: str) -> Markup:
    return element(
        "pattern",
        element("rect", width=6, height=6, style=f"fill:var(--{name});opacity:.55"),
        element("rect", width=3, height=6, style=f"fill:var(--{name})"),
        id=f"hatch-{name}",
        width=6,
        height=6,
        patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    )


def across(y: float, css: str) -> Markup:
    return element("line", x1=0, x2=WIDTH, y1=y, y2=y, class_=css)


# ---- ISR heat map


def heat_map(result: AuditResult, scale: TimeScale) -> Markup:
    rows = sorted(result.sli_by_partition, key=badness, reverse=True)
    shown = sorted(rows[:HEAT_ROWS], key=lambda row: (row.topic, row.partition or 0))
    of_row: dict[tuple[str, str, int], list[Interval]] = {}
    for interval in result.intervals:
        place = interval.partition
        of_row.setdefault((place.topic, place.topic_id, place.partition), []).append(interval)
    body, labels, names, marks = [], [], [], []
    for number, row in enumerate(shown):
        top = number * ROW
        place_of_row = (row.topic, row.topic_id, row.partition or 0)
        name = f"{row.topic}-{row.partition}"
        body.append(_row(name, of_row.get(place_of_row, []), top, scale))
        labels.append((top + ROW / 2 - 1, name))
        names += _names(of_row.get(place_of_row, []), top, scale)
        marks += _marks(result, place_of_row, top + ROW / 2 - 1, scale)
    picture = plot(
        body,
        height=max(ROW, len(shown) * ROW),
        labels=labels,
        scale=scale,
        css="heat",
        title="In-sync state of each partition over time",
    )
    return _with_marks(picture, [*names[:MOST_NAMES], *marks])


def _row(name: str, intervals: Sequence[Interval], top: float, scale: TimeScale) -> Markup:
    base = element("rect", x=0, y=top, width=WIDTH, height=ROW - 2, class_=State.HEALTHY.css)
    order = list(State)
    found = [(state, each) for each in intervals if (state := state_of(each)) is not None]
    found.sort(key=lambda pair: order.index(pair[0]))  # the worst is drawn last, above the others
    return join(base, (_cell(name, state, each, top, scale) for state, each in found))


def _cell(name: str, state: State, interval: Interval, top: float, scale: TimeScale) -> Markup:
    left, right = scale.x(interval.start_ms), scale.x(interval.end_ms)
    width = max(NARROWEST, right - left)
    reported = f"{name}: {state.words}, {span(interval.start_ms, interval.end_ms)}"
    if interval.in_sync_replicas >= 0:
        reported += f"; {interval.in_sync_replicas} of {interval.replicas} in sync"
    if interval.cause:
        reported += f"; {interval.cause}"
    return element(
        "rect",
        element("title", reported),
        x=min(left, WIDTH - width),
        y=top,
        width=round(width, 2),
        height=ROW - 2,
        class_=state.css,
    )


def _names(intervals: Sequence[Interval], top: float, scale: TimeScale) -> list[Markup]:
    """Label intervals with the missing brokers, where there is room."""
    found = []
    for each in intervals:
        if state_of(each) in (None, State.UNOBSERVED) or not each.brokers:
            continue
        left, right = scale.x(each.start_ms) / WIDTH, scale.x(each.end_ms) / WIDTH
        names = ",".join(each.brokers)
        room = (right - left) / len(names)
        if room >= WIDE_DIGIT:
            place = f"left:{left:.3%};width:{right - left:.3%};top:{top:.1f}px"
            css = "missing" if room >= NARROW_DIGIT else "missing wide-only"
            found.append(element("span", names, class_=css, style=place))
    return found


def _marks(
    result: AuditResult, place: tuple[str, str, int], top: float, scale: TimeScale
) -> list[Markup]:
    def is_here(partition: object) -> bool:
        found = (
            getattr(partition, "topic", ""),
            getattr(partition, "topic_id", ""),
            getattr(partition, "partition", 0),
        )
        return found == place

    found = []
    for election in result.elections:
        if is_here(election.partition):
            reported = (
                f"{election.kind} election: broker {election.from_broker or 'none'} to"
                f" {election.to_broker}, epoch {election.leader_epoch},"
                f" {span(election.after_ms, election.at_ms)}"
            )
            found.append(_mark("mark", election.at_ms, top, scale, reported))
    for evidence in result.loss_evidence:
        if is_here(evidence.partition):
            found.append(_mark("mark lossy", evidence.at_ms, top, scale, evidence.sentence))
    return found


def _mark(css: str, at_ms: int, top: float, scale: TimeScale, reported: str) -> Markup:
    place = f"left:{scale.percent(at_ms)};top:{top:.1f}px"
    return element("span", class_=css, style=place, title=reported)


def _with_marks(picture: Markup, marks: Sequence[Markup]) -> Markup:
    """Round marks would be stretched inside of the SVG: they lie above it."""
    return Markup(picture.replace("</svg></div>", f"</svg>{join(marks)}</div>", 1))


# ---- lag


def lag_plot(bands: Sequence[LagBand], limit_seconds: float, scale: TimeScale) -> Markup:
    """Quantiles of all followers' age on a logarithmic scale; from a millisecond up."""
    bands = _without_seams(bands)
    ceiling = max([limit_seconds, *(band.max_seconds for band in bands)], default=1.0) * 1.3
    decades = math.log10(ceiling / LAG_FLOOR_SECONDS)

    def y(value: float | None) -> float:
        if value is None:  # never caught up
            return 0
        above = math.log10(max(value, LAG_FLOOR_SECONDS) / LAG_FLOOR_SECONDS) / decades
        return round(8 + (HEIGHT - 16) * (1 - above), 2)

    body = [across(y(10.0**n), "grid") for n in range(-3, math.ceil(math.log10(ceiling)))]
    floor = HEIGHT - 8
    for quantile, css in (("p99", "b3"), ("p90", "b2"), ("p50", "b1")):
        for run in _runs(bands):
            heights = [y(getattr(band, f"{quantile}_seconds")) for band in run]
            body.append(_area(run, heights, floor, css, scale))
    body += [_hair(run, [y(band.max_seconds) for band in run], scale) for run in _runs(bands)]
    body += [_lag_title(band, scale) for band in bands]
    if limit_seconds > 0:
        body.append(across(y(limit_seconds), "limit"))
    labels = [
        (y(10.0**n), duration(1000 * 10.0**n)) for n in range(-3, math.ceil(math.log10(ceiling)))
    ]
    return plot(body, height=HEIGHT, labels=labels, scale=scale, title="Lag of followers over time")


def _without_seams(bands: Sequence[LagBand]) -> list[LagBand]:
    """Extend each band to the next one if that begins within two lengths.

    Samples lie further apart than the bands are wide.
    """
    found = list(bands)
    for number, (band, after) in enumerate(pairwise(bands)):
        if 0 < after.start_ms - band.end_ms <= 2 * (band.end_ms - band.start_ms):
            found[number] = replace(band, end_ms=after.start_ms)
    return found


def _runs(bands: Sequence[LagBand]) -> list[list[LagBand]]:
    """Bands that follow each other; a hole in time is a hole in the picture."""
    runs: list[list[LagBand]] = []
    for band in bands:
        if runs and runs[-1][-1].end_ms >= band.start_ms:
            runs[-1].append(band)
        else:
            runs.append([band])
    return runs


def _area(
    run: Sequence[LagBand], heights: Sequence[float], floor: float, css: str, scale: TimeScale
) -> Markup:
    path = [f"M{scale.x(run[0].start_ms)} {floor}"]
    for band, height in zip(run, heights, strict=True):
        path.append(f"V{height} H{scale.x(band.end_ms)}")
    return element("path", d=" ".join([*path, f"V{floor} Z"]), class_=css)


def _hair(run: Sequence[LagBand], heights: Sequence[float], scale: TimeScale) -> Markup:
    path = [f"M{scale.x(run[0].start_ms)} {heights[0]}"]
    for band, height in zip(run, heights, strict=True):
        path.append(f"V{height} H{scale.x(band.end_ms)}")
    return element("path", d=" ".join(path), class_="hair")


def _lag_title(band: LagBand, scale: TimeScale) -> Markup:
    values = ", ".join(
        f"{name} {'never' if value is None else duration(1000 * value)}"
        for name, value in (
            ("p50", band.p50_seconds),
            ("p90", band.p90_seconds),
            ("p99", band.p99_seconds),
            ("longest", None if band.p99_seconds is None else band.max_seconds),
        )
    )
    left = scale.x(band.start_ms)
    return element(
        "rect",
        element("title", f"{span(band.start_ms, band.end_ms)}: {values}"),
        x=left,
        y=0,
        width=max(0.1, round(scale.x(band.end_ms) - left, 2)),
        height=HEIGHT,
        fill="transparent",
    )


# ---- coverage


def coverage_strip(result: AuditResult, scale: TimeScale) -> Markup:
    """Draw how many partitions were unobserved over time: the darker, the more."""
    unobserved = [each for each in result.intervals if each.kind is IntervalKind.UNOBSERVED]
    partitions = max(1, len(result.sli_by_partition))
    body = [element("rect", x=0, y=0, width=WIDTH, height=22, class_=State.HEALTHY.css)]
    for step in steps((each, 0) for each in unobserved):
        left = scale.x(step.start_ms)
        missing = step.count / partitions
        reported = (
            f"{span(step.start_ms, step.end_ms)}: {plural(step.count, 'partition')} unobserved,"
            f" {share(missing)}"
        )
        body.append(
            element(
                "rect",
                element("title", reported),
                x=left,
                y=0,
                width=max(NARROWEST, round(scale.x(step.end_ms) - left, 2)),
                height=22,
                style=f"fill:var(--ink);opacity:{0.25 + 0.6 * min(1.0, missing):.2f}",
            )
        )
    return plot(body, height=22, labels=(), scale=scale, title="Unobserved time")


def mini_bar(row: SliRow, parts: dict[State, float]) -> Markup:
    """Draw the shares of a partition's window, without the healthy share's colour on top."""
    return element(
        "div",
        (
            element(
                "i",
                class_="hatched" if state.is_hatched else None,
                style=f"--c:var(--{state.css});width:{100 * part:.3f}%",
                title=f"{state.words}: {share(part)}",
            )
            for state, part in parts.items()
            if part > 0
        ),
        class_="stack",
        role="img",
        aria_label=f"{row.topic}-{row.partition}",
    )
