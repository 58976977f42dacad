"""The report: everything a result says is on the page, safe in a browser, the same for machines."""

import json
import re
import subprocess
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tidemark_audit.report.formatting import duration, share
from tidemark_audit.report.junit import render_junit
from tidemark_audit.report.markdown import render_markdown
from tidemark_audit.report.page import render_html
from tidemark_audit.report.timescale import TimeScale
from tidemark_audit.results import (
    AuditResult,
    LossKind,
    Outcome,
    TopicPartition,
    Verdict,
    from_json,
    to_json,
)
from tidemark_audit.rules.evaluation import at_most, percent

from tests.unit.audit.eventful import HOUR_MS, LOST, eventful_result

ROOT = Path(__file__).resolve().parents[4]
HOSTILE = '<script>alert("1")</script>&`|_*\x00\ufffe'


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    return eventful_result(tmp_path_factory.mktemp("eventful"))


def test_the_page_opens_with_the_verdict_and_the_evidence_of_loss(result: AuditResult) -> None:
    page = render_html(result)
    order = ["LOSS</span>", "Loss evidence", "<h2>Incidents", "In-sync replicas", "Promises"]
    places = [page.index(text) for text in order]
    assert places == sorted(places)
    assert f"\u2265 {LOST:,}".replace(",", "\u202f") in page


def test_an_outage_is_told_in_its_whole_length_whoever_was_missing_meanwhile(
    result: AuditResult,
) -> None:
    """Partition orders-2: two brokers out of sync, then no leader, then one replica in sync."""
    (reported,) = (
        each.sentence
        for each in result.findings
        if each.rule == "R3" and "orders-2" in each.sentence and "min.insync" in each.sentence
    )
    assert reported.endswith("the longest, orders-2, for 2.5 min")
    open_ones = [each for each in result.findings if "ongoing" in each.sentence]
    assert {each.rule for each in open_ones} == {"R3"}  # R2's outage was over by then


def test_followers_that_never_caught_up_are_drawn_at_the_top(result: AuditResult) -> None:
    never = tuple(
        replace(band, p90_seconds=None, p99_seconds=None) if number % 2 else band
        for number, band in enumerate(result.lag_bands)
    )
    changed = replace(result, lag_bands=never)
    page = render_html(changed)
    assert not re.search(r"[VM] ?-?(inf|nan)", page)
    assert "p99 never" in page
    assert from_json(to_json(changed)).lag_bands == never


def test_evidence_of_epochs_that_overlap_is_of_one_loss_on_the_page_too(
    result: AuditResult,
) -> None:
    """A replica that comes back two elections later cuts the records that the first one missed."""
    (evidence,) = result.loss_evidence
    cut = replace(
        evidence,
        kind=LossKind.COMMITTED_TRUNCATION,
        leader_epoch=evidence.leader_epoch + 1,
        since_epoch=evidence.leader_epoch - 1,
    )
    twice = replace(result, loss_evidence=(evidence, cut))
    lost = f"{LOST:,}".replace(",", "\u202f")
    assert f"<dd>\u2265 {lost}</dd>" in render_html(twice)
    assert f"At least **{lost}** committed" in render_markdown(twice)


def test_every_finding_stands_there_with_what_to_do(result: AuditResult) -> None:
    page = render_html(result)
    assert len(result.findings) > 5
    for finding in result.findings:
        assert f'id="{finding.id}"' in page
    reported = [each for each in result.findings if each.incident in ("", each.id)]
    assert page.count("<b>Remedy: </b>") == sum(bool(each.remedy) for each in reported)


def test_the_page_asks_nobody_for_anything(result: AuditResult) -> None:
    page = render_html(result)
    assert "<script" not in page
    assert not re.findall(r"(?:src|href|action)=|url\((?!#)|@import|https?://", page)


def test_the_page_is_well_formed_and_every_shape_lies_in_its_picture(result: AuditResult) -> None:
    page = render_html(result).removeprefix("<!doctype html>\n")
    style = page.index("<style>") + len("<style>"), page.index("</style>")
    root = ElementTree.fromstring(page[: style[0]] + page[style[1] :])
    rects = [rect for svg in root.iter("svg") if svg.get("viewBox") for rect in svg.iter("rect")]
    assert len(rects) > 50
    for rect in rects:
        left, width = float(rect.get("x", 0)), float(rect.get("width", 0))
        assert left >= 0
        assert left + width <= 1000.5


def test_names_from_outside_are_only_text(result: AuditResult) -> None:
    hostile = TopicPartition(HOSTILE, 0, "id")
    changed = replace(
        result,
        sentence=HOSTILE,
        clusters=(HOSTILE,),
        notes=(HOSTILE,),
        intervals=tuple(replace(each, partition=hostile) for each in result.intervals[:3]),
        sli_by_partition=(replace(result.sli_by_partition[0], topic=HOSTILE),),
        findings=tuple(replace(each, sentence=HOSTILE, remedy=HOSTILE) for each in result.findings),
        rules=tuple(replace(rule, measured=HOSTILE) for rule in result.rules),
    )
    assert "<script" not in render_html(changed)
    assert "<script" not in render_markdown(changed).replace("\\<", "")
    ElementTree.fromstring(render_junit(changed))


