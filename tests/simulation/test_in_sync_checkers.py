"""I15, I6 of entries, S14's choice: what they notice, and what they let pass."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tidemark_operator.api.broker import BrokerControlState, BrokerRecord
from tidemark_protocol.ids import BrokerEpoch, BrokerId, TopicId
from tidemark_protocol.partition_state import PartitionState

from tests.simulation.checks.in_sync_checks import EntryChecker, MaximalChecker
from tests.simulation.checks.slice_checks import LONGEST_LOG, UNCLEAN, SliceEvent
from tests.simulation.checks.unclean_recovery_checks import ACTIVE_FOR_US, UncleanRecoveryChecker
from tests.simulation.checks.violations import Violation
from tests.support.broker_records import a_record
from tests.support.controller_values import partition, topic

ORDERS = TopicId("orders-id")
KEY = (ORDERS, 0)
OS = "Os"


class Replica(SimpleNamespace):
    __hash__ = object.__hash__


def leading(state: PartitionState, *, proposed: PartitionState | None = None) -> Any:
    members = (proposed or state).in_sync_replicas
    leader = SimpleNamespace(
        leader_epoch=state.leader_epoch,
        state=state,
        pending_proposal=proposed,
        maximal_in_sync_replicas=members,
    )
    return Replica(topic="orders", topic_id=ORDERS, partition=0, leader=leader)


SMALL = partition("0@1 1@1", leader="0@1")
LARGE = partition("0@1 1@1 2@1", leader="0@1", partition_epoch=10)


def test_a_proposal_that_is_dropped_while_the_slice_has_it_is_seen_at_once() -> None:
    """I15: nothing of the replica or its log changes by that."""
    checker = MaximalChecker({KEY: LARGE}, {})
    replica = leading(SMALL, proposed=LARGE)
    checker.look(BrokerId(0), replica)
    replica.leader.pending_proposal = None
    replica.leader.maximal_in_sync_replicas = SMALL.in_sync_replicas
    with pytest.raises(Violation, match="I15"):
        checker.look(BrokerId(0), replica)


def test_a_write_of_the_slice_is_held_against_a_leader_that_nothing_touched() -> None:
    states = {KEY: SMALL}
    checker = MaximalChecker(states, {})
    replica = leading(SMALL)
    checker.look(BrokerId(0), replica)
    states[KEY] = LARGE
    with pytest.raises(Violation, match="I15"):
        checker.look(BrokerId(0), replica)
    MaximalChecker(states, {KEY: None}).look(BrokerId(0), replica)  # put back from a backup (S17)
    states[KEY] = replace(SMALL, in_sync_replicas=SMALL.in_sync_replicas[:1])
    with pytest.raises(Violation, match=r"I15.*at partition epoch 9"):
        checker.look(BrokerId(0), replica)


def registered(broker_id: int, broker_epoch: int, *, end: tuple[int, int] | None = None) -> Any:
    replica = None
    if end is not None:
        log = SimpleNamespace(failure="", latest_epoch=end[0], log_end_offset=end[1])
        replica = Replica(log=log, corruption=None)
    partitions = SimpleNamespace(broker_epoch=broker_epoch, hosted=lambda *_: replica)
    return SimpleNamespace(broker_id=BrokerId(broker_id), partitions=partitions, broker=None)


def record(broker_id: int, broker_epoch: int, **changes: Any) -> BrokerRecord:
    return replace(a_record(BrokerId(broker_id)), broker_epoch=BrokerEpoch(broker_epoch), **changes)


@pytest.mark.parametrize("why", ["", "lost", "void", "not registered"])
def test_a_member_of_the_isr_has_its_replica(why: str) -> None:
    """I6, unless it is known to be lost, or nothing that it had counts."""
    clean_since = BrokerEpoch(2 if why == "void" else 0)
    cluster: Any = SimpleNamespace(
        is_lost=lambda *_: why == "lost",
        broker_records=lambda: {BrokerId(1): record(1, 2, clean_since=clean_since)},
    )
    unused: Any = None
    checker = EntryChecker(cluster, unused, unused)
    live = {BrokerId(1): registered(1, -1 if why == "not registered" else 2)}
    if why:
        checker.check(KEY, SMALL, OS, live)
        return
    with pytest.raises(Violation, match=r"I6.*broker 1 is in the ISR as 1@1, its replica is not"):
        checker.check(KEY, SMALL, OS, live)


def elected(kind: str, *brokers: Any, known: BrokerRecord | None = None, **cluster: Any) -> None:
    """Broker 0, of those that live."""
    live = {broker.broker_id: broker for broker in brokers}
    records = {i: record(i, broker.partitions.broker_epoch) for i, broker in live.items()}
    seen: Any = {
        "now_us": 0,
        "has_flipped_bits": False,
        "is_chosen": lambda *_: False,
        "is_lost": lambda *_: False,
        "live_broker": live.get,
        "broker_records": lambda: records,
        "last_known_broker": lambda *_: known,
    }
    watched: Any = SimpleNamespace(**seen | cluster)
    checker = UncleanRecoveryChecker(watched)
    for each in records.values():
        checker.on_broker(None, each)
    watched.now_us += ACTIVE_FOR_US
    state = partition("0@1", leader="0@1", leader_epoch=6, partition_epoch=10)
    value: Any = SimpleNamespace(name="orders-0", controller_epoch=1, topic=topic())
    checker.on_elected(value, SliceEvent(kind, ORDERS, 0, state))


@pytest.mark.parametrize("kind", [LONGEST_LOG, UNCLEAN])
def test_whoever_leads_without_proof_has_the_longest_log(kind: str) -> None:
    shorter, equal = registered(1, 1, end=(4, 99)), registered(2, 1, end=(5, 70))
    led = registered(0, 1, end=(5, 70))
    elected(kind, led, shorter, equal)
    for longer in (registered(2, 1, end=(5, 71)), registered(2, 1, end=(6, 1))):
        with pytest.raises(Violation, match=r"S14.*broker 2"):
            elected(kind, led, shorter, longer)
        elected(kind, led, longer, is_chosen=lambda *_: True)
        elected(kind, led, longer, has_flipped_bits=True)
        elected(kind, led, longer, is_lost=lambda *_: True)
        elected(kind, registered(0, 2, end=(5, 70)), longer)  # in another life by now


def test_an_unclean_election_is_among_those_that_its_controller_counts_as_live() -> None:
    led, longer = registered(0, 1, end=(5, 70)), registered(2, 1, end=(6, 1))
    fenced = record(2, 1, state=BrokerControlState.FENCED)
    elected(UNCLEAN, led, longer, known=fenced)
    with pytest.raises(Violation, match="S14"):
        elected(LONGEST_LOG, led, longer, known=fenced)
