"""What a follower does with its leader's answers: append, truncate by epochs, wait (3.4, I2)."""

import pytest
from tidemark_broker.replication.core.effects import (
    AppendRecords,
    DivergingEpoch,
    FollowLogStart,
    HighWatermarkAdvanced,
    LeaderResponse,
    RestartLogAt,
    TruncateLog,
)
from tidemark_broker.replication.core.follower import (
    FIRST_BACK_OFF_MS,
    MAX_BACK_OFF_MS,
    FollowerFetch,
    PartitionFollower,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import BrokerId, LeaderEpoch, Offset

from tests.unit.broker.replication.core.epoch_history import EpochHistory

NOW_MS = 5_000


def a_follower(high_watermark: int = 0, leader_epoch: int = 5) -> PartitionFollower:
    return PartitionFollower(
        leader=BrokerId(1),
        leader_epoch=LeaderEpoch(leader_epoch),
        high_watermark=Offset(high_watermark),
    )


def an_response(
    *,
    error: ErrorCode = ErrorCode.NONE,
    high_watermark: int = 0,
    log_start: int = 0,
    has_records: bool = False,
    diverging: tuple[int, int] | None = None,
) -> LeaderResponse:
    divergence: DivergingEpoch | None = None
    if diverging is not None:
        divergence = DivergingEpoch(LeaderEpoch(diverging[0]), Offset(diverging[1]))
    return LeaderResponse(error, Offset(high_watermark), Offset(log_start), has_records, divergence)


def a_log(end: int, *epochs: tuple[int, int], start: int = 0) -> EpochHistory:
    return EpochHistory(epochs, Offset(end), Offset(start))


def fetched(follower: PartitionFollower, log: EpochHistory) -> FollowerFetch:
    fetch = follower.next_fetch(log, NOW_MS)
    assert fetch is not None
    return fetch


def test_it_fetches_from_its_log_end_with_its_latest_epoch() -> None:
    log = a_log(50, (2, 0), (4, 50))  # it led in epoch 4 and wrote nothing
    assert a_follower().next_fetch(log, NOW_MS) == FollowerFetch(
        LeaderEpoch(5), Offset(50), LeaderEpoch(4)
    )


def test_the_watermark_follows_after_the_append_and_never_past_the_own_end() -> None:  # I2
    follower, log = a_follower(10), a_log(50, (2, 0))
    response = an_response(high_watermark=80, has_records=True)
    assert follower.on_response(fetched(follower, log), response, log, NOW_MS) == (
        AppendRecords(Offset(80)),
    )
    assert follower.high_watermark == 10
    assert follower.on_appended(Offset(80), Offset(60)) == (HighWatermarkAdvanced(Offset(60)),)
    assert follower.high_watermark == 60


def test_the_watermark_never_moves_back() -> None:  # I2
    follower, log = a_follower(40), a_log(50, (2, 0))
    response = an_response(high_watermark=30)
    assert follower.on_response(fetched(follower, log), response, log, NOW_MS) == ()
    assert follower.high_watermark == 40


def test_an_empty_answer_may_raise_the_watermark() -> None:
    follower, log = a_follower(40), a_log(50, (2, 0))
    response = an_response(high_watermark=45)
    assert follower.on_response(fetched(follower, log), response, log, NOW_MS) == (
        HighWatermarkAdvanced(Offset(45)),
    )


def test_a_diverging_answer_touches_no_watermark() -> None:  # KAFKA-14704
    follower, log = a_follower(40), a_log(50, (2, 0))
    response = an_response(high_watermark=50, diverging=(2, 45))
    assert follower.on_response(fetched(follower, log), response, log, NOW_MS) == (
        TruncateLog(Offset(45)),
    )
    assert follower.high_watermark == 40


def test_an_answer_asked_before_the_log_was_cut_and_filled_again_cuts_nothing() -> None:
    """Found by the exhaustive search: the late answer spoke of another record at that offset."""
    follower = a_follower(0)
    requested = fetched(follower, a_log(1, (0, 0)))
    follower.on_truncated(
        to_offset=Offset(0), removed_records=1, log_end_offset=Offset(0), last_epoch=LeaderEpoch(1)
    )
    refilled = a_log(1, (5, 0))
    follower.on_appended(Offset(1), Offset(1))
    assert follower.on_response(requested, an_response(diverging=(0, 0)), refilled, NOW_MS) == ()
    assert follower.high_watermark == 1


@pytest.mark.parametrize(
    ("diverging", "expected"),
    [
        ((2, 45), 45),  # the same epoch, the leader's ended earlier
        ((2, 60), 50),  # the same epoch, ours ended earlier
        ((3, 45), 50),  # an epoch that we do not have: to where the next lower one ends; ask again
        ((1, 20), 20),  # below our first epoch: its end is our first start
        ((9, 45), 45),  # above all of ours: the leader's end
    ],
)
def test_truncation_is_decided_by_epochs(diverging: tuple[int, int], expected: int) -> None:
    follower, log = a_follower(), a_log(80, (2, 20), (4, 50), (6, 70))
    response = an_response(diverging=diverging)
    assert follower.on_response(fetched(follower, log), response, log, NOW_MS) == (
        TruncateLog(Offset(expected)),
    )


def test_a_cut_to_below_where_the_leaders_log_starts_leaves_nothing() -> None:  # S32
    follower, log = a_follower(40), a_log(80, (2, 20), (4, 50))
    response = an_response(diverging=(4, 59), log_start=60)
    assert follower.on_response(fetched(follower, log), response, log, NOW_MS) == (
        RestartLogAt(Offset(60)),
    )


def test_a_cut_to_where_both_logs_start_leaves_no_epoch_to_ask_about_again() -> None:  # S32
    follower, log = a_follower(60), EpochHistory(((2, 20),), Offset(60), Offset(60))
    response = an_response(diverging=(2, 59), log_start=60)
    assert follower.on_response(fetched(follower, log), response, log, NOW_MS) == (
        RestartLogAt(Offset(60)),
    )


@pytest.mark.parametrize("is_isr_or_elr_member", [True, False])
def test_who_agrees_up_to_the_leaders_start_cuts_and_keeps_the_rest(
    is_isr_or_elr_member: bool,
) -> None:  # S32, I8
    follower, log = a_follower(40), a_log(80, (2, 20), (4, 50))
    follower.is_isr_or_elr_member = is_isr_or_elr_member
    response = an_response(diverging=(4, 60), log_start=60)
    assert follower.on_response(fetched(follower, log), response, log, NOW_MS) == (
        TruncateLog(Offset(60)),
    )


def test_a_replica_that_is_counted_on_waits_until_it_hears_that_it_is_not() -> None:  # S32, I6
    """Seed 41003624 of the simulator: its leader knew that it was not any more, and it did not. It
    cut the last record below the log start, which was committed."""
    follower, log = a_follower(60), a_log(80, (2, 20), (4, 50))
    follower.is_isr_or_elr_member = True
    response = an_response(diverging=(4, 59), log_start=60)
    assert follower.on_response(fetched(follower, log), response, log, NOW_MS) == ()
    assert follower.next_fetch(log, NOW_MS) is None
    assert follower.wake_at_ms == NOW_MS + FIRST_BACK_OFF_MS


def test_truncation_never_goes_past_the_own_end() -> None:  # S22: only the epoch is dropped
    follower, log = a_follower(), a_log(50, (2, 0), (7, 50))
    response = an_response(diverging=(6, 60))
    assert follower.on_response(fetched(follower, log), response, log, NOW_MS) == (
        TruncateLog(Offset(50)),
    )


def test_truncation_below_the_watermark_is_counted_as_committed_loss() -> None:
    follower = a_follower(40)
    follower.on_truncated(
        to_offset=Offset(35),
        removed_records=15,
        log_end_offset=Offset(35),
        last_epoch=LeaderEpoch(1),
    )
    assert follower.high_watermark == 35  # I1
    assert (follower.truncated_records, follower.committed_truncated_records) == (15, 5)


def test_what_a_cut_takes_with_it_of_a_batch_that_its_leader_has_too_is_no_loss() -> None:
    """Seed 41011 of the simulator: an empty run of compaction reached over the cut."""
    follower = a_follower(40)
    follower.on_truncated(
        to_offset=Offset(35),
        removed_records=20,
        log_end_offset=Offset(30),
        last_epoch=LeaderEpoch(1),
    )
    assert follower.high_watermark == 30  # I1
    assert (follower.truncated_records, follower.committed_truncated_records) == (20, 5)


def test_out_of_range_below_the_leaders_start_begins_the_log_anew() -> None:
    follower, log = a_follower(40), a_log(50, (2, 0))
    response = an_response(error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=70)
    assert follower.on_response(fetched(follower, log), response, log, NOW_MS) == (
        RestartLogAt(Offset(70)),
    )
    follower.on_restarted(Offset(70))
    assert follower.high_watermark == 70  # KAFKA-9491


def test_out_of_range_without_proof_cuts_nothing() -> None:
    follower, log = a_follower(40), a_log(50, (2, 0))
    response = an_response(error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=0)
    assert follower.on_response(fetched(follower, log), response, log, NOW_MS) == ()
    assert follower.next_fetch(log, NOW_MS) is None
    assert follower.wake_at_ms == NOW_MS + MAX_BACK_OFF_MS


def test_out_of_range_without_any_record_begins_where_the_leader_does() -> None:
    """It began anew at a former leader's log start; an election without proof brought one that
    ends before that."""
    follower, log = a_follower(100), EpochHistory((), Offset(100), Offset(100))
    response = an_response(error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=20)
    assert follower.on_response(fetched(follower, log), response, log, NOW_MS) == (
        RestartLogAt(Offset(20)),
    )


def test_an_answer_to_another_position_is_ignored() -> None:  # KAFKA-13266
    follower, log = a_follower(), a_log(50, (2, 0))
    fetch = fetched(follower, log)
    log.log_end_offset = Offset(60)
    response = an_response(high_watermark=55, has_records=True)
    assert follower.on_response(fetch, response, log, NOW_MS) == ()


def test_an_answer_of_another_leader_epoch_is_ignored() -> None:
    log = a_log(50, (2, 0))
    fetch = fetched(a_follower(leader_epoch=4), log)
    follower = a_follower(leader_epoch=5)
    response = an_response(high_watermark=50, has_records=True)
    assert follower.on_response(fetch, response, log, NOW_MS) == ()
    assert follower.high_watermark == 0


def test_a_leader_that_has_not_heard_yet_is_asked_again_soon_and_then_later() -> None:
    follower, log = a_follower(), a_log(50, (2, 0))
    waits = []
    now_ms = NOW_MS
    for _ in range(8):
        fetch = follower.next_fetch(log, now_ms)
        assert fetch is not None
        response = an_response(error=ErrorCode.UNKNOWN_LEADER_EPOCH)
        follower.on_response(fetch, response, log, now_ms)
        waits.append(follower.wake_at_ms - now_ms)
        now_ms = follower.wake_at_ms
    assert waits == [FIRST_BACK_OFF_MS, 40, 80, 160, 320, 640, 1000, 1000]


def test_a_good_answer_ends_the_series_of_back_offs() -> None:
    follower, log = a_follower(), a_log(50, (2, 0))
    fetch = fetched(follower, log)
    rejection = an_response(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    for response in (rejection, an_response(), rejection):
        follower.on_response(fetch, response, log, NOW_MS)
    assert follower.wake_at_ms == NOW_MS + FIRST_BACK_OFF_MS


@pytest.mark.parametrize("error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR])
def test_errors_that_time_alone_does_not_heal_wait_longest(error: ErrorCode) -> None:
    follower, log = a_follower(), a_log(50, (2, 0))
    follower.on_response(fetched(follower, log), an_response(error=error), log, NOW_MS)
    assert follower.wake_at_ms == NOW_MS + MAX_BACK_OFF_MS


def test_bad_records_are_asked_for_again_after_a_while() -> None:
    follower, log = a_follower(), a_log(50, (2, 0))
    follower.on_bad_records(NOW_MS)
    assert follower.next_fetch(log, NOW_MS + MAX_BACK_OFF_MS - 1) is None
    assert follower.next_fetch(log, NOW_MS + MAX_BACK_OFF_MS) is not None


def test_the_log_start_follows_the_leaders_and_never_passes_the_own_watermark() -> None:  # I1
    follower = a_follower(high_watermark=3)
    log = EpochHistory(((0, 0),), Offset(9))
    fetch = FollowerFetch(LeaderEpoch(5), Offset(9), LeaderEpoch(0))
    effects = follower.on_response(fetch, an_response(high_watermark=6, log_start=5), log, NOW_MS)
    assert effects == (HighWatermarkAdvanced(Offset(6)), FollowLogStart(Offset(5)))
    assert follower.log_start_at(Offset(5)) == 5
    assert follower.log_start_at(Offset(7)) == 6
    diverging = an_response(high_watermark=8, log_start=7, diverging=(0, 4))
    assert all(
        not isinstance(e, FollowLogStart)
        for e in follower.on_response(fetch, diverging, log, NOW_MS)
    )
