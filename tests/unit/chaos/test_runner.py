"""The runner's order of things, on an environment that only pretends: what is struck is healed."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from tidemark_chaos import runner
from tidemark_chaos.runner import ChaosRun, Observations
from tidemark_chaos.schedule import PlannedFault
from tidemark_chaos.spec import parse_experiment
from tidemark_chaos.verification import Verdict, VerifyReport
from tidemark_chaos.workload_log import Event, Produced, Started
from tidemark_client.cluster_status import BrokerRow, ClusterStatus
from tidemark_client.errors import CommandFailed
from tidemark_client.metadata import PartitionView, TopicView

TEXT = """
apiVersion: tidemark.dev/v1alpha1
kind: ChaosExperiment
metadata: {{name: one}}
spec:
  quiet: 1ms
  recoverWithin: 1s
  workload: {{partitions: 1, recordsPerSecond: 100}}
  steadyState: {{for: 50ms, within: 1s, minRate: {rate}}}
  guards:
    {{minInSync: {in_sync}, maxBrokersAtOnce: {at_once}, forSeconds: 0.05}}
  {rest}
"""
CLEAN = Verdict(9, 9, 0, 0, 0, 0, 0, 0, 0, (), ())


class PretendedCluster:
    """Acknowledges every 5 ms; a strike restarts the leader with its next epoch."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.leader, self.epoch = 0, 1
        self.in_sync: tuple[int, ...] = (0, 1, 2)
        self.problem: Exception | None = None
        self.keeps_data = False
        self.moves_leader = False
        self.silent_ms = (0.0, 0.0)  # from and until
        self.full_from_ms = 0.0
        self._began = time.time() * 1000
        self._sent = 0

    async def prepare(self) -> None:
        self.calls.append("prepare")

    async def set_up(self, tell: Callable[[str], None]) -> None:
        self.calls.append("set up")

    async def start_workload(self) -> None:
        self.calls.append("workload")

    async def stop_workload(self) -> None:
        self.calls.append("stop")

    async def verify(self) -> VerifyReport:
        self.calls.append("verify")
        return VerifyReport("chaos", "run", CLEAN, (), 0.0, 0.0, 0.0)

    async def tear_down(self) -> None:
        self.calls.append("tear down")

    async def status(self) -> ClusterStatus:
        in_sync = self.in_sync if time.time() * 1000 > self.full_from_ms else (0,)
        view = PartitionView(0, self.leader, self.epoch, (0, 1, 2), in_sync)
        brokers = tuple(BrokerRow(number, "Active", self.epoch) for number in range(3))
        return ClusterStatus(brokers, (TopicView("chaos", (view,)),))

    async def new_events(self) -> list[Event]:
        now_ms = time.time() * 1000
        found: list[Event] = [] if self._sent else [Started(now_ms, "run", "chaos", 1, 5.0)]
        if self.silent_ms[0] < now_ms < self.silent_ms[1]:
            self._began = now_ms - 5 * self._sent
            return found
        while self._began + 5 * self._sent < now_ms:
            at_ms = self._began + 5 * self._sent
            found.append(Produced(at_ms, 0, self._sent, "acknowledged", 1.0, self._sent))
            self._sent += 1
        return found

    def check_workload(self) -> None:
        if self.problem is not None:
            raise self.problem

    async def until(self, is_so: Callable[[], Any], what: str) -> None:
        assert await is_so(), what

    async def rest(self, brokers: tuple[int, ...]) -> bool:
        """The first time it takes a while, in which the leader moves."""
        if not self.moves_leader:
            return False
        self.moves_leader = False
        self.leader = 2
        await asyncio.sleep(0.05)
        return True

    def note_struck(self, brokers: tuple[int, ...]) -> None: ...


class PretendedFaults:
    def __init__(self, cluster: PretendedCluster, for_seconds: float = 0.0) -> None:
        self._cluster = cluster
        self._for_seconds = for_seconds
        self.is_broken = False
        self.is_slow = False  # in sync after 150 ms, acknowledging until 100 ms and from 400 ms
        self.began = asyncio.Event()

    async def strike(
        self, fault: PlannedFault, brokers: tuple[int, ...], on_begin: Any, on_heal: Any
    ) -> None:
        self._cluster.calls.append(f"strike {fault.number}: {brokers}")
        on_begin(time.time() * 1000, "struck")
        self.began.set()
        if self.is_broken:
            raise CommandFailed("the process is gone")
        if self._for_seconds:
            self._cluster.in_sync = (0,)
        try:
            await asyncio.sleep(self._for_seconds)
        finally:
            self._cluster.in_sync = (0, 1, 2)
            self._cluster.epoch += 1
            if self.is_slow:
                now_ms = time.time() * 1000
                self._cluster.full_from_ms = now_ms + 150
                self._cluster.silent_ms = (now_ms + 100, now_ms + 400)
            on_heal(time.time() * 1000, "healed")

    def heal(self) -> list[str]:
        self._cluster.calls.append("heal")
        return []


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (
        *(("AFTER_SECONDS", 0.01), ("TARGET_SECONDS", 0.1)),
        *(("SAMPLE_SECONDS", 0.005), ("EVENTS_SECONDS", 0.01), ("POLL_SECONDS", 0.005)),
    ):
        monkeypatch.setattr(runner, name, seconds)


