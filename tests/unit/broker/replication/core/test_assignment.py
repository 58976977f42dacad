"""What a broker does with a partition, by its state, its log and its broker epoch."""

from dataclasses import replace

import pytest
from tidemark_broker.replication.core.assignment import (
    Follow,
    Idle,
    Lead,
    LocalBroker,
    LocalLog,
    NoLeader,
    Reject,
    Remove,
    Wait,
    assign,
    needs_lost_log,
)
from tidemark_protocol.ids import NO_BROKER, BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch
from tidemark_protocol.partition_state import Member, PartitionState

ME, OTHER, THIRD = BrokerId(1), BrokerId(2), BrokerId(3)
EPOCH, EARLIER = BrokerEpoch(11), BrokerEpoch(7)
BROKER = LocalBroker(ME, EPOCH, {})
LOG = LocalLog(LeaderEpoch(4))
NO_LOG = LocalLog()


def state(
    leader: BrokerId = OTHER,
    *,
    leader_broker_epoch: BrokerEpoch = EPOCH,
    in_sync: tuple[Member, ...] = (Member(OTHER, EPOCH),),
    eligible: tuple[Member, ...] = (),
    replicas: tuple[BrokerId, ...] = (ME, OTHER),
    leader_epoch: int = 5,
) -> PartitionState:
    return PartitionState(
        0,
        replicas,
        leader,
        leader_broker_epoch,
        LeaderEpoch(leader_epoch),
        in_sync,
        eligible,
        PartitionEpoch(9),
        1,
    )


@pytest.mark.parametrize("log", [LOG, NO_LOG], ids=["its log", "no log"])
@pytest.mark.parametrize(
    ("leader", "leader_broker_epoch", "role"),
    [
        (ME, EPOCH, Lead()),
        (OTHER, EPOCH, Follow()),
        (NO_BROKER, BrokerEpoch(-1), NoLeader()),
        (ME, EARLIER, NoLeader()),  # S2
    ],
)
def test_replica_role_is_of_this_broker_epoch(
    log: LocalLog, leader: BrokerId, leader_broker_epoch: BrokerEpoch, role: object
) -> None:
    assert assign(state(leader, leader_broker_epoch=leader_broker_epoch), log, BROKER) == role


# ---- a state that does not name this broker


@pytest.mark.parametrize("latest_epoch", [0, 4])
def test_log_is_removed_by_a_newer_state(latest_epoch: int) -> None:  # S12
    moved = state(replicas=(OTHER, THIRD))
    assert assign(moved, LocalLog(LeaderEpoch(latest_epoch)), BROKER) == Remove(
        "moved to other brokers"
    )


@pytest.mark.parametrize("latest_epoch", [5, 6])
def test_log_is_kept_when_the_state_is_not_newer(latest_epoch: int) -> None:  # S17, S30
    moved = state(replicas=(OTHER, THIRD))
    assert assign(moved, LocalLog(LeaderEpoch(latest_epoch)), BROKER) == Idle(
        "an older state does not list it"
    )


def test_entries_of_a_state_that_does_not_name_this_broker_reject_nothing() -> None:
    entry = Member(ME, EARLIER)
    moved = state(replicas=(OTHER, THIRD), in_sync=(entry,))
    assert isinstance(assign(moved, NO_LOG, BROKER), Remove)


# ---- a log that is lost (S9)


@pytest.mark.parametrize(
    "log",
    [
        NO_LOG,
        replace(LOG, ended_below_high_watermark=True),
        LocalLog(is_displaced=True),
    ],
    ids=["no log", "a log that ended below its high watermark", "a displaced log"],
)
@pytest.mark.parametrize("where", ["in_sync", "eligible"])
def test_entry_of_an_earlier_epoch_rejects_a_lost_log(log: LocalLog, where: str) -> None:
    members = (Member(OTHER, EPOCH), Member(ME, EARLIER))
    named = state(in_sync=members) if where == "in_sync" else state(eligible=members[1:])
    rejected = assign(named, log, BROKER)
    assert isinstance(rejected, Reject)
    assert "broker 1 is in sync or eligible" in rejected.reason


def test_entry_of_an_earlier_epoch_counts_with_a_complete_log() -> None:
    assert assign(state(in_sync=(Member(ME, EARLIER),)), LOG, BROKER) == Follow()


@pytest.mark.parametrize("where", ["in_sync", "eligible"])
def test_entry_of_this_epoch_rejects_a_displaced_log(where: str) -> None:  # S12
    entry = (Member(ME, EPOCH),)
    named = state(in_sync=entry) if where == "in_sync" else state(eligible=entry)
    assert isinstance(assign(named, LocalLog(is_displaced=True), BROKER), Reject)


@pytest.mark.parametrize("log", [NO_LOG, replace(LOG, ended_below_high_watermark=True)])
def test_entry_of_this_epoch_means_the_present_log(log: LocalLog) -> None:
    """The controller made it by what this process reported."""
    assert assign(state(in_sync=(Member(ME, EPOCH),)), log, BROKER) == Follow()


def test_displaced_log_begins_empty_once_no_entry_names_the_broker() -> None:
    assert assign(state(), LocalLog(is_displaced=True), BROKER) == Follow()


def test_another_brokers_entry_of_an_earlier_epoch_rejects_nothing() -> None:
    others = state(in_sync=(Member(OTHER, EARLIER),))
    assert assign(others, NO_LOG, BROKER) == Follow()
    assert not needs_lost_log(others, LocalLog(is_displaced=True), BROKER)


# ---- a name that another topic has


def test_no_log_is_created_under_a_name_of_another_topic() -> None:
    assert assign(state(), LocalLog(is_name_taken=True), BROKER) == Wait()
    entry = state(in_sync=(Member(ME, EARLIER),))
    assert assign(entry, LocalLog(is_name_taken=True), BROKER) == Wait()


def test_existing_log_is_used_whatever_topic_has_its_name() -> None:
    assert assign(state(), replace(LOG, is_name_taken=True), BROKER) == Follow()
