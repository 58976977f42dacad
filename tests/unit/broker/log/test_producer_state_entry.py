"""What a log shows of each producer: its last batches, the highest id, and when it is forgotten.

Sequences are checked, and truncations tried, in tests/unit/broker/replication/core.
"""

import pytest
from tidemark_broker.log.producer_state_entry import (
    NO_PRODUCER_ID,
    RETAINED_BATCHES,
    SEQUENCES,
    WINDOW_BATCHES,
    ProducerBatch,
    ProducerEntry,
    ProducerStateEntries,
    RecordedBatch,
    last_sequence_of,
    recorded_batch,
)
from tidemark_protocol.ids import FORGED_PRODUCER_IDS_FROM, Offset

from tests.support.log_fixtures import produced_batch


def one_record(number: int, *, epoch: int = 0) -> ProducerBatch:
    """The batch of one record at this offset, with this sequence."""
    return ProducerBatch(epoch, number, number, Offset(number), Offset(number), 1_000)


def entries_of(count: int, producer_id: int = 7) -> ProducerStateEntries:
    entries = ProducerStateEntries()
    entries.note(RecordedBatch(producer_id, one_record(number)) for number in range(count))
    return entries


def entry_of(entries: ProducerStateEntries, producer_id: int = 7) -> ProducerEntry:
    entry = entries.get(producer_id)
    assert entry is not None
    return entry


def test_batch_is_recorded_at_its_offset_in_the_log() -> None:
    header = produced_batch(5, 3, producer_id=7, epoch=2).header
    assert recorded_batch(header, Offset(40)) == RecordedBatch(
        7, ProducerBatch(2, 5, 7, Offset(40), Offset(42), 1_000)
    )


@pytest.mark.parametrize(
    ("first", "count", "last"),
    [(0, 1, 0), (SEQUENCES - 1, 1, SEQUENCES - 1), (SEQUENCES - 1, 3, 1)],
)
def test_last_sequence_wraps_to_0_and_counts_offsets(first: int, count: int, last: int) -> None:
    header = produced_batch(first, count).header
    assert last_sequence_of(header) == last
    assert last_sequence_of(header._replace(record_count=0)) == last  # compaction removed records


def test_more_batches_than_a_window_are_kept_and_the_oldest_are_dropped() -> None:
    assert not entry_of(entries_of(RETAINED_BATCHES)).has_removed_epochs
    entry = entry_of(entries_of(RETAINED_BATCHES + 2))
    assert entry.has_removed_epochs
    assert [batch.first_sequence for batch in entry.batches] == list(range(2, 12))
    assert [batch.first_sequence for batch in entry.window] == list(range(7, 12))
    assert (entry.producer_epoch, entry.last_sequence) == (0, 11)


def test_window_is_of_the_current_epoch_alone() -> None:
    entry = ProducerEntry([one_record(0), one_record(1), one_record(0, epoch=1)])
    assert entry.window == [one_record(0, epoch=1)]
    assert entry.producer_epoch == 1


@pytest.mark.parametrize(
    ("noted", "cut", "is_enough"),
    [
        (RETAINED_BATCHES, 1, True),  # all that was written is known
        (RETAINED_BATCHES + 1, 1 + WINDOW_BATCHES, True),
        (RETAINED_BATCHES + 1, WINDOW_BATCHES, False),
        (RETAINED_BATCHES + 1, RETAINED_BATCHES + 1, True),  # nothing is cut
    ],
)
def test_truncation_says_whether_each_window_is_still_complete(
    noted: int, cut: int, is_enough: bool
) -> None:
    entries = entries_of(noted)
    assert entries.tells_enough_at(Offset(cut)) is is_enough
    assert entries.truncate_to(Offset(cut)) is is_enough
    assert entry_of(entries).last_sequence == cut - 1


def test_truncation_of_all_batches_forgets_the_producer_and_not_its_id() -> None:
    entries = entries_of(1)
    assert entries.truncate_to(Offset(0))
    assert (len(entries), entries.ids, entries.highest_producer_id) == (0, frozenset(), 7)


def test_highest_id_is_of_ids_that_were_handed_out() -> None:  # S5
    entries = ProducerStateEntries()
    assert entries.highest_producer_id == NO_PRODUCER_ID
    last = FORGED_PRODUCER_IDS_FROM - 1
    for producer_id in (9, 3, FORGED_PRODUCER_IDS_FROM):
        entries.restore(producer_id, ProducerEntry([one_record(0)]))
    assert (entries.highest_producer_id, len(entries)) == (9, 3)
    entries.record_highest(last)
    entries.forget_all()
    assert (entries.highest_producer_id, len(entries)) == (last, 0)


def test_copy_does_not_change_with_its_original() -> None:
    entries = entries_of(RETAINED_BATCHES + 1)
    copied = entries.copy()
    entries.note([RecordedBatch(7, one_record(11)), RecordedBatch(9, one_record(12))])
    assert (entry_of(copied).last_sequence, copied.ids) == (10, frozenset({7}))
    assert entry_of(copied).has_removed_epochs
    assert copied.highest_producer_id == 7


def test_producer_expires_so_long_after_the_clock_was_read_and_a_batch_begins_again() -> None:
    entries = entries_of(1)
    assert entries.expire(1_000, expiration_ms=100) == 0
    assert entries.expire(1_099, expiration_ms=100) == 0
    entries.note([RecordedBatch(7, one_record(1))])
    assert entries.expire(1_100, expiration_ms=100) == 0
    assert entries.expire(1_199, expiration_ms=100) == 0
    assert entries.expire(1_200, expiration_ms=100) == 1
    assert len(entries) == 0


def test_truncation_behind_all_batches_takes_nothing_from_a_short_window() -> None:
    entries = ProducerStateEntries()
    entries.restore(7, ProducerEntry([one_record(3)], has_removed_epochs=True))
    assert entries.tells_enough_at(Offset(4))
    assert not entries.tells_enough_at(Offset(3))
