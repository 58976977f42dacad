"""Each promise is judged from the moment on at which it could be kept; times are shown."""

import io
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console
from tidemark_operator.api.broker import BrokerControlState
from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.controller.core.settings import ControllerSettings
from tidemark_operator.store.lease import LeaseSettings
from tidemark_protocol.ids import BrokerEpoch, BrokerId, ControllerEpoch

from tests.simulation.checks.cluster_observer import ClusterObserver
from tests.simulation.checks.coverage_rows import FROZEN, KILLED, KILLED_WITH_CONTROLLER, kept
from tests.simulation.checks.final_log_ends import end_of
from tests.simulation.checks.liveness_checks import SECOND_US, Bounds, LivenessChecks
from tests.simulation.checks.violations import Violation
from tests.simulation.clients.desired_topics import DesiredTopic
from tests.simulation.engine.campaign import CampaignResult, percentile, show_times
from tests.simulation.engine.run import Run, RunPlan
from tests.support.broker_records import a_record
from tests.support.controller_values import partition, topic

BOUNDS = Bounds(leader_seconds=10.0, in_sync_seconds=5.0, metadata_seconds=2.0)


class Watched:
    """One partition; one broker lives, and knows what it was told."""

    def __init__(self) -> None:
        self.now_us = 0
        self.stored = partition("0@1 1@1 2@1", leader="0@1")
        self.reported = self.stored
        self.leads = True
        self.process = 1
        self.corruption: Any = None
        self.restarted: list[int] = []

    def restart(self, broker: Any, why: str) -> None:
        self.restarted.append(broker.process)

    def served_partitions(self) -> Any:
        return [("orders-0", "id", self.stored)]

    def unserved(self) -> str:
        return ""

    def live_brokers(self) -> Any:
        metadata = SimpleNamespace(partitions={("id", 0): self.reported})
        leader = SimpleNamespace(leader_epoch=self.stored.leader_epoch) if self.leads else None
        hosted = SimpleNamespace(leader=leader)
        replica = SimpleNamespace(corruption=self.corruption, state=self.stored)
        partitions = SimpleNamespace(
            metadata=metadata, hosted=lambda *_: hosted, replicas=(replica,)
        )
        return (SimpleNamespace(broker_id=0, process=self.process, partitions=partitions),)

    def live_broker(self, broker_id: int) -> Any:
        return self.live_brokers()[0]


def checked_proposal(watched: Watched) -> LivenessChecks:
    return LivenessChecks(cast(ClusterObserver, watched), BOUNDS)


def test_metadata_are_waited_for_since_the_last_change() -> None:
    watched = Watched()
    promises = checked_proposal(watched)
    assert promises.are_kept()
    watched.now_us = 8 * SECOND_US
    watched.stored = partition("0@1 1@1 2@1", leader="0@1", partition_epoch=10)
    assert not promises.are_kept()
    watched.now_us = 10 * SECOND_US
    assert not promises.are_kept()
    watched.now_us += 1
    with pytest.raises(Violation, match="L4"):
        promises.are_kept()


def test_the_isr_is_waited_for_since_there_is_a_leader() -> None:
    watched = Watched()
    watched.leads = False
    watched.stored = watched.reported = partition("0@1 1@1", leader="0@1")
    promises = checked_proposal(watched)
    watched.now_us = 9 * SECOND_US
    assert not promises.are_kept()
    watched.leads = True
    watched.now_us = 14 * SECOND_US
    assert not promises.are_kept()
    watched.now_us += 1
    with pytest.raises(Violation, match="L3"):
        promises.are_kept()
    watched.stored = watched.reported = Watched().stored
    assert promises.are_kept()


def test_a_leader_is_waited_for_since_the_last_fault() -> None:
    watched = Watched()
    watched.leads = False
    promises = checked_proposal(watched)
    watched.now_us = 10 * SECOND_US + 1
    with pytest.raises(Violation, match="L1"):
        promises.are_kept()


def test_a_topic_that_its_user_wants_again_has_a_leader_before_it_is_well() -> None:
    """Seed 63000326: retained until the last fault ended, it was no partition that anybody led."""
    stored: dict[str, PartitionSlice] = {}
    desired_topic = DesiredTopic("orders", topic().topic_id, partitions=1, replication_factor=3)
    cluster: Any = SimpleNamespace(topics=[desired_topic])
    watched = ClusterObserver(cluster)
    watched._values = stored
    assert watched.unserved() == "orders: 0 of 1 partitions are served"
    stored["orders-0"] = retained = a_slice(is_retained=True)
    assert watched.unserved() == "orders: 0 of 1 partitions are served"
    stored["orders-0"] = replace(retained, is_retained=False)
    assert watched.unserved() == ""
    desired_topic.partitions = 2
    assert watched.unserved() == "orders: 1 of 2 partitions are served"
    desired_topic.is_deleted = True
    assert watched.unserved() == ""


