"""What a leader answers by epochs and offsets: the vectors of Kafka's PartitionTest, and S22."""

import pytest
from tidemark_broker.replication.core.effects import (
    DivergingEpoch,
    FetchVerdict,
    RejectFetch,
    ReplicaFetch,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset

from tests.unit.broker.replication.core.epoch_history import EpochHistory
from tests.unit.broker.replication.core.leaders import a_leader

OUT_OF_RANGE = RejectFetch(ErrorCode.OFFSET_OUT_OF_RANGE)
EPOCHS = ((0, 0), (3, 2), (4, 8), (7, 13), (9, 14), (10, 17))


def diverging(epoch: int, end_offset: int) -> DivergingEpoch:
    return DivergingEpoch(LeaderEpoch(epoch), Offset(end_offset))


def verdict(
    last_epoch: int, offset: int, *, log_start: int = 0, in_sync: tuple[int, ...] = (1, 2, 3)
) -> FetchVerdict:
    leader = a_leader(leader_epoch=10, log_end=17, in_sync=in_sync)
    epochs = tuple(
        (epoch, max(start, log_start))
        for index, (epoch, start) in enumerate(EPOCHS)
        if index + 1 == len(EPOCHS) or EPOCHS[index + 1][1] > log_start
    )
    log = EpochHistory(epochs, Offset(17), Offset(log_start))
    fetch = ReplicaFetch(
        BrokerId(2), BrokerEpoch(12), LeaderEpoch(10), Offset(offset), LeaderEpoch(last_epoch)
    )
    return leader.check_fetch(fetch, log)


@pytest.mark.parametrize(
    ("last_epoch", "offset", "expected"),
    [
        (2, 5, diverging(0, 2)),
        (0, 4, diverging(0, 2)),
        (6, 6, diverging(4, 13)),
        (5, 9, diverging(4, 13)),
        (10, 18, diverging(10, 17)),
        (0, 2, None),
        (7, 14, None),
        (9, 17, None),
        (10, 17, None),
        (-1, 0, None),
        (-1, 17, None),
        (-1, 18, OUT_OF_RANGE),
    ],
)
def test_kafkas_vectors_of_last_fetched_epochs(
    last_epoch: int, offset: int, expected: FetchVerdict
) -> None:
    assert verdict(last_epoch, offset) == expected


@pytest.mark.parametrize(
    ("log_start", "last_epoch", "offset", "expected"),
    [
        (5, 2, 8, diverging(2, 5)),
        (5, 0, 5, None),
        (5, 3, 5, None),
        (5, 0, 0, OUT_OF_RANGE),
        (10, 5, 6, OUT_OF_RANGE),
        (10, 3, 6, OUT_OF_RANGE),
    ],
)
def test_kafkas_vectors_after_the_log_start_has_moved(
    log_start: int, last_epoch: int, offset: int, expected: FetchVerdict
) -> None:
    assert verdict(last_epoch, offset, log_start=log_start) == expected


def test_an_epoch_that_retention_took_is_agreed_to_by_whoever_is_counted_on() -> None:  # S32
    assert verdict(0, 5, log_start=5) is None
    assert verdict(0, 6, log_start=5) == diverging(0, 5)
    for offset in (5, 6):
        assert verdict(0, offset, log_start=5, in_sync=(1, 3)) == diverging(0, 4)


def test_an_epoch_that_the_leader_lost_is_answered_as_divergence() -> None:  # S22
    assert verdict(11, 5) == diverging(10, 17)


def test_a_lost_epoch_below_the_log_start_is_out_of_range_all_the_same() -> None:  # S22
    assert verdict(11, 3, log_start=5) == OUT_OF_RANGE
