"""The judges of I18 to I20 and L6 on values: what they notice, and what they let pass."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tidemark_operator.api.broker import BrokerControlState, BrokerRecord
from tidemark_operator.api.kinds import BROKER, PARTITION_SLICE
from tidemark_operator.api.partition_slice import PartitionSlice
from tidemark_operator.controller.core.views import TopicView
from tidemark_protocol.controller_messages import ReportedEpoch
from tidemark_protocol.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)
from tidemark_protocol.partition_state import PartitionState

from tests.simulation.checks.cluster_observer import ClusterObserver
from tests.simulation.checks.operation_checks import (
    NOISY_TIMES,
    Erasures,
    QuietTime,
    check_led_at_rest,
    crowded_racks,
    left_too_early,
    unnamed_leaderless,
)
from tests.simulation.checks.slice_checks import SliceChecker
from tests.simulation.checks.violations import BeyondPromises, Violation
from tests.support.broker_records import a_record
from tests.support.command_player import pool_state
from tests.support.controller_values import partition, topic

RACKS = {BrokerId(i): rack for i, rack in enumerate("aabc")}
ORDERS = TopicId("orders-id")


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


@pytest.mark.parametrize(
    ("replicas", "present", "is_crowded"),
    [
        (ids(0, 2, 3), ids(0, 1, 2, 3), False),
        (ids(0, 1, 3), ids(0, 1, 2, 3), True),
        (ids(0, 1, 3), ids(0, 1, 3), False),  # rack b came later
        (ids(0, 1, 2, 3), ids(0, 1, 2, 3), False),  # more replicas than racks
    ],
)
def test_replicas_stand_in_as_many_racks_as_there_are(
    replicas: tuple[BrokerId, ...], present: tuple[BrokerId, ...], is_crowded: bool
) -> None:
    assert bool(crowded_racks(replicas, RACKS, present)) is is_crowded


def test_nobody_leaves_before_the_target_is_in_sync() -> None:
    old = partition("0@1 1@1", replicas=(1, 2, 3, 0), adding=(3,), removing=(0,))
    assert left_too_early(old, partition("1@1 2@1", replicas=(1, 2, 3)))
    assert not left_too_early(old, partition("1@1 2@1 3@1", replicas=(1, 2, 3)))
    assert not left_too_early(old, partition("0@1 1@1", replicas=(1, 2, 0)))  # cancelled
    assert not left_too_early(old, partition("1@1", replicas=(1, 2, 3, 0)))
    alone = partition("3@1", replicas=(1, 2, 3, 0), adding=(3,), removing=(0,))
    assert left_too_early(alone, partition("", replicas=(1, 2, 0)))  # all that was in sync


def test_of_a_leaderless_partition_a_condition_speaks() -> None:
    said = TopicView(
        topic=topic(),
        partitions=(partition(""),),
        object_name="orders",
        deletion_policy="Delete",
        is_retained=False,
        notices=("partition 0 has no leader: start broker 2",),
    )
    assert not unnamed_leaderless(said)
    assert unnamed_leaderless(replace(said, notices=("partition 1 has no leader: wait",)))
    assert not unnamed_leaderless(replace(said, notices=(), is_retained=True))


def hosting(*replicas: tuple[TopicId, int]) -> Any:
    partitions = SimpleNamespace(_hosted=SimpleNamespace(by_id=dict.fromkeys(replicas)))
    return SimpleNamespace(process=7, broker_id=BrokerId(1), partitions=partitions)


def test_a_replica_goes_only_with_its_topic_or_to_other_brokers() -> None:
    deleted: list[TopicId] = []
    erasures = Erasures(deleted.__contains__)
    erasures.look(hosting((ORDERS, 0), (ORDERS, 1)))
    erasures.record_state(ORDERS, partition("0@1", replicas=(0, 2)), ids(0, 1, 2))  # partition 0
    erasures.look(hosting((ORDERS, 1)))
    with pytest.raises(Violation, match="I20"):
        erasures.look(hosting())
    erasures.look(hosting((ORDERS, 1)))
    deleted.append(ORDERS)
    erasures.look(hosting())


def test_a_replica_that_came_back_in_sync_is_erased_by_no_move_of_before() -> None:
    """I20: whoever was placed elsewhere at first may join, and nobody asked for its log to go."""
    erasures = Erasures(lambda topic_id: False)
    erasures.record_state(ORDERS, partition("0@1", replicas=(0, 2)), ids(0, 1, 2))
    erasures.look(hosting((ORDERS, 0)))
    joining = partition("0@1", replicas=(0, 2, 1))
    erasures.record_state(ORDERS, joining, ids(0, 1, 2))
    erasures.look(hosting())  # what it had of before
    erasures.look(hosting((ORDERS, 0)))
    erasures.record_state(ORDERS, partition("0@1 1@1", replicas=(0, 2, 1)), ids(0, 1, 2))
    with pytest.raises(Violation, match="I20"):
        erasures.look(hosting())


class Seconds:
    """A world in which each second brings so many writes, and another leader epoch or not."""

    def __init__(self, *seconds: tuple[int, bool]) -> None:
        self._seconds = iter(seconds)
        writes = {PARTITION_SLICE.kind: 0, BROKER.kind: 0}
        store = SimpleNamespace(writes_requested=writes, objects=lambda kind: [])
        self.cluster: Any = SimpleNamespace(store=store)
        self._state = partition("0@1", leader="0@1")

    def served_partitions(self) -> Any:
        return [("orders-0", ORDERS, self._state)]

    def pass_one(self) -> None:
        requested, differs = next(self._seconds)
        self.cluster.store.writes_requested[PARTITION_SLICE.kind] += requested
        if differs:
            epoch = LeaderEpoch(self._state.leader_epoch + 1)
            self._state = replace(self._state, leader_epoch=epoch)


QUIET, NEEDLESS, NEEDED = (0, False), (1, False), (1, True)


@pytest.mark.parametrize(
    ("seconds", "quiet_after"),
    [
        ([QUIET], 1),
        ([NEEDLESS, QUIET, QUIET], 3),
        ([NEEDLESS, QUIET, NEEDLESS, QUIET], None),
        ([NEEDED, QUIET, QUIET], 3),
        ([NEEDED, QUIET, NEEDED, QUIET, NEEDED, NEEDED, QUIET, QUIET], 8),
        ([NEEDED] * NOISY_TIMES, None),  # a controller that elects again every second
        ([NEEDED, QUIET] * NOISY_TIMES, None),
    ],
)
def test_it_gets_quiet(seconds: list[tuple[int, bool]], quiet_after: int | None) -> None:
    """I21: what is needed is written, and then there is an end of it."""
    cluster = Seconds(*seconds)
    quiet = QuietTime(cast(ClusterObserver, cluster))

    def seconds_until_quiet() -> int:
        for passed in range(1, 2 * NOISY_TIMES):
            cluster.pass_one()
            if quiet.is_over():
                return passed
        raise AssertionError("it never ends")

    if quiet_after is None:
        with pytest.raises(Violation, match="I21"):
            seconds_until_quiet()
    else:
        assert seconds_until_quiet() == quiet_after


def a_slice(state: PartitionState) -> PartitionSlice:
    return PartitionSlice(
        pool="shop/default",
        name="orders-0",
        topic=topic(),
        deletion_policy="Delete",
        is_retained=False,
        controller_epoch=ControllerEpoch(1),
        partitions=(state,),
    )


def active(broker_id: int, broker_epoch: int) -> BrokerRecord:
    return replace(a_record(BrokerId(broker_id)), broker_epoch=BrokerEpoch(broker_epoch))


def a_checker(**known: Any) -> SliceChecker:
    """By default no controller was told anything."""
    names = ("is_lost", "was_lost", "is_missing", "is_chosen", "has_flipped_epoch")
    nothing: Any = dict.fromkeys(names, lambda *_, **__: False)
    nothing |= dict.fromkeys(("known_broker", "last_known_broker"), lambda *_: None)
    cluster: Any = SimpleNamespace(**nothing | known)
    return SliceChecker(cluster)


def test_an_entry_of_a_life_whose_broker_came_back_without_the_replica_may_go() -> None:
    """I13, seed 26001955: it is struck out before the registration that says so is stored."""
    old = a_slice(partition("0@1 1@1", leader="0@1", min_insync=3))
    new = a_slice(partition("0@1", leader="0@1", min_insync=3, leader_epoch=6, partition_epoch=10))
    for is_missing in (True, False):
        checker = a_checker(is_missing=lambda *_, found=is_missing: found)
        checker.on_broker(None, active(0, 1))
        checker.on_slice(old, new, {})
        assert bool(checker.dropped) is not is_missing


def test_a_leader_epoch_leaps_by_nothing_but_a_bit_that_only_a_lost_file_could_tell() -> None:
    """0061, seed 44006816."""
    old = a_slice(partition("0@1", leader="0@1"))  # in leader epoch 5
    leapt = a_slice(partition("", leader_epoch=4102, partition_epoch=10))
    with pytest.raises(Violation, match=r"I14.*rose by 4097"):
        a_checker().on_slice(old, leapt, {})
    checker = a_checker(has_flipped_epoch=lambda _topic, _partition, epoch: epoch == 4101)
    with pytest.raises(BeyondPromises):
        checker.on_slice(old, leapt, {})


def test_leadership_is_granted_to_an_unfenced_life_by_an_entry_of_its_own() -> None:
    """I12: the same broker in a later life is somebody else."""
    known: dict[BrokerId, BrokerRecord] = {}
    checker = a_checker(known_broker=lambda broker_id, _: known.get(broker_id))
    old = a_slice(partition("0@1 1@1", leader="0@1"))
    again = a_slice(partition("0@2 1@1", leader="0@2", leader_epoch=6, partition_epoch=10))
    with pytest.raises(Violation, match=r"I12.*never unfenced"):
        checker.on_slice(old, again, {})
    checker.on_broker(None, active(0, 2))
    assert [e.kind for e in checker.on_slice(old, again, {})] == [
        "election: same leader, new epoch"
    ]
    for fenced in (replace(active(0, 2), state=BrokerControlState.FENCED), active(0, 3)):
        known[BrokerId(0)] = fenced
        with pytest.raises(Violation, match=r"I12.*its controller knows"):
            checker.on_slice(old, again, {})
    by_former_entry = a_slice(
        partition("0@1 1@1", leader="0@2", leader_epoch=6, partition_epoch=10)
    )
    with pytest.raises(Violation, match=r"I12.*does not name"):
        checker.on_slice(old, by_former_entry, {})
    unclean = replace(active(0, 2), clean_since=BrokerEpoch(2))
    known.clear()
    with pytest.raises(Violation, match=r"I12.*is valid"):
        checker.on_slice(old, again, {BrokerId(0): unclean})
    checker = a_checker(is_chosen=lambda _, __, leader: leader == 0)
    checker.on_broker(None, active(0, 2))
    kinds = [e.kind for e in checker.on_slice(old, again, {BrokerId(0): unclean})]
    assert kinds == ["election: longest log"]  # a human chose it


def test_a_new_partition_begins_with_lives_that_were_unfenced() -> None:
    checker = a_checker()
    checker.on_broker(None, active(0, 1))
    checker.on_broker(None, replace(active(1, 2), state=BrokerControlState.STARTING))
    checker.on_slice(None, a_slice(partition("0@1", leader="0@1")), {})
    for in_sync in ("0@1 1@2", "0@2"):
        with pytest.raises(Violation, match=r"I12.*begins with .* never unfenced"):
            checker.on_slice(None, a_slice(partition(in_sync, leader=in_sync[:3])), {})


def test_what_a_controller_knew_counts_when_it_died_before_its_write_was_stored() -> None:
    """It fenced a broker, or heard that its replica failed, which is in no object yet."""
    state = pool_state(live=(), controller_epoch=1)
    service = SimpleNamespace(_pools={"": SimpleNamespace(decisions=SimpleNamespace(state=state))})
    slot = SimpleNamespace(name="controller-0", service=service)
    cluster: Any = SimpleNamespace(controllers=[slot], brokers={}, topics=[])
    watched = ClusterObserver(cluster)
    watched.remember_lost()  # at its first writes
    config = {"unclean.leader.election.enable": "true"}
    old = replace(a_slice(partition("", eligible="0@1", min_insync=2)), topic=topic(**config))
    new = partition("1@1", leader="1@1", min_insync=2, leader_epoch=6, partition_epoch=10)
    stored = {BrokerId(0): active(0, 1), BrokerId(1): active(1, 1)}

    def elect(controller_epoch: int) -> list[str]:
        checker = SliceChecker(watched)
        checker.on_broker(None, active(1, 1))
        after = replace(old, partitions=(new,), controller_epoch=ControllerEpoch(controller_epoch))
        return [event.kind for event in checker.on_slice(old, after, stored)]

    state.brokers.update(stored)
    slot.service = None
    with pytest.raises(Violation, match=r"I12.*unclean, and .* was live and valid"):
        elect(1)
    state.brokers[BrokerId(0)] = replace(active(0, 1), state=BrokerControlState.FENCED)
    assert "election: unclean" in elect(1)
    with pytest.raises(Violation, match=r"I12.*unclean, and .* was live and valid"):
        elect(2)  # another one, that was never seen
    state.brokers.update(stored)
    state.soft_state_of(BrokerId(0)).failed_replicas = frozenset({(old.topic.topic_id, 0)})
    assert "election: unclean" in elect(1)
    # I13: it struck out what it was told of in the same moment.
    checker, before = SliceChecker(watched), a_slice(partition("0@1 1@1", leader="1@1"))
    checker.on_slice(before, a_slice(partition("1@1", leader="1@1", partition_epoch=10)), stored)
    assert checker.dropped == []


def test_a_failure_that_is_heard_of_while_a_write_is_under_way_makes_no_void_entry() -> None:
    """Seed 43000289: its leader died, and it was elected as its heartbeat said that it had met a
    corrupt batch."""
    state = pool_state(live=(), controller_epoch=1)
    service = SimpleNamespace(_pools={"": SimpleNamespace(decisions=SimpleNamespace(state=state))})
    slot = SimpleNamespace(name="controller-0", service=service)
    cluster: Any = SimpleNamespace(controllers=[slot], brokers={}, topics=[])
    checker = SliceChecker(ClusterObserver(cluster))
    checker.on_broker(None, active(1, 1))
    old = a_slice(partition("0@1 1@1", leader="0@1"))
    new = a_slice(partition("0@1 1@1", leader="1@1", leader_epoch=6, partition_epoch=10))
    stored = {BrokerId(0): active(0, 1), BrokerId(1): active(1, 1)}
    state.brokers.update(stored)
    notes = state.soft_state_of(BrokerId(1))
    notes.failed_replicas = frozenset({(old.topic.topic_id, 0)})
    assert "election: in-sync replica" in [e.kind for e in checker.on_slice(old, new, stored)]
    notes.evaluated_failures = notes.failed_replicas
    with pytest.raises(Violation, match=r"I12.*led by a void entry"):
        checker.on_slice(old, new, stored)


def test_a_slice_from_long_ago_waits_for_reports_before_a_dead_leader_goes() -> None:
    """I12 and S17, seed 61000025 of "slices change": put back while its leader was down."""
    value = a_slice(partition("0@1 1@1", leader="0@1"))
    state = pool_state(live=(), controller_epoch=1)
    state.brokers[BrokerId(0)] = replace(active(0, 1), state=BrokerControlState.FENCED)
    state.slices[value.name] = value
    lock = SimpleNamespace(locked=lambda: False)
    pool = SimpleNamespace(decisions=SimpleNamespace(state=state, lock=lock, is_dirty=False))
    slot = SimpleNamespace(service=SimpleNamespace(_pools={"": pool}))
    watched = ClusterObserver(cast(Any, SimpleNamespace(leading_controller=slot)))
    watched._values[value.name] = value
    with pytest.raises(Violation, match=r"I12: orders-0: .*all is written"):
        check_led_at_rest(watched)
    held = ReportedEpoch(value.topic.topic_id, 0, LeaderEpoch(6), PartitionEpoch(12))
    assert state.record_reported_epochs((held,), version=1)
    check_led_at_rest(watched)


def test_the_last_member_of_an_isr_that_commits_alone_stays() -> None:
    """I13, unless what it held is known to be lost."""
    checker = a_checker()
    old = a_slice(partition("0@1", leader="0@1"))
    old = replace(old, topic=topic(commit_rule="Isr"))
    emptied = partition("", leader_epoch=6, partition_epoch=10)
    checker.on_slice(old, replace(old, partitions=(emptied,)), {})
    checker.conclude({BrokerId(0): replace(active(0, 2), clean_since=BrokerEpoch(2))})
    with pytest.raises(Violation, match=r"I13.*nobody stayed in sync"):
        checker.conclude({BrokerId(0): active(0, 2)})


def test_only_a_slice_that_was_put_back_jumps_over_epochs_without_its_entries() -> None:
    """S17: rebuilt above all that anybody holds; after the election that follows all counts."""
    checker = a_checker()
    old = a_slice(partition("0@1 1@1", leader="0@1"))
    rebuilt = a_slice(partition("", leader_epoch=9, partition_epoch=20))
    with pytest.raises(Violation, match="I14"):
        checker.on_slice(old, rebuilt, {})
    checker.on_broker(None, active(2, 1))
    checker.restored[old.topic.topic_id, 0] = None
    assert [event.kind for event in checker.on_slice(old, rebuilt, {})] == ["rebuilt"]
    led = a_slice(partition("2@1", leader="2@1", leader_epoch=10, partition_epoch=21))
    checker.on_slice(rebuilt, led, {})
    assert checker.restored == {}


def test_a_slice_goes_only_with_its_topic() -> None:
    Erasures(lambda topic_id: True).on_slice_gone("orders-0", ORDERS)
    with pytest.raises(Violation, match="I20"):
        Erasures(lambda topic_id: False).on_slice_gone("orders-0", ORDERS)