def a_slice(*, is_retained: bool) -> PartitionSlice:
    state = partition("0@1 1@1 2@1", leader="0@1")
    first = ControllerEpoch(1)
    return PartitionSlice("p", "orders-0", topic(), "Retain", is_retained, first, (state,))


def test_who_met_what_could_not_be_read_is_restarted_once_where_nobody_leads() -> None:
    """0090: in a process that lives on nobody looks at it again."""
    watched = Watched()
    watched.leads = False
    watched.stored = watched.reported = partition("", leader="")
    watched.corruption = SimpleNamespace(is_unreadable=True, valid_from=None)
    promises = checked_proposal(watched)
    for now_us in (10 * SECOND_US, 10 * SECOND_US + 1, 20 * SECOND_US + 1):
        watched.now_us = now_us
        assert not promises.are_kept()
        watched.process = 2 if watched.restarted else 1  # which cannot read it either
    assert watched.restarted == [1]
    watched.now_us += 1
    with pytest.raises(Violation, match="L1"):
        promises.are_kept()


def test_leadership_that_moves_once_more_is_waited_for_from_then_on() -> None:
    """A broker that was told to stop does so when all others are in sync, long after healing."""
    watched = Watched()
    promises = checked_proposal(watched)
    assert promises.are_kept()
    watched.now_us = 11 * SECOND_US
    assert promises.are_kept()
    watched.leads = False
    watched.now_us += SECOND_US
    assert not promises.are_kept()
    watched.now_us = 21 * SECOND_US
    assert not promises.are_kept()
    watched.now_us += 1
    with pytest.raises(Violation, match="L1"):
        promises.are_kept()


@pytest.mark.parametrize("late", ["an ISR shrinks", "a process starts", "a move begins"])
def test_who_is_missing_later_is_waited_for_from_then_on(late: str) -> None:
    watched = Watched()
    if late != "an ISR shrinks":
        watched.stored = watched.reported = partition("0@1 1@1", leader="0@1")
    promises = checked_proposal(watched)
    assert promises.are_kept() == (late == "an ISR shrinks")
    watched.now_us = 4 * SECOND_US
    if late == "an ISR shrinks":
        assert promises.are_kept()
        watched.now_us += SECOND_US // 20
        watched.stored = watched.reported = partition("0@1 1@1", leader="0@1", partition_epoch=10)
    elif late == "a process starts":
        watched.process = 2
    else:
        replicas = tuple(map(BrokerId, range(4)))
        moving = partition("0@1 1@1", leader="0@1", partition_epoch=10, replicas=replicas)
        watched.stored = watched.reported = moving
    assert not promises.are_kept()
    watched.now_us = 9 * SECOND_US
    assert not promises.are_kept()
    watched.now_us += SECOND_US // 20 + 1
    with pytest.raises(Violation, match="L3"):
        promises.are_kept()


def test_bounds_follow_the_settings() -> None:
    bounds = Bounds.of(ControllerSettings(session_timeout_ms=1000), LeaseSettings("shop"))
    longer = Bounds.of(ControllerSettings(session_timeout_ms=2000), LeaseSettings("shop"))
    assert longer.leader_seconds - bounds.leader_seconds == 2.0
    assert longer.in_sync_seconds - bounds.in_sync_seconds == 1.0


def test_a_promise_that_is_kept_later_is_seen_in_the_table() -> None:
    assert [percentile(range(1, 101), percent) for percent in (50, 99, 100)] == [50, 99, 100]
    shown = io.StringIO()
    result = CampaignResult(retained_us={"L1": [2 * SECOND_US, 300_000, 14 * SECOND_US]})
    show_times(Console(file=shown, width=100), result)
    row = next(line for line in shown.getvalue().splitlines() if "L1" in line)
    assert row.replace("│", " ").split() == ["L1", "3", "2.000", "14.000", "14.000"]


