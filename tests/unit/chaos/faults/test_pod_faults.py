"""Faults of pods: who is struck, with what, and what a kind cluster cannot do."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from tidemark_chaos.faults.fault import Fault
from tidemark_chaos.faults.node_scripts import Cut, cut_script, pause_script, rules_between
from tidemark_chaos.faults.pod_faults import NEEDS, POSSIBLE, PodFaults, impossible
from tidemark_chaos.schedule import PlannedFault, schedule
from tidemark_chaos.spec import Direction, ExperimentSpec, FaultName, Party, parse_experiment
from tidemark_client.cluster_status import BrokerRow, ClusterStatus
from tidemark_client.metadata import PartitionView, TopicView

from tests.support.waiting import wait_for


class FakePods:
    """Notes what is done; a deleted pod is back under its next epoch at once."""

    topic_name = "chaos"

    def __init__(self) -> None:
        self.done: list[str] = []
        self.epochs = dict.fromkeys(range(3), 1)

    async def status(self) -> ClusterStatus:
        ids = tuple(self.epochs)
        view = PartitionView(0, leader=0, leader_epoch=1, replicas=ids, in_sync_replicas=ids)
        brokers = tuple(BrokerRow(i, "Active", epoch) for i, epoch in self.epochs.items())
        return ClusterStatus(brokers, (TopicView("chaos", (view,)),))

    async def signal(self, broker_id: int, number: int, words: str) -> Fault:
        return self._note(f"{words} {broker_id} ({number})")

    async def pause(self, broker_id: int, seconds: float) -> Fault:
        return self._note(f"pause of {broker_id} for {seconds:g} s")

    async def delete_pod(self, broker_id: int, *, is_forced: bool) -> Fault:
        self.epochs[broker_id] += 1
        return self._note(f"{'forced ' * is_forced}delete of {broker_id}")

    async def kill_operator(self) -> Fault:
        return self._note("kill of the operator")

    async def pause_operator(self, seconds: float) -> Fault:
        return self._note(f"pause of the operator for {seconds:g} s")

    async def cut(
        self, broker_id: int, others: Sequence[int], *, from_: Sequence[Party], cut: Cut
    ) -> tuple[Fault, Callable[[], Awaitable[None]]]:
        async def heal() -> None:
            self._note(f"heal of {broker_id}")

        whom = f"{[*others]}, {' '.join(from_)}, {cut.direction}"
        return self._note(f"cut of {broker_id} from {whom} for {cut.seconds:g} s"), heal

    def _note(self, words: str) -> Fault:
        self.done.append(words)
        return Fault(float(len(self.done)), words)


def spec(fault: str) -> ExperimentSpec:
    text = f"""
