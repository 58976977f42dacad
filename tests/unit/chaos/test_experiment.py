"""The story over a fake environment: which rounds, which figures, which verdict."""

import asyncio
import io
import time
from dataclasses import dataclass, field

import pytest
from rich.console import Console
from tidemark_chaos import experiment as experiment_module
from tidemark_chaos.environments.environment import Notify
from tidemark_chaos.environments.prometheus import AuditResponse
from tidemark_chaos.experiment import DemoReport, Experiment, Trial, report_fields
from tidemark_chaos.faults.fault import TOPIC, Fault, FaultKind
from tidemark_chaos.history_checker import Anomaly
from tidemark_chaos.verification import ReplicaComparison, Verdict, VerifyReport
from tidemark_chaos.workload_log import WorkloadLog
from tidemark_cli.commands.demo import chosen_kinds
from tidemark_cli.demo_output import ProgressOutput
from tidemark_client.errors import CommandFailed
from tidemark_client.metadata import PartitionView, TopicView

CLEAN = Verdict(100, 100, 0, 0, 2, 1, 0, 0, 0, (), ())


@dataclass
class FakeEnvironment:
    """Each view is given once, the last one for ever."""

    verdict: Verdict = CLEAN
    views: list[TopicView] = field(default_factory=list)
    struck: list[tuple[FaultKind, int]] = field(default_factory=list)
    is_torn_down: bool = False
    worn: frozenset[int] = frozenset()
    renewed: list[int] = field(default_factory=list)
    runtime: str = "processes"
    opening: str = "here"
    closing: str = ""
    default_kinds: tuple[FaultKind, ...] = (FaultKind.KILL,)
    possible_kinds: frozenset[FaultKind] = frozenset({FaultKind.KILL, FaultKind.STOP})

    async def set_up(self, tell: Notify) -> None:
        tell("starting")

    async def start_workload(self) -> None: ...

    async def topic(self) -> TopicView | None:
        return self.views.pop(0) if len(self.views) > 1 else self.views[0]

    async def strike(self, kind: FaultKind, target: PartitionView) -> Fault:
        self.struck.append((kind, target.leader))
        return Fault(time.time() * 1000, f"{kind.value} of broker {target.leader}")

    async def follow_up(self, kind: FaultKind, target: PartitionView) -> Fault | None:
        return None

    async def worn_brokers(self) -> frozenset[int]:
        return self.worn

    async def renew(self, broker_id: int) -> None:
        self.renewed.append(broker_id)

    async def workload_log(self) -> WorkloadLog:
        now_ms = time.time() * 1000
        return WorkloadLog("run", TOPIC, 1, acknowledged_at_ms={0: [now_ms - 60, now_ms]})

    async def stop_workload(self) -> None: ...

    async def verify(self) -> VerifyReport:
        replicas = (ReplicaComparison(0, 100, (), ()),)
        return VerifyReport(TOPIC, "run", self.verdict, replicas, 60.0, 1.0, 2.0)

    async def audit(self) -> AuditResponse | str:
        return AuditResponse("VIOLATED", "R1 not kept", ("broker 0: 1 partition",), "report.html")

    async def tear_down(self) -> None:
        self.is_torn_down = True


def view(leader: int, leader_epoch: int, in_sync: tuple[int, ...] = (0, 1)) -> TopicView:
    return TopicView(TOPIC, (PartitionView(0, leader, leader_epoch, (0, 1), in_sync),))


FAILOVER = [view(0, 1), view(0, 1), view(0, 1), view(1, 2, (1,)), view(1, 2, (1,)), view(1, 2)]


def tell(environment: FakeEnvironment, kind: FaultKind = FaultKind.KILL) -> tuple[DemoReport, str]:
    written = io.StringIO()
    progress = ProgressOutput(Console(file=written, width=100))
    report = asyncio.run(Experiment(environment, progress, quiet_seconds=0.0).tell([kind]))
    return report, written.getvalue()


def test_a_round_names_the_dead_and_the_new_leader() -> None:
    environment = FakeEnvironment(views=list(FAILOVER))
    report, written = tell(environment)
    assert environment.struck == [(FaultKind.KILL, 0)]
    (played,) = report.rounds
    assert (played.kind, played.killed_broker, played.new_leader) == ("kill -9", 0, 1)
    assert played.write_gap_ms == pytest.approx(60, abs=20)
    assert report.is_good
    assert environment.is_torn_down
    assert "broker 1 leads orders-0, leader epoch 1 -> 2" in written
    assert "PASSED" in written
    assert "VIOLATED  R1 not kept" in written
    assert "the faults above count" in written
    assert "broker 0: 1 partition" in written
    assert "\x1b" not in written  # plain lines without a terminal


