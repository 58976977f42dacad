"""`tidemark demo`: which experiment its options make, and what it prints at the end."""

import argparse
import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from tidemark_chaos.environments.prometheus import AuditResponse
from tidemark_chaos.report.results import (
    ChaosReport,
    Verdict,
    chaos_report,
    figures_by_kind,
)
from tidemark_chaos.runner import FaultRecord, Observations
from tidemark_chaos.spec import FaultName, parse_experiment
from tidemark_chaos.verification import ReplicaComparison, VerifyReport
from tidemark_chaos.verification import Verdict as Counts
from tidemark_chaos.workload_log import Produced, Started
from tidemark_cli.commands import demo
from tidemark_cli.commands.demo import chosen_experiment
from tidemark_cli.demo_output import draw_demo
from tidemark_client.errors import CommandFailed

CLEAN = Counts(400, 400, 0, 0, 0, 0, 0, 0, 0, (), ())
ROOT = Path(__file__).parents[4]


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    return parser.parse_args(words)


def kinds_of(*words: str) -> list[FaultName]:
    return [fault.kind for fault in chosen_experiment(options(*words)).spec.faults]


@pytest.fixture(autouse=True)
def in_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_the_demo_is_the_example_also_without_a_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    example = parse_experiment((ROOT / demo.EXAMPLE).read_text())
    assert parse_experiment(demo.WITHOUT_CHECKOUT) == example
    chosen = chosen_experiment(options())
    assert chosen == msgspec.structs.replace(
        example, spec=msgspec.structs.replace(example.spec, quiet="1.000s")
    )
    monkeypatch.chdir(tmp_path)
    assert chosen_experiment(options()) == chosen


def test_kinds_come_in_turn_in_so_many_rounds() -> None:
    spec = chosen_experiment(options("--kinds", "kill,stop", "--rounds", "2")).spec
    assert [fault.kind for fault in spec.faults] == [FaultName.KILL, FaultName.TERMINATE]
    assert spec.rounds == 4
    assert kinds_of("--on", "kind") == [FaultName.KILL, FaultName.POD_DELETE]


def test_the_load_and_its_pauses_are_chosen_by_options() -> None:
    spec = chosen_experiment(options("--interval-ms", "5", "--quiet-seconds", "0.2")).spec
    assert (spec.workload.records_per_second, spec.quiet) == (200.0, "0.200s")


@pytest.mark.parametrize(
    "words",
    [
        ("--kinds", "delete"),
        ("--kinds", "nonsense"),
        ("--on", "kind", "--kinds", "kill-twice"),
        ("--rounds", "0"),
        ("--interval-ms", "0"),
    ],
)
def test_what_is_not_possible_is_rejected(words: tuple[str, ...]) -> None:
    with pytest.raises(CommandFailed):
        chosen_experiment(options(*words))


def report_of(counts: Counts = CLEAN) -> ChaosReport:
    """Of one kill at 1 s, which stopped writes for 300 ms."""
    seen = Observations(0.0, ended_ms=5000.0, steady_ms=0.0, stopped_ms=5000.0)
    seen.series.on_event(Started(0.0, "run", "orders", 1, 10.0))
    for number, at_ms in enumerate([*range(0, 1000, 10), *range(1290, 5000, 10)]):
        seen.series.on_event(Produced(at_ms, 0, number, "acknowledged", 2.0, number))
    kill = FaultRecord(1, "kill", "leader", "", (0,), (0,), "kill -9 of broker 0", 1000.0)
    seen.faults.append(kill)
    replicas = (ReplicaComparison(0, 400, (), ()),)
    seen.verified = VerifyReport("orders", "run", counts, replicas, 300.0, 2.0, 2.0)
    return chaos_report(chosen_experiment(options()), 1, seen, command="", version="1")


def drawn(report: ChaosReport, audited: AuditResponse | str = "none was made") -> str:
    written = io.StringIO()
    draw_demo(Console(file=written, width=200), report, audited, Path("report.html"))
    return written.getvalue()


def test_a_fault_and_its_longest_write_gap_are_told() -> None:
    text = drawn(report_of())
    assert "kill -9 of broker 0" in text
    assert "longest write gap   300 ms" in text
    assert "identical" in text
    assert "PASSED" in text
    assert "none: none was made" in text
    assert "\x1b" not in text  # plain lines without a terminal


def test_a_loss_fails_the_demo() -> None:
    lost = Counts(400, 399, 1, 0, 0, 0, 0, 0, 0, (), ("lost: record 7",))
    report = report_of(lost)
    assert report.verdict is Verdict.FAILED
    text = drawn(report)
    assert "FAILED" in text
    assert "lost: record 7" in text


def test_many_rounds_end_in_figures() -> None:
    report = report_of()
    faults = [
        msgspec.structs.replace(report.faults[0], number=number, write_gap_ms=gap)
        for number, gap in enumerate((60.0, 70.0, 80.0, 90.0, 95.0), start=1)
    ]
    by_kind = figures_by_kind(faults)
    text = drawn(msgspec.structs.replace(report, faults=tuple(faults), by_kind=by_kind))
    (row,) = [line.split() for line in text.splitlines() if "write gap " in line and "5" in line]
    assert row == ["kill", "5", "write", "gap", "80", "95", "95"]


@pytest.mark.parametrize("verdict", ["VIOLATED", "INCONCLUSIVE", "LOSS", "NO-SOURCE", "PASS"])
def test_another_verdict_than_pass_follows_a_sentence_that_says_why(verdict: str) -> None:
    """PASSED and then VIOLATED would read as a contradiction."""
    text = drawn(report_of(), AuditResponse(verdict, "what was measured", (), "audit.html"))
    before = text.partition("Audit")[2].partition(f"  {verdict}  what was measured")[0].strip()
    assert bool(before) is (verdict != "PASS")
    assert before.endswith(":") or verdict == "PASS"
