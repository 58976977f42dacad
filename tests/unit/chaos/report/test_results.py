"""The report of a run: verdict, figures of each fault, and what it is written as."""

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from tidemark_chaos.history_checker import Anomaly
from tidemark_chaos.report.comparison import NotComparable, comparison_section, read_other
from tidemark_chaos.report.html import html_page
from tidemark_chaos.report.junit import junit_xml
from tidemark_chaos.report.results import ChaosReport, FaultFigures, Verdict, chaos_report
from tidemark_chaos.runner import FaultRecord, Observations
from tidemark_chaos.spec import Metadata, parse_experiment
from tidemark_chaos.timeline import Timeline
from tidemark_chaos.verification import ReplicaComparison, VerifyReport
from tidemark_chaos.verification import Verdict as Counts
from tidemark_chaos.workload_log import Produced, Read, Started
from tidemark_client.cluster_status import BrokerRow, ClusterStatus
from tidemark_client.metadata import PartitionView, TopicView

PARSED = parse_experiment(
    """
apiVersion: tidemark.dev/v1alpha1
kind: ChaosExperiment
metadata: {name: one}
spec: {rounds: 1, faults: [{kind: kill}]}
"""
)
HOSTILE = Metadata("<script>alert(1)</script>")  # which `parse_experiment` rejects
EXPERIMENT = msgspec.structs.replace(PARSED, metadata=HOSTILE)
START = 1_000_000.0
CLEAN = Counts(200, 200, 0, 0, 0, 0, 0, 0, 0, (), ())
GOOD = VerifyReport("chaos", "run", CLEAN, (ReplicaComparison(0, 200, (), ()),), 0.0, 0.0, 0.0)


def status(leader: int, epoch: int, in_sync: tuple[int, ...], state: str) -> ClusterStatus:
    view = PartitionView(0, leader, epoch, (0, 1, 2), in_sync)
    brokers = tuple(BrokerRow(n, state if n == 0 else "Active") for n in range(3))
    return ClusterStatus(brokers, (TopicView("chaos", (view,)),))


def observed() -> Observations:
    """Broker 0 is killed 1 s after the steady state, is noticed after 200 ms and back after 2 s."""
    seen = Observations(START - 5000, START + 5000, START, timeline=Timeline("chaos"))
    for at_ms, sample in (
        (-100.0, status(0, 3, (0, 1, 2), "Active")),
        (1200.0, status(-1, 4, (1, 2), "Fenced")),
        (1300.0, status(1, 5, (1, 2), "Fenced")),
        (2900.0, status(1, 5, (1, 2), "Active")),
        (3000.0, status(1, 5, (0, 1, 2), "Active")),
    ):
        seen.timeline.on_sample(START + at_ms, sample)
    seen.stopped_ms = START + 5000
    seen.series.on_event(Started(START, "run", "chaos", 1, 10.0))
    for number, at_ms in enumerate([*range(0, 1000, 10), *range(1350, 5000, 10)]):
        produced = Produced(START + at_ms, 0, number, "acknowledged", 2.0, number)
        seen.series.on_event(produced)
        seen.series.on_event(Read(START + at_ms, 0, number, [number]))
    seen.faults.append(
        FaultRecord(1, "kill", "leader", "", (0,), (0,), "kill -9 of broker 0", START + 1000)
    )
    seen.verified = GOOD
    return seen


def report_of(seen: Observations) -> ChaosReport:
    command = "tidemark chaos run -f x.yaml --seed 7"
    return chaos_report(EXPERIMENT, 7, seen, command=command, version="1.2")


def test_the_figures_of_a_fault_are_measured_from_its_begin() -> None:
    (fault,) = report_of(observed()).faults
    assert isinstance(fault, FaultFigures)
    assert (fault.at_ms, fault.detect_ms, fault.elect_ms) == (1000.0, 200.0, 300.0)
    assert (fault.first_ack_ms, fault.full_isr_ms) == (350.0, 2000.0)
    assert (fault.write_gap_ms, fault.read_gap_ms) == (360.0, 360.0)
    assert fault.latency_before.p99_ms == 2.0


def test_a_recovery_before_the_healing_counts_from_the_healing() -> None:
    seen = observed()
    seen.faults[0].heal_ms = START + 3500
    (fault,) = report_of(seen).faults
    assert (fault.healed_ms, fault.full_isr_ms) == (2500.0, 2500.0)


