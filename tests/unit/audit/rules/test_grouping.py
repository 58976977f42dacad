"""What happened is told once, by its cause, with what it did below it; gaps in evidence last."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from tidemark_audit.audit import run
from tidemark_audit.report.markdown import render_markdown
from tidemark_audit.report.page import render_html
from tidemark_audit.results import AuditResult, Finding, Verdict
from tidemark_audit.rules.grouping import effects, leads
from tidemark_cli.audit.output import draw
from tidemark_cli.audit.summary import summary_of

from tests.support.audit_exports import Export, brokers, partition

PARTITIONS = 12
FALLS = {2: range(20_000, 30_000), 3: range(60_000, 75_000)}  # of brokers, in ms


def is_up(broker: int, at_ms: int) -> bool:
    return at_ms not in FALLS.get(broker, ())


def epoch(broker: int, at_ms: int) -> float | None:
    if not is_up(broker, at_ms):
        return None
    return 2 if broker not in FALLS or at_ms < FALLS[broker].start else 5


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    """Two brokers are killed, one after the other, in 90 s of scrapes every second; samples of one
    topic are missing for a while."""
    export = Export(length_ms=90_000)
    for number in range(PARTITIONS):
        partition(
            export,
            number=number,
            is_up=is_up,
            in_sync=lambda t: {broker for broker in (1, 2, 3) if is_up(broker, t)},
        )
    partition(export, topic="seen-less", topic_id="id-2", is_up=lambda b, t: not 5000 < t < 12_000)
    brokers(export, epoch=epoch)
    lags = [key for key in export.series if "follower_caught_up_age" in dict(key)["__name__"]]
    for key in lags:  # who was away is behind for long
        gone = FALLS.get(int(dict(key)["follower"]), range(0))
        samples = export.series[key]
        samples[:] = [(at, 8.0 if at in gone else value) for at, value in samples]
    path = tmp_path_factory.mktemp("two-faults") / "export.jsonl"
    return run(None, [str(export.write(path))])


def by_rule(found: list[Finding]) -> list[str]:
    return [each.rule for each in found]


def test_two_faults_are_two_incidents_and_a_gap_comes_last(result: AuditResult) -> None:
    assert result.verdict is Verdict.VIOLATED
    assert "the evidence is insufficient (R8: coverage 9" in result.sentence
    reported = leads(result.findings)
    assert by_rule(reported)[2:] == ["R8", "R8"]  # unheard, and too little observed
    assert [each.sentence.partition(":")[0] for each in reported[:2]] == [
        "broker 2 restarted, epoch 2 -> 5",
        "broker 3 restarted, epoch 2 -> 5",
    ]
    assert len(result.findings) < 12


def test_what_an_incident_did_stands_below_it(result: AuditResult) -> None:
    below = effects(result.findings)
    first, second, gap, _ = leads(result.findings)
    assert set(by_rule(below[first.id])) >= {"R4"}
    assert [each.subject for each in below[first.id] if each.rule == "R4"] == ["follower 2"]
    assert [each.subject for each in below[second.id] if each.rule == "R4"] == ["follower 3"]
    assert gap.id not in below
    lag = next(each for each in below[first.id] if each.rule == "R4")
    assert lag.sentence.startswith(f"behind in {PARTITIONS + 1} partitions; the worst, orders-")
    assert len(lag.partitions) == PARTITIONS + 1


def test_the_findings_of_an_incident_stand_together_after_the_one_that_leads(
    result: AuditResult,
) -> None:
    order = list(dict.fromkeys(each.incident for each in result.findings))
    assert order == [each.id for each in leads(result.findings)]
    assert [each.incident for each in result.findings] == sorted(
        (each.incident for each in result.findings), key=order.index
    )


def test_every_answer_counts_incidents(result: AuditResult) -> None:
    summary = summary_of(result)
    assert sum(summary.findings.values()) == 4
    assert [each.rule for each in summary.incidents][-1] == "R8"
    assert "<dt>incidents</dt><dd>2</dd>" in render_html(result)
    assert "### 2 incidents\n" in render_markdown(result)
    assert "### 2 gaps in the evidence\n" in render_markdown(result)


def test_people_read_the_cause_first_and_the_gap_last(result: AuditResult) -> None:
    output = StringIO()
    draw(Console(file=output, width=200), result, None)
    text = output.getvalue()
    words = ("INCIDENTS", "broker 2 restarted", "effect:  R4 follower 2", "GAPS IN THE EVIDENCE")
    places = [text.index(word) for word in words]
    assert places == sorted(places)
    assert "more: see report.json" not in text


def test_a_broker_that_does_not_come_back_is_told_so(tmp_path: Path) -> None:
    export = Export(length_ms=60_000)

    def is_there(broker: int, at_ms: int) -> bool:
        return broker != 3 or at_ms < 20_000

    partition(
        export,
        is_up=is_there,
        in_sync=lambda t: {broker for broker in (1, 2, 3) if is_there(broker, t)},
    )
    brokers(export, epoch=lambda b, t: 7 if is_there(b, t) else None)
    result = run(None, [str(export.write(tmp_path / "export.jsonl"))])
    first = leads(result.findings)[0]
    assert first.sentence.startswith("broker 3 stopped and did not return: 1 partition")


@pytest.mark.parametrize(
    "epoch_at",
    [
        lambda t: 2 if t < 20_000 else 5 if t >= 40_000 else None,
        lambda t: 2 if t < 20_000 else 5 if t >= 32_000 else -1 if t >= 28_000 else None,
    ],
    ids=["first scrapes failed", "not registered at the first scrape"],
)
def test_a_restart_is_the_cause_however_late_the_process_is_seen(
    epoch_at: Callable[[int], float | None], tmp_path: Path
) -> None:
    export = Export(length_ms=60_000)
    partition(
        export,
        is_up=lambda b, t: b != 3 or epoch_at(t) is not None,
        in_sync=lambda t: {1, 2} if 20_000 <= t < 30_000 else {1, 2, 3},
    )
    brokers(export, epoch=lambda b, t: epoch_at(t) if b == 3 else 2)
    result = run(None, [str(export.write(tmp_path / "export.jsonl"))])
    first = leads(result.findings)[0]
    assert first.sentence.startswith("broker 3 restarted, epoch 2 -> 5: 1 partition")


def test_lag_of_the_whole_window_stands_behind_the_falls(tmp_path: Path) -> None:
    export = Export(length_ms=60_000)
    partition(export, in_sync=lambda t: {1, 2} if 20_000 <= t < 30_000 else {1, 2, 3})
    brokers(export)
    for key, samples in export.series.items():
        named = dict(key)
        if "caught_up_age" in named["__name__"] and named["follower"] == "2":
            samples[:] = [(at_ms, 9.0) for at_ms, _ in samples]
    result = run(None, [str(export.write(tmp_path / "export.jsonl"))])
    reported = leads(result.findings)
    assert [(each.rule, each.subject) for each in reported] == [
        ("R1", "broker 3"),
        ("R4", "follower 2"),
    ]


def test_lag_of_a_planned_absence_names_it_as_its_cause(tmp_path: Path) -> None:
    export = Export(length_ms=60_000)
    partition(export, in_sync=lambda t: {1, 2} if 20_000 <= t < 30_000 else {1, 2, 3})
    brokers(export, planned=lambda broker, t: broker == 3 and 18_000 <= t < 32_000)
    for key, samples in export.series.items():
        named = dict(key)
        if "caught_up_age" in named["__name__"] and named["follower"] == "3":
            samples[:] = [(at, 9.0 if 20_000 <= at < 30_000 else age) for at, age in samples]
    result = run(None, [str(export.write(tmp_path / "export.jsonl"))])
    reported = [(each.rule, each.cause) for each in leads(result.findings) if not each.planned]
    assert reported == [("R4", "planned restart of broker 3 in this window")]


def test_unclean_elections_of_one_moment_are_one_incident(tmp_path: Path) -> None:
    export = Export(length_ms=60_000)
    family = "partition_leader_elections_total"
    for number in range(3):
        partition(export, number=number, without=frozenset({family}))
        about = {"topic": "orders", "topic_id": "id-orders", "partition": str(number)}
        for kind in ("clean", "unclean", "planned"):
            has_been = kind == "unclean"
            export.add(
                family,
                lambda t, has_been=has_been: int(has_been and t >= 40_000),
                **about,
                kind=kind,
                pool="default/pool",
            )
    brokers(export)
    result = run(None, [str(export.write(tmp_path / "export.jsonl"))])
    (lead,) = [each for each in leads(result.findings) if each.rule == "R6"]
    assert [each.subject for each in effects(result.findings)[lead.id]] == [
        "orders-1 unclean-election",
        "orders-2 unclean-election",
    ]