def run_of(
    cluster: PretendedCluster,
    faults: PretendedFaults,
    rest: str = "rounds: 2\n  faults: [{kind: kill}]",
    *,
    rate: float = 0.5,
    in_sync: int = 1,
    at_once: int = 1,
) -> ChaosRun:
    experiment = parse_experiment(
        TEXT.format(rate=rate, in_sync=in_sync, at_once=at_once, rest=rest)
    )
    run: Any = ChaosRun
    created: ChaosRun = run(experiment, 1, cluster, faults, lambda _: None)
    return created


def seen_in(run: ChaosRun) -> Observations:
    return asyncio.run(run.run())


def test_faults_are_played_in_turn_and_all_is_verified_then() -> None:
    cluster = PretendedCluster()
    seen = seen_in(run_of(cluster, PretendedFaults(cluster)))
    assert cluster.calls == [
        *("prepare", "set up", "workload", "strike 1: (0,)", "strike 2: (0,)"),
        *("stop", "verify", "heal", "tear down"),
    ]
    assert seen.is_good
    assert [(fault.led, fault.skipped) for fault in seen.faults] == [((0,), "")] * 2
    assert all(fault.recovered_ms is not None for fault in seen.faults)


def test_a_leader_that_moves_while_a_restart_is_waited_for_is_followed() -> None:
    cluster = PretendedCluster()
    cluster.moves_leader = True
    seen = seen_in(run_of(cluster, PretendedFaults(cluster)))
    assert [fault.brokers for fault in seen.faults] == [(2,), (2,)]


def test_acknowledgements_from_before_all_was_in_sync_are_no_recovery() -> None:
    cluster = PretendedCluster()
    faults = PretendedFaults(cluster)
    faults.is_slow = True
    seen = seen_in(run_of(cluster, faults, "rounds: 1\n  faults: [{kind: terminate}]"))
    (fault,) = seen.faults
    assert fault.heal_ms is not None and fault.recovered_ms is not None
    assert fault.recovered_ms - fault.heal_ms > 390


def test_an_experiment_that_injected_nothing_does_not_pass() -> None:
    cluster = PretendedCluster()
    text = "rounds: 1\n  faults: [{kind: kill, target: {role: random, count: 4}}]"
    run = run_of(cluster, PretendedFaults(cluster), text, at_once=4)
    seen = seen_in(run)
    assert [fault.skipped[:9] for fault in seen.faults] == ["3 brokers"]
    assert seen.problems == ["no fault was injected, so the experiment shows nothing"]
    assert not seen.is_good


def test_without_a_steady_state_nothing_is_struck() -> None:
    cluster = PretendedCluster()
    cluster.in_sync = (0, 1)
    with pytest.raises(CommandFailed, match="No steady state within 1s, so no fault began"):
        seen_in(run_of(cluster, PretendedFaults(cluster)))
    assert cluster.calls == ["prepare", "set up", "workload", "heal", "tear down"]


def test_a_guard_ends_the_fault_early_and_the_records_are_still_verified() -> None:
    cluster = PretendedCluster()
    began = time.monotonic()
    seen = seen_in(run_of(cluster, PretendedFaults(cluster, 60.0), in_sync=2))
    assert time.monotonic() - began < 30
    assert "had 1 replicas in sync" in seen.aborted
    assert cluster.calls[-5:] == ["heal", "stop", "verify", "heal", "tear down"]
    assert not seen.is_good
    assert cluster.keeps_data


def test_a_fault_that_fails_is_a_problem_of_the_run() -> None:
    cluster = PretendedCluster()
    faults = PretendedFaults(cluster)
    faults.is_broken = True
    seen = seen_in(run_of(cluster, faults))
    assert seen.problems == ["the process is gone"]
    assert not seen.is_good
    assert "verify" in cluster.calls


def test_a_workload_that_ends_aborts() -> None:
    cluster = PretendedCluster()

    async def broken_later() -> Observations:
        faults = PretendedFaults(cluster, 60.0)
        run = run_of(cluster, faults)
        running = asyncio.create_task(run.run())
        await faults.began.wait()
        cluster.problem = CommandFailed("the workload ended")
        return await running

    assert asyncio.run(broken_later()).aborted == "the workload ended"


def test_an_interrupt_heals_and_cleans_up() -> None:
    cluster = PretendedCluster()

    async def interrupted() -> None:
        faults = PretendedFaults(cluster, 60.0)
        run = run_of(cluster, faults)
        running = asyncio.create_task(run.run())
        await faults.began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(interrupted())
    assert cluster.calls[-2:] == ["heal", "tear down"]
    assert cluster.in_sync == (0, 1, 2)
