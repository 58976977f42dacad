"""What a leader answers to an idempotent producer's batch, rule by rule."""

import pytest
from tidemark_broker.kafka_wire.records.record_batch import BatchHeader
from tidemark_broker.log.producer_state_entry import SEQUENCES, ProducerStateEntries, recorded_batch
from tidemark_broker.replication.core import idempotence
from tidemark_broker.replication.core.idempotence import (
    Duplicate,
    RejectBatch,
    check_sequence,
    malformed_producer,
)
from tidemark_protocol.error_codes import ErrorCode
from tidemark_protocol.ids import LeaderEpoch, Offset

P = 7
TIMESTAMP_MS = 1
LAST_SEQUENCE = SEQUENCES - 1


def header(
    sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = P, attributes: int = 0
) -> BatchHeader:
    return BatchHeader(
        Offset(0), 100, LeaderEpoch(-1), 0, attributes, count - 1, 1, TIMESTAMP_MS,
        producer_id, epoch,
        sequence, count,
    )  # fmt: skip


def producers_with(*headers: BatchHeader) -> ProducerStateEntries:
    """As if these had been appended from offset 0 on."""
    states, offset = ProducerStateEntries(), 0
    for appended in headers:
        states.note([recorded_batch(appended, Offset(offset))])
        offset += appended.record_count
    return states


def rejection(found: object) -> ErrorCode:
    assert isinstance(found, RejectBatch), found
    return found.error


def test_a_new_producer_begins_at_sequence_0() -> None:
    assert check_sequence(header(0), ProducerStateEntries()) is None


def test_an_unknown_producer_may_not_begin_elsewhere() -> None:
    found = check_sequence(header(3), ProducerStateEntries())
    assert rejection(found) is ErrorCode.UNKNOWN_PRODUCER_ID


def test_the_next_sequence_follows_the_last_record() -> None:
    states = producers_with(header(0, 10))
    assert check_sequence(header(10, 5), states) is None


@pytest.mark.parametrize("sequence", [9, 11, 1000])
def test_neither_gap_nor_overlap_is_taken(sequence: int) -> None:
    states = producers_with(header(0, 10))
    found = check_sequence(header(sequence, 5), states)
    assert rejection(found) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("back", range(5))
def test_any_of_the_last_five_batches_is_a_duplicate_at_its_own_offset(back: int) -> None:
    sent = [header(2 * number, 2) for number in range(8)]
    found = check_sequence(sent[7 - back], producers_with(*sent))
    assert found == Duplicate(Offset(14 - 2 * back), Offset(16 - 2 * back), TIMESTAMP_MS)


