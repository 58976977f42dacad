"""Slices restored from a backup: which are older than what was reported, how they go on (S17)."""

import pytest
from tidemark_operator.controller.core.stale_slices import (
    MinimumEpochs,
    ReportedEpochs,
    holders_of,
    rebuilt,
)
from tidemark_protocol.controller_messages import ReportedEpoch
from tidemark_protocol.ids import BrokerId, LeaderEpoch, PartitionEpoch

from tests.support.controller_values import REPLICA, TOPIC_ID, partition, report, shown

STATE = partition("0@1 1@2", leader="0@1", leader_epoch=5, partition_epoch=9)


def minimum(leader_epoch: int, partition_epoch: int, version: int = 1) -> MinimumEpochs:
    return MinimumEpochs(LeaderEpoch(leader_epoch), PartitionEpoch(partition_epoch), version)


def noted(leader_epoch: int, partition_epoch: int) -> ReportedEpochs:
    epochs = ReportedEpochs()
    epochs.note(REPLICA, leader_epoch, partition_epoch, version=1)
    return epochs


@pytest.mark.parametrize(
    ("leader_epoch", "partition_epoch", "is_stale"),
    [(5, 9, False), (6, 9, True), (5, 10, True), (6, 2, True), (4, 8, False), (-1, -1, False)],
)
def test_a_slice_is_stale_below_either_epoch(
    leader_epoch: int, partition_epoch: int, is_stale: bool
) -> None:
    found = noted(leader_epoch, partition_epoch).minimum_epochs_above(REPLICA, STATE)
    assert (found is not None) is is_stale


def test_a_later_report_raises_each_epoch_on_its_own_and_lowers_none() -> None:
    epochs = noted(5, 9)
    epochs.note(REPLICA, 7, 3, version=2)
    assert epochs.minimum_epochs_of(REPLICA) == minimum(7, 9, version=2)
    epochs.note(REPLICA, 6, 9, version=3)  # nothing new: earlier reports still count
    assert epochs.minimum_epochs_of(REPLICA) == minimum(7, 9, version=2)


def test_another_state_of_the_same_partition_epoch_is_above_the_slice() -> None:
    for has_other_state, expected in ((False, None), (True, minimum(5, 10))):
        epochs = ReportedEpochs()
        epochs.record_reported_epochs(
            ReportedEpoch(TOPIC_ID, 0, LeaderEpoch(5), PartitionEpoch(9), has_other_state),
            version=1,
        )
        assert epochs.minimum_epochs_above(REPLICA, STATE) == expected


def test_a_log_tells_its_last_epoch_unless_it_has_none() -> None:
    epochs = ReportedEpochs()
    epochs.record_reports([report(-1, 0)], version=1)
    assert epochs.minimum_epochs_of(REPLICA) is None
    epochs.record_reports([report(0, 3), report(6, 70)], version=1)
    assert epochs.minimum_epochs_of(REPLICA) == minimum(6, -1)


def test_nothing_is_known_of_a_forgotten_topic() -> None:
    epochs = noted(6, 9)
    epochs.forget(TOPIC_ID)
    epochs.forget(TOPIC_ID)
    assert epochs.minimum_epochs_of(REPLICA) is None


def test_a_rebuilt_partition_is_above_all_and_other_holders_are_replicas_that_leave() -> None:
    found = {REPLICA: report(5, 0)}
    reports = {BrokerId(7): found, BrokerId(3): {}, BrokerId(1): found, BrokerId(4): found}
    holders = holders_of(REPLICA, reports)
    assert holders == (1, 4, 7)
    after = rebuilt(STATE, minimum(8, 3), holders)
    assert shown(after) == "leader -1@-1 epoch 9 isr [] eligible [] pe 10"
    assert (after.replicas, after.removing_replicas) == ((0, 1, 2, 4, 7), (4, 7))
