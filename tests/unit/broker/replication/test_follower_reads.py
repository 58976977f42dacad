"""Consumers at followers (KIP-392): below the follower's own watermark, and only while it may."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tidemark_broker.replication.replica_manager import FetchResult
from tidemark_broker.replication.results import Consumer
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import NO_BROKER, LeaderEpoch, Offset

from tests.support.in_process_pool import InProcessPool

EAST = Consumer(rack="east")


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[InProcessPool]:
    """Broker 1 leads in the west, 2 and 3 stand in the east; two records are committed."""
    pool = InProcessPool(tmp_path)
    pool.racks = {1: "west", 2: "east", 3: "east"}
    pool.lead(1)
    pool.brokers[1].produce("a", "b")
    pool.replicate(rounds=4)
    yield pool
    for number in tuple(pool.brokers):
        pool.kill(number)


def only(results: list[FetchResult]) -> FetchResult:
    [result] = results
    return result


def test_the_leader_sends_a_reader_to_its_rack_at_once_and_without_data(
    pool: InProcessPool,
) -> None:
    sent = only(pool.brokers[1].read(0, consumer=EAST, max_wait_ms=500))
    assert (sent.error, sent.data) == (ErrorCode.NONE, b"")
    assert sent.preferred_replica in (2, 3)
    assert (
        only(pool.brokers[sent.preferred_replica].read(0, consumer=EAST)).data
        == pool.brokers[1].log_bytes()
    )


def test_the_leader_serves_readers_of_its_own_rack_of_none_and_of_unknown_ones(
    pool: InProcessPool,
) -> None:
    for reader in (Consumer(), Consumer(rack=""), Consumer(rack="west"), Consumer(rack="north")):
        found = only(pool.brokers[1].read(0, consumer=reader))
        assert (found.preferred_replica, found.data) == (NO_BROKER, pool.brokers[1].log_bytes())


def test_an_offset_that_no_follower_is_known_to_have_stays_with_the_leader(
    pool: InProcessPool,
) -> None:
    refused = only(pool.brokers[1].read(9, consumer=EAST))
    assert refused.error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_refuses_readers_that_did_not_say_that_they_may_come(
    pool: InProcessPool,
) -> None:
    assert only(pool.brokers[2].read(0)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_shows_nothing_above_its_own_watermark(pool: InProcessPool) -> None:  # I7
    pool.brokers[1].produce("c")
    pool.replicate(2)  # it has the record, and does not know yet that it is committed
    assert pool.brokers[2].replica().log.log_end_offset == 3
    assert only(pool.brokers[2].read(2, consumer=EAST)).data == b""
    pool.replicate(3, 2, rounds=2)
    assert only(pool.brokers[2].read(2, consumer=EAST)).data != b""


def test_a_read_parked_at_a_follower_is_woken_by_the_watermark(pool: InProcessPool) -> None:
    waiting = pool.brokers[2].read(2, consumer=EAST, max_wait_ms=10_000)
    assert waiting == []
    pool.brokers[1].produce("c")
    pool.replicate(2)
    assert waiting == []
    pool.replicate(3, 2, rounds=2)
    assert only(waiting).high_watermark == 3


def test_past_its_end_a_follower_says_not_available_and_below_its_start_out_of_range(
    pool: InProcessPool,
) -> None:
    """It cannot know whether the leader has that offset, so it must not call it wrong."""
    assert only(pool.brokers[2].read(3, consumer=EAST)).error is ErrorCode.OFFSET_NOT_AVAILABLE
    pool.brokers[2].replica().log.truncate_fully_and_start_at(
        pool.brokers[2].replica().log.log_end_offset
    )
    assert only(pool.brokers[2].read(0, consumer=EAST)).error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_what_a_follower_has_deleted_already_the_leader_serves_itself(pool: InProcessPool) -> None:
    """Retention is each replica's own: the leader's log may begin lower."""
    for number in (2, 3):
        assert pool.brokers[number].replica().advance_log_start(Offset(1))
    pool.replicate(rounds=2)
    found = only(pool.brokers[1].read(0, consumer=EAST))
    assert (found.preferred_replica, found.data) == (NO_BROKER, pool.brokers[1].log_bytes())
    assert only(pool.brokers[1].read(1, consumer=EAST)).preferred_replica in (2, 3)


@pytest.mark.parametrize("number", [1, 2], ids=["leader", "follower"])
def test_readers_of_another_leader_epoch_are_told_who_is_behind(
    pool: InProcessPool, number: int
) -> None:  # KIP-320
    now = pool.state.leader_epoch
    expected = {
        now - 1: ErrorCode.FENCED_LEADER_EPOCH,
        now: ErrorCode.NONE,
        now + 1: ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
    for epoch, error in expected.items():
        reader = Consumer(rack="", current_leader_epoch=LeaderEpoch(epoch))
        assert only(pool.brokers[number].read(0, consumer=reader)).error is error


def test_a_follower_that_knows_itself_out_of_sync_sends_its_readers_away(
    pool: InProcessPool,
) -> None:
    pool.lead(1, in_sync=[1, 3])
    pool.replicate(2)
    assert only(pool.brokers[2].read(0, consumer=EAST)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert only(pool.brokers[3].read(0, consumer=EAST)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    pool.replicate(3)
    assert only(pool.brokers[3].read(0, consumer=EAST)).error is ErrorCode.NONE


def test_in_a_new_leader_epoch_a_follower_waits_for_its_leaders_word(pool: InProcessPool) -> None:
    """Until then its log may have to be cut (after an unclean election even committed records)."""
    delayed = pool.brokers[3].read(2, consumer=EAST, max_wait_ms=10_000)
    pool.lead(2)
    assert only(delayed).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert only(pool.brokers[3].read(0, consumer=EAST)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    pool.replicate(3)
    assert only(pool.brokers[3].read(0, consumer=EAST)).error is ErrorCode.NONE


def test_a_follower_without_word_from_its_leader_serves_no_longer_than_the_lag_window(
    pool: InProcessPool,
) -> None:
    pool.replicate(2)
    pool.time.run(10_000)
    assert only(pool.brokers[2].read(0, consumer=EAST)).error is ErrorCode.NONE
    pool.time.run(1)
    assert only(pool.brokers[2].read(0, consumer=EAST)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    pool.replicate(2)  # nothing new, but word
    assert only(pool.brokers[2].read(0, consumer=EAST)).error is ErrorCode.NONE


def test_a_parked_read_goes_on_when_its_follower_becomes_the_leader(pool: InProcessPool) -> None:
    delayed = pool.brokers[2].read(2, consumer=EAST, max_wait_ms=10_000)
    pool.lead(2, in_sync=[2, 3])
    pool.replicate(3)
    pool.brokers[2].produce("c")
    pool.replicate(3, rounds=2)
    assert only(delayed).high_watermark == 3


def test_a_parked_read_of_the_old_epoch_is_told_at_once_when_its_follower_becomes_the_leader(
    pool: InProcessPool,
) -> None:
    old = Consumer(rack="east", current_leader_epoch=pool.state.leader_epoch)
    delayed = pool.brokers[2].read(2, consumer=old, max_wait_ms=10_000)
    pool.lead(2)
    assert only(delayed).error is ErrorCode.FENCED_LEADER_EPOCH