def ending(seed: int, watched: Any, ended: list[str]) -> Any:
    """A run that has come to the end of a leader, of such a world."""
    watched.has_flipped_bits, watched.note = False, lambda text: None
    watched.broker_records, watched.lease_epoch = dict, lambda: 1

    def process(name: str) -> Any:
        return SimpleNamespace(
            name=name,
            kill=lambda: ended.append(f"{name} killed"),
            freeze=lambda for_good: ended.append(f"{name} frozen"),
        )

    slot = SimpleNamespace(process=process("broker-0"), broker_id=BrokerId(0))
    run: Any = Run(RunPlan(seed))
    run.watched = watched
    run.cluster = SimpleNamespace(
        now_us=0,
        namespace="sim",
        brokers={0: slot},
        leading_controller=SimpleNamespace(process=process("controller-0")),
    )
    return run


def a_seed_of(end: str) -> int:
    return next(seed for seed in range(100) if end_of(seed) == end)


def test_no_leader_is_killed_before_all_is_well() -> None:
    """An ISR that was shrunk at the end of the quiet second has nobody else who could lead."""
    watched: Any = Watched()
    full = watched.stored
    watched.stored = watched.reported = partition("0@1", leader="0@1", partition_epoch=10)
    ended: list[str] = []
    run = ending(a_seed_of(KILLED), watched, ended)
    found: list[object] = []

    def step() -> None:
        watched.now_us += SECOND_US // 10
        run.cluster.now_us = watched.now_us
        watched.stored = watched.reported = full
        if ended:
            found.append(full)
            watched.stored = partition("1@1 2@1", leader="1@1", partition_epoch=11)

    run._must_step = step
    run._last_end()
    assert (ended, found) == (["broker-0 killed"], [full])


@pytest.mark.parametrize(
    ("end", "ended", "most_seconds"),
    [
        (KILLED, ["broker-0 killed"], 0.5),
        (FROZEN, ["broker-0 frozen"], 3.5),
        (KILLED_WITH_CONTROLLER, ["controller-0 killed", "broker-0 killed"], 7.5),
    ],
)
def test_each_end_of_a_leader_has_its_bound(
    end: str, ended: list[str], most_seconds: float
) -> None:
    """L1; a frozen process believes for ever that it leads."""
    for late_us in (-1_000, 100_000):
        watched: Any = Watched()
        watched.now_us = SECOND_US
        said: list[str] = []
        run = ending(a_seed_of(end), watched, said)
        run.cluster.now_us = watched.now_us
        led_us = SECOND_US * (1 + most_seconds) + late_us

        def step(run: Any = run, watched: Any = watched, led_us: float = led_us) -> None:
            watched.now_us += 1_000
            run.cluster.now_us = watched.now_us
            if watched.now_us >= led_us:
                watched.stored = partition("1@1 2@1", leader="1@1", partition_epoch=11)

        run._must_step = step
        if late_us > 0:
            with pytest.raises(Violation, match=r"L1.*led by broker 0 still"):
                run._last_end()
        else:
            run._last_end()
            assert run.invariants.coverage[kept(end)] == 1
        assert said == ended


def test_leadership_comes_back_within_an_interval_where_that_is_judged() -> None:
    """L5: where the preferred replica is in sync, and may lead."""
    watched: Any = Watched()
    records = {BrokerId(0): replace(a_record(BrokerId(0)), broker_epoch=BrokerEpoch(1))}
    watched.broker_records, watched.lease_epoch = lambda: records, lambda: 1
    watched.stored = watched.reported = partition("0@1 1@1 2@1", leader="1@1")
    assert checked_proposal(watched).are_kept()
    promises = LivenessChecks(watched, replace(BOUNDS, preferred_seconds=4.0))
    assert not promises.are_kept()
    watched.now_us = 3 * SECOND_US
    watched.lease_epoch = lambda: 2  # which begins to count anew
    assert not promises.are_kept()
    watched.now_us = 7 * SECOND_US
    assert not promises.are_kept()
    watched.now_us += 1
    with pytest.raises(Violation, match=r"L5.*led by 1, preferred is 0"):
        promises.are_kept()
    records[BrokerId(0)] = replace(records[BrokerId(0)], state=BrokerControlState.FENCED)
    assert promises.are_kept()


def test_the_usual_interval_is_no_bound_of_a_run() -> None:
    often = ControllerSettings(balance_interval_ms=2_000)
    assert Bounds.of(often, LeaseSettings("shop")).preferred_seconds == 4.0
    assert Bounds.of(ControllerSettings(), LeaseSettings("shop")).preferred_seconds is None