@pytest.mark.parametrize("verdict", Verdict)
def test_a_result_without_anything_in_it_has_a_page_too(
    result: AuditResult, verdict: Verdict
) -> None:
    empty: dict[str, Any] = {
        field.name: () for field in fields(AuditResult) if getattr(field.type, "__args__", None)
    }
    bare = replace(result, verdict=verdict, **empty)
    assert f"{verdict.value}</span>" in render_html(bare)
    assert verdict.value in render_markdown(bare)
    assert ElementTree.fromstring(render_junit(bare)).get("tests") == "1"


def test_a_result_that_went_through_json_makes_the_same_page(result: AuditResult) -> None:
    assert render_html(from_json(to_json(result))) == render_html(result)


def test_a_pipeline_sees_violated_rules_as_failures(result: AuditResult) -> None:
    changed = replace(
        result,
        rules=(
            *result.rules[:2],
            replace(result.rules[2], outcome=Outcome.NOT_EVALUATED, missing_families=("x",)),
            replace(result.rules[3], outcome=Outcome.KEPT),
        ),
    )
    suite = ElementTree.fromstring(render_junit(changed)).find("testsuite")
    assert suite is not None
    counts = {name: suite.get(name) for name in ("tests", "failures", "skipped", "errors")}
    assert counts == {"tests": "5", "failures": "3", "skipped": "1", "errors": "0"}


def test_the_summary_says_verdict_loss_and_each_rule(result: AuditResult) -> None:
    summary = render_markdown(result)
    assert summary.startswith("## Replication audit: LOSS\n")
    assert all(f"| {rule.rule} " in summary for rule in result.rules)
    assert "committed records are lost" in summary


# Of a page in a frame, which may be narrower than any window: its width, what is requested, how
# many shapes there are, and the words that are cut off or stand out of it.
MEASURE = """<body style="margin:0">
<iframe src="report.html" style="border:0;width:%dpx;height:%dpx"></iframe><script>onload = () => {
  const inner = frames[0], page = inner.document, width = page.documentElement.clientWidth;
  const isCut = (each) => each.getBoundingClientRect().right > width + 0.5
    || (each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).overflowX !== "visible");
  const words = [...page.querySelectorAll("main *")].filter((each) => !each.closest("svg"));
  document.title = JSON.stringify([width, page.documentElement.scrollWidth,
    inner.performance.getEntriesByType("resource").length,
    page.querySelectorAll("svg rect").length,
    words.filter(isCut).map((each) => each.textContent.slice(0, 40).replaceAll("<", ""))]);
}</script></body>"""


@pytest.mark.parametrize(("width", "height"), [(1280, 1600), (390, 2400)])
def test_a_browser_draws_the_page(
    result: AuditResult, tmp_path: Path, width: int, height: int
) -> None:
    """Nothing is cut or stands out; nothing is asked of the network (there is no proxy)."""
    chromium = subprocess.run(
        [ROOT / "hack" / "chromium"], capture_output=True, text=True, check=True, timeout=300
    ).stdout.strip()
    (tmp_path / "report.html").write_text(render_html(result), "utf-8")
    page = tmp_path / "frame.html"
    page.write_text(MEASURE % (width, height), "utf-8")
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    common = [chromium, *flags, f"--user-data-dir={tmp_path / 'profile'}"]
    common += ["--allow-file-access-from-files", f"--window-size={width},{height}"]
    common += ["--virtual-time-budget=2000"]
    drawn = subprocess.run(
        [*common, "--dump-dom", page.as_uri()], capture_output=True, text=True, check=True,
        timeout=100,
    )  # fmt: skip
    title = re.search(r"<title>(\[.*?\])</title>", drawn.stdout)
    assert title is not None, drawn.stdout[:500]
    inner, scrolled, requests, shapes, cut = json.loads(title[1])
    assert (inner, scrolled, cut) == (width, width, [])
    assert requests == 0
    assert shapes > 50
    picture = ROOT / "build" / f"report-{width}.png"
    picture.parent.mkdir(exist_ok=True)
    subprocess.run(
        [*common, f"--screenshot={picture}", page.as_uri()], capture_output=True, check=True,
        timeout=100,
    )  # fmt: skip
    assert picture.read_bytes().startswith(b"\x89PNG")


# ---- words


def test_durations_and_shares_never_round_to_all_or_nothing() -> None:
    assert duration(0) == "0\u00a0ms"
    assert duration(314) == "314\u00a0ms"
    assert duration(3813) == "3.8\u00a0s"
    assert duration(18_381) == "18\u00a0s"
    assert duration(59_940) == "1\u00a0min"
    assert duration(7_500_000) == "2\u00a0h 5\u00a0min"
    assert duration(90_061_000) == "1\u00a0d 1\u00a0h"
    assert share(1.0) == "100\u00a0%"
    assert share(0.950_671) == "95\u00a0%"
    assert share(0.999_96) == "99.996\u00a0%"
    assert share(0.999_999_99) == "99.999999\u00a0%"
    assert share(0.000_000_01) == "0.000001\u00a0%"