def test_a_batch_before_the_window_is_not_vouched_for() -> None:
    sent = [header(2 * number, 2) for number in range(8)]
    found = check_sequence(sent[2], producers_with(*sent))
    assert rejection(found) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_retry_cut_another_way_is_no_duplicate() -> None:
    states = producers_with(header(0, 10))
    assert rejection(check_sequence(header(0, 9), states)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_0_between_batches() -> None:
    states = producers_with(header(LAST_SEQUENCE - 1, 2))
    assert check_sequence(header(0, 3), states) is None


def test_sequences_wrap_to_0_within_a_batch() -> None:
    across = header(LAST_SEQUENCE, 3)
    states = producers_with(header(LAST_SEQUENCE - 1), across)
    assert check_sequence(header(2), states) is None
    assert check_sequence(across, states) == Duplicate(Offset(1), Offset(4), TIMESTAMP_MS)


def test_a_lower_epoch_is_fenced() -> None:
    states = producers_with(header(0, 5, epoch=3))
    found = check_sequence(header(5, epoch=2), states)
    assert rejection(found) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_even_a_duplicate_of_a_lower_epoch_is_fenced() -> None:
    states = producers_with(header(0, epoch=2), header(0, epoch=3))
    found = check_sequence(header(0, epoch=2), states)
    assert rejection(found) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_higher_epoch_begins_at_sequence_0() -> None:
    states = producers_with(header(0, 5, epoch=3))
    assert check_sequence(header(0, 5, epoch=4), states) is None
    found = check_sequence(header(5, epoch=4), states)
    assert rejection(found) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epochs_batch_is_no_duplicate_of_the_last_epochs() -> None:
    states = producers_with(header(0, 5, epoch=3), header(0, 5, epoch=4))
    assert check_sequence(header(0, 5, epoch=4), states) == Duplicate(
        Offset(5), Offset(10), TIMESTAMP_MS
    )


def test_producers_do_not_see_each_other() -> None:
    states = producers_with(header(0, 5))
    assert check_sequence(header(0, producer_id=8), states) is None


def test_a_full_partition_takes_no_new_producer_but_goes_on_with_the_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(idempotence, "MAX_PRODUCERS", 2)
    states = producers_with(header(0), header(0, producer_id=8))
    found = check_sequence(header(0, producer_id=9), states)
    assert rejection(found) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert check_sequence(header(1), states) is None


@pytest.mark.parametrize(
    "broken",
    [header(-1), header(0, epoch=-1), header(0, producer_id=-2), header(0, attributes=0x10)],
    ids=["no sequence", "no epoch", "negative id", "transactional"],
)
def test_producer_fields_that_cannot_be_are_named(broken: BatchHeader) -> None:
    assert malformed_producer(broken)


@pytest.mark.parametrize(("epoch", "sequence"), [(-1, -1), (0, 0), (-1, 0)])
def test_without_a_producer_id_the_other_fields_say_nothing(epoch: int, sequence: int) -> None:
    assert malformed_producer(header(sequence, epoch=epoch, producer_id=-1)) == ""


def test_an_entry_expires_so_long_after_the_first_look_at_the_clock() -> None:
    """S24: record timestamps do not matter."""
    states = producers_with(header(0))
    assert states.expire(1_000, expiration_ms=500) == 0
    assert states.expire(1_499, expiration_ms=500) == 0
    states.note([recorded_batch(header(1), Offset(1))])
    assert states.expire(1_500, expiration_ms=500) == 0
    assert states.expire(1_999, expiration_ms=500) == 0
    assert states.expire(2_000, expiration_ms=500) == 1
    assert states.get(P) is None
    assert rejection(check_sequence(header(2), states)) is ErrorCode.UNKNOWN_PRODUCER_ID


def test_the_highest_producer_id_is_kept_when_its_entry_expires() -> None:
    """S5: the batches are still in the log."""
    states = producers_with(header(0, producer_id=41), header(0, producer_id=12))
    states.expire(0, expiration_ms=1)
    states.expire(1, expiration_ms=1)
    assert (len(states), states.highest_producer_id) == (0, 41)


def test_a_truncation_frees_the_sequences_of_what_it_cut() -> None:
    states = producers_with(header(0, 2), header(2, 2), header(4, 2))
    assert states.truncate_to(Offset(4))
    assert check_sequence(header(4, 2), states) is None
    assert check_sequence(header(2, 2), states) == Duplicate(Offset(2), Offset(4), TIMESTAMP_MS)


def test_a_truncation_of_all_its_batches_makes_a_producer_unknown() -> None:
    states = producers_with(header(0, 2))
    assert states.truncate_to(Offset(0))
    assert states.get(P) is None


def test_a_truncation_restores_the_epoch_before() -> None:
    states = producers_with(header(0, 2, epoch=1), header(0, 2, epoch=2))
    assert states.truncate_to(Offset(2))
    assert check_sequence(header(2, epoch=1), states) is None


def test_a_truncation_beyond_what_is_kept_asks_for_the_log() -> None:
    states = producers_with(*(header(number) for number in range(12)))
    assert states.truncate_to(Offset(7))  # five are left
    assert not states.truncate_to(Offset(6))
