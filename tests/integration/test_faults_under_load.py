"""Every fault of local mode once on real processes, judged by the history of all clients.

`make e2e-long` plays many of them. Each test also checks that its faults did what they are for.
"""

import asyncio
from pathlib import Path

import pytest
from tidemark_chaos.environments.chaos_processes import ChaosProcesses
from tidemark_chaos.faults.local_faults import LocalFaults
from tidemark_chaos.heal_journal import HealJournal
from tidemark_chaos.report.results import ChaosReport, Verdict, chaos_report
from tidemark_chaos.runner import ChaosRun
from tidemark_chaos.spec import parse_experiment
from tidemark_chaos.timeline import Change

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

# A leader that its followers do not reach gives them the lag window before it goes on without.
IN_TURN = """
apiVersion: tidemark.dev/v1alpha1
kind: ChaosExperiment
metadata: {{name: short}}
spec:
  rounds: {rounds}
  quiet: 200ms
  workload:
    topic: orders
    config: {{min.insync.replicas: "2", replica.lag.time.max.ms: "2000"}}
  faults: [{faults}]
"""
# Both followers sleep until the leader is alone in sync; it is killed and must lead again alone.
SET_OF_ONE = """
apiVersion: tidemark.dev/v1alpha1
kind: ChaosExperiment
metadata: {name: set-of-one}
spec:
  duration: 24s
  workload:
    topic: orders
    config: {min.insync.replicas: "2", replica.lag.time.max.ms: "2000"}
  guards: {minInSync: 0, maxBrokersAtOnce: 3}
  faults:
    - {kind: pause, target: {role: follower, partition: 1}, at: 1s, for: 20s}
    - {kind: pause, target: {role: follower, partition: 1}, at: 6s, for: 15s}
    - {kind: kill, target: {role: leader, partition: 1}, at: 12s}
"""


def play(text: str, directory: Path) -> ChaosReport:
    """Its words are the failure's explanation: pytest shows them beside the assertion."""
    experiment = parse_experiment(text)
    journal = HealJournal(directory)
    environment = ChaosProcesses(experiment.spec, out=directory, journal=journal)
    faults = LocalFaults(environment, journal)
    told: list[str] = []
    try:
        seen = asyncio.run(ChaosRun(experiment, 1, environment, faults, told.append).run())
    except BaseException as error:
        error.add_note("\n".join(told))
        raise
    report = chaos_report(experiment, 1, seen, command="", version="")
    assert report.reasons == (), "\n".join(told)
    assert report.verdict is Verdict.PASSED
    assert (report.lost, report.duplicated) == (0, 0)
    assert report.acknowledged > 100
    assert not any(fault.skipped for fault in report.faults)
    return report


def in_turn(directory: Path, *faults: str) -> ChaosReport:
    listed = ", ".join(f"{{{fault}}}" for fault in faults)
    report = play(IN_TURN.format(rounds=len(faults), faults=listed), directory)
    assert len(report.faults) == len(faults)
    return report


def in_sync_sets(report: ChaosReport, partition: int) -> list[Change]:
    return [each for each in report.timeline if each.what == "isr" and each.partition == partition]


def test_brokers_that_are_killed_or_stopped_lose_nothing(tmp_path: Path) -> None:
    report = in_turn(
        tmp_path,
        *("kind: kill", "kind: kill-twice", "kind: terminate"),
        "kind: rolling-restart, target: {role: all}",
    )
    assert all(fault.elect_ms is not None for fault in report.faults)
    assert report.faults[-1].brokers == (0, 1, 2)


def test_a_leader_that_is_frozen_loses_nothing(tmp_path: Path) -> None:
    report = in_turn(tmp_path, "kind: pause, for: 5s", "kind: pause, for: 1s")
    assert report.faults[0].elect_ms is not None, "5 s are longer than its session"


def test_a_leader_alone_in_sync_leads_again_after_its_kill(tmp_path: Path) -> None:
    report = play(SET_OF_ONE, tmp_path)
    kill = report.faults[-1]
    begin_ms = report.steady_ms + kill.at_ms
    before = [each for each in in_sync_sets(report, 1) if each.t_ms < begin_ms][-1]
    assert (before.in_sync, before.leader) == (kill.brokers, kill.brokers[0])
    leaders = [each for each in report.timeline if each.what == "leader" and each.partition == 1]
    elected = next(each for each in leaders if each.t_ms > begin_ms and each.leader >= 0)
    assert elected.leader == before.leader
    assert elected.leader_epoch > before.leader_epoch


def test_brokers_cut_from_all_lose_nothing(tmp_path: Path) -> None:
    cut = "kind: network-cut, for: 6s"
    report = in_turn(tmp_path, f"{cut}, target: {{role: follower}}", cut)
    follower, leader = report.faults
    assert follower.detect_ms is not None, "it left the in-sync sets"
    assert leader.elect_ms is not None, "others led"


def test_leaders_cut_from_some_lose_nothing(tmp_path: Path) -> None:
    cut = "kind: network-cut, for: 6s"
    report = in_turn(tmp_path, f"{cut}, from: [controller]", f"{cut}, from: [peers]")
    from_controller, from_peers = report.faults
    assert from_controller.elect_ms is not None, "others led"
    begin_ms = report.steady_ms + from_peers.at_ms
    alone = [
        each
        for each in report.timeline
        if each.what == "isr" and each.t_ms > begin_ms and each.in_sync == from_peers.brokers
    ]
    assert alone, "it went on alone"