def test_a_recovery_from_a_later_fault_is_not_this_ones() -> None:
    seen = observed()
    seen.faults[0].recovered_ms = START + 1500
    assert report_of(seen).faults[0].full_isr_ms is None


def test_a_good_run_passes_and_names_how_to_repeat_it() -> None:
    report = report_of(observed())
    assert (report.verdict, report.reasons) == (Verdict.PASSED, ())
    assert report.sentence == "465 records acknowledged, none lost, none duplicated, after 1 fault"
    assert report.command.endswith("--seed 7")


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        ({"aborted": "too few in sync"}, Verdict.ABORTED, "after 1 fault: too few in sync"),
        ({"problems": ["it did not recover"]}, Verdict.FAILED, "did not recover"),
        ({"online_violations": ["offset 3 twice"]}, Verdict.FAILED, "a guarantee was broken"),
        ({"verified": None}, Verdict.FAILED, "the records are not verified"),
        (
            {"verified": replace(GOOD, verdict=replace(CLEAN, lost=3))},
            Verdict.FAILED,
            "3 of 465 acknowledged records are lost",
        ),
        (
            {"verified": replace(GOOD, anomalies=(Anomaly("vanished", 1, ("0: x",)),))},
            Verdict.FAILED,
            "a guarantee was broken",
        ),
    ],
)
def test_whatever_is_wrong_fails_the_run(
    change: dict[str, object], verdict: Verdict, words: str
) -> None:
    seen = observed()
    for name, value in change.items():
        setattr(seen, name, value)
    report = report_of(seen)
    assert report.verdict is verdict
    assert words in report.sentence
    suite = ElementTree.fromstring(junit_xml(report).partition("\n")[2])
    assert int(suite.get("failures", "0")) >= 1


def test_the_page_begins_with_the_verdict_and_fetches_nothing() -> None:
    page = html_page(report_of(observed()))
    body = page.partition("<body>")[2]
    assert body.index("PASSED") < body.index("Seed 7") < body.index("<svg")
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert not re.search(r"""(?:src|href)\s*=|@import|url\(|<script""", page)


def test_the_json_of_a_report_is_read_back() -> None:
    report = report_of(observed())
    assert msgspec.json.decode(msgspec.json.encode(report), type=ChaosReport) == report
    assert sum(report.partitions[0].per_bin) == report.acknowledged


def test_a_skipped_fault_is_shown_as_skipped_in_all_reports() -> None:
    seen = observed()
    skipped = FaultRecord(2, "kill", "leader", begin_ms=START + 4000, skipped="no leader")
    seen.faults.append(skipped)
    report = report_of(seen)
    assert "skipped: no leader" in html_page(report)
    suite = ElementTree.fromstring(junit_xml(report).partition("\n")[2])
    assert suite.get("skipped") == "1"
    assert report.verdict is Verdict.PASSED
    assert report.sentence.endswith("after 1 fault (1 skipped)")


def test_characters_that_xml_cannot_hold_are_replaced() -> None:
    seen = observed()
    seen.problems = ["bytes \x00 and \ud800"]
    ElementTree.fromstring(junit_xml(report_of(seen)).partition("\n")[2])


def test_the_page_compares_with_another_system(tmp_path: Path) -> None:
    ours = report_of(observed())
    theirs = msgspec.structs.replace(ours, system="<i>Other</i>", version="4", lost=3)
    path = tmp_path / "report.json"
    path.write_bytes(msgspec.json.encode(theirs))
    read = read_other(path, ours.name, ours.seed)
    assert read == theirs
    page = html_page(ours, [read])
    assert "<h2>Compared with &lt;i&gt;Other&lt;/i&gt; 4</h2>" in page
    assert "<i>Other" not in page
    assert page.count("tidemark 1.2") > 2
    assert html_page(ours) in page.replace(comparison_section(ours, [read]), "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "is no report.json of an experiment"),
        ("{}", "is no report.json of an experiment"),
        ("other seed", "is of <script>alert(1)</script> with seed 7"),
    ],
)
def test_only_a_report_of_the_same_experiment_and_seed_is_comparable(
    text: str | None, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    if text == "other seed":
        path.write_bytes(msgspec.json.encode(report_of(observed())))
    elif text is not None:
        path.write_text(text)
    with pytest.raises(NotComparable, match=re.escape(reason)):
        read_other(path, "<script>alert(1)</script>", 8)