def test_worn_leaders_are_renewed_before_a_blow() -> None:
    environment = FakeEnvironment(views=[view(0, 1), *FAILOVER], worn=frozenset({0}))
    tell(environment)
    assert environment.renewed == [0]
    assert environment.struck == [(FaultKind.KILL, 0)]


def test_a_loss_fails_the_demo() -> None:
    lost = Verdict(100, 99, 1, 0, 0, 0, 0, 0, 0, (), ("lost: record 7",))
    report, written = tell(FakeEnvironment(lost, list(FAILOVER)))
    assert not report.is_good
    assert "FAILED" in written
    assert "lost: record 7" in written


def test_everything_is_tidied_up_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment_module, "RECOVERY_SECONDS", 0.02)
    environment = FakeEnvironment(views=[view(0, 1)])
    with pytest.raises(CommandFailed) as failed:
        tell(environment)
    assert failed.value.expected == "a new leader of orders-0 within 0.02 s"
    assert environment.is_torn_down


def test_the_report_has_figures_by_kind() -> None:
    rounds = tuple(Trial("kill -9", 0, 0, 1, gap / 2, gap, gap * 10) for gap in (40.0, 60.0, 300.0))
    report = DemoReport("processes", rounds, 1, 1, 0, 0, 0, 0, 0, 0, True, 300.0, 1.0, 2.0, 9.0)
    fields = report_fields(report)
    assert fields["by_kind"]["kill -9"]["write_gap_ms"] == {
        "p50": 60.0,
        "p99": 300.0,
        "max": 300.0,
    }
    assert fields["rounds"][0]["killed_broker"] == 0


def test_kinds_come_in_turn_and_impossible_ones_are_refused() -> None:
    environment = FakeEnvironment()
    assert chosen_kinds("kill,stop", 2, environment) == (
        FaultKind.KILL,
        FaultKind.STOP,
        FaultKind.KILL,
        FaultKind.STOP,
    )
    assert chosen_kinds(None, 1, environment) == (FaultKind.KILL,)
    for names, rounds in (("delete", 1), ("nonsense", 1), ("kill", 0)):
        with pytest.raises(CommandFailed):
            chosen_kinds(names, rounds, environment)


def test_where_the_leader_may_stay_nobody_waits_for_another() -> None:
    environment = FakeEnvironment(views=[view(0, 1)])
    report, written = tell(environment, FaultKind.SHORT_FREEZE)
    (played,) = report.rounds
    assert (played.new_leader, played.leader_after_ms) == (0, None)
    assert played.isr_full_again_ms is not None
    assert "leads" not in written.partition("Round 1")[2]


def test_many_rounds_end_in_figures() -> None:
    written = io.StringIO()
    figures = {"rounds": 5, "write_gap_ms": {"p50": 80.0, "p99": 95.0, "max": 95.0}}
    ProgressOutput(Console(file=written, width=100)).figures({"kill -9": figures})
    assert [word for word in written.getvalue().split() if word.isdecimal()] == [
        "5",
        "80",
        "95",
        "95",
    ]


def test_an_anomaly_of_the_history_fails_the_demo() -> None:
    broken = Anomaly("poll-skip", 1, ("a record was passed over",))
    verified = VerifyReport(TOPIC, "run", CLEAN, (), 1.0, 1.0, 1.0, (broken,))
    report = experiment_module.demo_report("processes", (), verified, seconds=1.0)
    assert not report.is_good
    assert report.notes == ("poll-skip (1): a record was passed over",)
    assert report.anomalies == {"poll-skip": 1}


@pytest.mark.parametrize("verdict", ["VIOLATED", "INCONCLUSIVE", "LOSS", "NO-SOURCE", "PASS"])
def test_another_verdict_than_pass_follows_a_sentence_that_says_why(verdict: str) -> None:
    """PASSED and then VIOLATED would read as a contradiction."""
    written = io.StringIO()
    response = AuditResponse(verdict, "what was measured", (), "report.html")
    ProgressOutput(Console(file=written, width=200)).audit(response)
    before = written.getvalue().partition(f"  {verdict}  what was measured")[0].strip()
    assert bool(before) is (verdict != "PASS")
    assert before.endswith(":") or verdict == "PASS"