def test_a_limit_that_was_exceeded_is_never_rounded_to() -> None:
    assert (at_most(60_000), at_most(60_400), at_most(0)) == ("60 s", "61 s", "0 s")


def test_the_page_and_its_rules_have_one_number_for_one_thing(result: AuditResult) -> None:
    page = render_html(result)
    measured = {each.rule: each.measured for each in result.rules}
    for name, number in (
        ("time observed", measured["R8"].removeprefix("coverage ")),
        ("fully replicated", measured["R1"].partition("with planned absences ")[2]),
        ("writable", measured["R2"]),
    ):
        number = number.partition(" (")[0].replace(" ", "\u00a0")
        assert f"<dt>{name}</dt><dd>{number}</dd>" in page


@pytest.mark.parametrize("length_ms", [1, 5000, 119_000, 3_600_000, 86_400_000, 28 * 86_400_000])
def test_a_time_axis_has_few_marks_in_order(length_ms: int) -> None:
    ticks = TimeScale(1_700_000_000_000, 1_700_000_000_000 + length_ms).ticks()
    assert ticks == sorted(ticks)
    assert 2 <= len(ticks) <= 10


@pytest.mark.parametrize(
    ("rule", "claim"),
    [
        ("R1", "fully replicated</dt><dd>"),
        ("R2", "writable</dt><dd>"),
        ("R6", "committed records lost</dt><dd>"),
    ],
)
def test_the_headline_claims_nothing_that_was_not_evaluated(
    rule: str, claim: str, result: AuditResult
) -> None:
    rules = tuple(
        replace(each, outcome=Outcome.NOT_EVALUATED, measured="too few samples of: broker 1")
        if each.rule == rule
        else each
        for each in result.rules
    )
    page = render_html(replace(result, rules=rules, loss_evidence=()))
    assert f"{claim}not evaluated</dd>" in page
    assert page.count("not evaluated</dd>") == 1
    if rule == "R6":
        assert "None was found" not in page
        assert "Loss was not evaluated: too few samples of: broker 1." in page


def test_every_table_folds_into_cards_on_a_narrow_screen(result: AuditResult) -> None:
    """Looked at with a browser 390 px wide: nothing is cut, nothing stands out."""
    page = render_html(result)
    assert re.findall(r"<table(?! class=\"(?:stacked|cards)[ \"])", page) == []
    assert re.findall(r"<td class=\"n\"(?! data-label=)", page) == []


def test_strips_name_the_brokers_that_are_out_of_sync(result: AuditResult) -> None:
    names = re.findall(r'<span class="missing[^>]*>([^<]*)</span>', render_html(result))
    assert {"2", "3", "2,3"} <= set(names)


def test_a_window_of_seconds_has_no_error_budget(result: AuditResult) -> None:
    page = render_html(replace(result, window_end_ms=result.window_start_ms + 7000))
    assert "times over" not in page
    assert "7\u00a0s is too short" in page
    long = replace(result, window_end_ms=result.window_start_ms + HOUR_MS)
    assert "times over" in render_html(long)


def test_a_follower_that_never_caught_up_has_no_longest_age(result: AuditResult) -> None:
    slowest = max(result.follower_lag, key=lambda lag: lag.age_p99_seconds or 0)
    never = replace(
        slowest, never_caught_up_samples=9, age_p99_seconds=float("inf"), age_max_seconds=0.0
    )
    page = render_html(replace(result, follower_lag=(never,)))
    assert page.count(">never</td>") == 2
    assert 'data-label="longest">0' not in page


def test_each_min_insync_replicas_has_a_line_of_its_own(result: AuditResult) -> None:
    assert render_html(result).count('class="limit"') == 2  # and that of the lag
    lower = tuple(
        replace(each, min_in_sync_replicas=1) if each.partition.topic == "payments" else each
        for each in result.intervals
    )
    page = render_html(replace(result, intervals=lower))
    assert page.count('class="limit"') == 3
    titles = re.findall(r'<h3 class="group">([^<]*)</h3>', page)
    assert titles == [
        "min.insync.replicas 2: orders, shop.clicks.raw",
        "min.insync.replicas 1: payments",
    ]


@pytest.mark.parametrize(
    ("share_of_time", "text"),
    [
        (0.950671, "95 %"), (0.999, "99.9 %"), (0.99987, "99.987 %"), (0.999999, "99.9999 %"),
        (1.0, "100 %"), (0.0, "0 %"), (0.001, "0.1 %"), (0.00104, "0.11 %"), (0.5, "50 %"),
        (0.9999, "99.99 %"), (0.995, "99.5 %"), (0.92345, "92.3 %"),
    ],
)  # fmt: skip
def test_shares_have_two_digits_and_are_never_rounded_to_a_promise(
    share_of_time: float, text: str
) -> None:
    assert percent(share_of_time) == text