apiVersion: tidemark.dev/v1alpha1
kind: ChaosExperiment
metadata: {{name: one}}
spec: {{rounds: 1, faults: [{fault}]}}
"""
    return parse_experiment(text).spec


def planned(fault: str) -> PlannedFault:
    return next(iter(schedule(spec(fault), 1)))


def struck(fault: str, *brokers: int) -> tuple[list[str], list[str], list[str]]:
    """What was done to the pods, and what was told at the begin and at the end."""
    pods, begun, healed = FakePods(), list[str](), list[str]()
    faults = PodFaults(pods, pods)
    asyncio.run(
        faults.strike(
            planned(fault),
            brokers,
            lambda _, text: begun.append(text),
            lambda _, text: healed.append(text),
        )
    )
    return pods.done, begun, healed


@pytest.mark.parametrize(
    ("fault", "done"),
    [
        ("{kind: kill, target: {role: leader}}", ["kill -9 of 1 (9)"]),
        ("{kind: terminate, target: {role: leader}}", ["SIGTERM to 1 (15)"]),
        ("{kind: pod-delete, target: {role: leader}}", ["forced delete of 1"]),
        ("{kind: kill, target: {role: controller}}", ["kill of the operator"]),
    ],
)
def test_a_fault_strikes_its_target_once(fault: str, done: list[str]) -> None:
    found, begun, healed = struck(fault, 1)
    assert (found, begun, healed) == (done, done, [])


def test_a_pause_is_healed_after_its_time() -> None:
    found, begun, healed = struck("{kind: pause, target: {role: random}, for: 10ms}", 0, 2)
    assert found == begun == ["pause of 0 for 0.01 s", "pause of 2 for 0.01 s"]
    assert healed == ["brokers 0, 2 continue"]


def test_a_paused_operator_continues_after_its_time() -> None:
    found, begun, healed = struck("{kind: pause, target: {role: controller}, for: 10ms}")
    assert found == begun == ["pause of the operator for 0.01 s"]
    assert healed == ["the operator continues"]


def test_a_cut_pod_is_connected_after_its_time() -> None:
    found, begun, healed = struck(
        "{kind: network-cut, target: {role: leader}, from: [peers], direction: in, for: 10ms}", 1
    )
    cut = "cut of 1 from [0, 2], peers, in for 0.01 s"
    assert (found, begun) == ([cut, "heal of 1"], [cut])
    assert healed == ["brokers 1 are connected"]


def test_a_cut_that_is_cancelled_is_healed() -> None:
    async def cancelled() -> list[str]:
        pods, began = FakePods(), asyncio.Event()
        fault = planned("{kind: network-cut, target: {role: leader}, for: 60s}")
        striking = asyncio.create_task(
            PodFaults(pods, pods).strike(fault, (1,), lambda *_: began.set(), lambda *_: None)
        )
        await began.wait()
        striking.cancel()
        await asyncio.gather(striking, return_exceptions=True)
        return pods.done

    assert asyncio.run(cancelled())[-1] == "heal of 1"


@pytest.mark.parametrize(
    ("others", "direction", "rules"),
    [
        (None, Direction.BOTH, [("-s", "a"), ("-d", "a")]),
        (["b"], Direction.OUT, [("-s", "a", "-d", "b")]),
        (["b", "c"], Direction.IN, [("-d", "a", "-s", "b"), ("-d", "a", "-s", "c")]),
        ([], Direction.BOTH, []),
    ],
)
def test_packets_are_dropped_in_the_directions_of_the_pod(
    others: list[str] | None, direction: Direction, rules: list[tuple[str, ...]]
) -> None:
    assert rules_between("a", others, direction) == rules


@pytest.mark.parametrize(
    ("script", "done", "undone"),
    [
        (
            cut_script([("-s", "a"), ("-d", "a")], 0.5),
            ["insert -s a", "insert -d a"],
            ["delete -s a", "delete -d a"],
        ),
        (pause_script("a-b", 0.5), ["kill -STOP 17 18"], ["kill -CONT 17 18"]),
    ],
    ids=["cut", "pause"],
)
def test_a_script_is_undone_by_its_own_timer(
    script: str, done: list[str], undone: list[str], tmp_path: Path
) -> None:
    """Played by a shell whose iptables, grep and kill only say what they are asked for."""
    said = tmp_path / "said"
    commands = f"""
        iptables() {{ echo "$3 $5 $6" | sed s/--// >> {said}; }}
        grep() {{ test "$2" = "a-b|a_b" && echo /proc/17/cgroup && echo /proc/18/cgroup; }}
        kill() {{ echo "kill" $* >> {said}; }}
    """
    command = ("bash", "-c", f"{commands}\n{script}")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    assert int(ended.stdout) > 1e18
    assert said.read_text().splitlines() == done
    wait_for("the timer", lambda: said.read_text().splitlines()[len(done) :] == undone, seconds=20)


def test_pods_are_restarted_in_turn_and_each_is_back_before_the_next() -> None:
    found, begun, healed = struck("{kind: rolling-restart, target: {role: all}}", 0, 1, 2)
    assert found == ["delete of 0", "delete of 1", "delete of 2"]
    assert begun == ["delete of 0"]
    assert healed[-1] == "brokers 0, 1, 2 restarted in turn"


def test_every_kind_is_possible_or_says_what_it_needs() -> None:
    assert set(FaultName) == POSSIBLE | NEEDS.keys()
    assert not POSSIBLE & NEEDS.keys()


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("{kind: disk-full, target: {role: leader}, for: 5s}", "disk-full is not possible on kind"),
        (
            "{kind: terminate, target: {role: controller}}",
            "terminate of the controller is not possible on kind",
        ),
    ],
)
def test_what_kind_cannot_do_is_rejected_before_anything_starts(fault: str, sentence: str) -> None:
    (problem,) = impossible(spec(fault))
    assert sentence in problem
    assert impossible(spec("{kind: kill, target: {role: leader}}")) == []
