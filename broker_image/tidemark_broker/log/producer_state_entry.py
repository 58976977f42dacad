"""Keep what a log shows of each idempotent producer: the last batches of each producer id.

It is derived from batch headers in log order, like the leader epochs: leaders and followers record
the same batches, so they know the same. Sequences are checked elsewhere
(`replication/core/idempotence.py`). Neither retention nor compaction removes an entry, only expiry
(S24), counted from the first reading of the clock after an append or a load; compaction keeps the
last batch of each producer known here. More than the window is kept, so that truncating uncommitted
batches seldom needs a read of the log.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidemark_protocol.ids import FORGED_PRODUCER_IDS_FROM, Offset

from tidemark_broker.kafka_wire.records.record_batch import BatchHeader

WINDOW_BATCHES = 5  # Kafka's: a client has at most so many requests in flight
RETAINED_BATCHES = 2 * WINDOW_BATCHES
SEQUENCES = 2**31  # a sequence follows 2^31 - 1 with 0
NO_PRODUCER_ID = -1


class ProducerBatch(NamedTuple):
    """A batch in the log; sequences are of its first and last record."""

    producer_epoch: int
    first_sequence: int
    last_sequence: int
    first_offset: Offset
    last_offset: Offset
    timestamp_ms: int  # the batch's largest


class RecordedBatch(NamedTuple):
    producer_id: int
    batch: ProducerBatch


def recorded_batch(header: BatchHeader, first_offset: Offset) -> RecordedBatch:
    """Return the entry of a batch with a producer id, at its offset in the log."""
    return RecordedBatch(
        header.producer_id,
        ProducerBatch(
            header.producer_epoch,
            header.base_sequence,
            last_sequence_of(header),
            first_offset,
            Offset(first_offset + header.last_offset_delta),
            header.max_timestamp_ms,
        ),
    )


def last_sequence_of(header: BatchHeader) -> int:
    """Return the batch's last sequence, computed from offsets.

    Compaction removes records, but no sequences.
    """
    return (header.base_sequence + header.last_offset_delta) % SEQUENCES


class ProducerEntry:
    """One producer id; `batches` has the newest last and is empty only during a truncation."""

    __slots__ = ("batches", "has_removed_epochs", "since_ms")

    def __init__(
        self, batches: Iterable[ProducerBatch] = (), *, has_removed_epochs: bool = False
    ) -> None:
        self.batches = list(batches)
        self.has_removed_epochs = has_removed_epochs  # older batches were noted and dropped
        self.since_ms: int | None = None  # None: noted after the last look at the clock

    @property
    def producer_epoch(self) -> int:
        return self.batches[-1].producer_epoch

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence

    @property
    def window(self) -> list[ProducerBatch]:
        """Return the batches that a retry may repeat: the last five, of the current epoch only."""
        epoch = self.batches[-1].producer_epoch
        return [batch for batch in self.batches[-WINDOW_BATCHES:] if batch.producer_epoch == epoch]


class ProducerStateEntries:
    """All producers of one partition, as of its log end."""

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self.highest_producer_id = NO_PRODUCER_ID  # ever noted here, expired ones too (S5)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[int, ProducerEntry]]:
        return iter(self._entries.items())

    @property
    def ids(self) -> frozenset[int]:
        """Return all producer ids that have not expired."""
        return frozenset(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def note(self, recorded: Iterable[RecordedBatch]) -> None:
        """Record batches that are in the log now (S10: written in full), in its order."""
        entries = self._entries
        for producer_id, batch in recorded:
            entry = entries.get(producer_id)
            if entry is None:
                entry = entries[producer_id] = ProducerEntry()
                self.record_highest(producer_id)
            entry.batches.append(batch)
            entry.since_ms = None
            if len(entry.batches) > RETAINED_BATCHES:
                del entry.batches[0]
                entry.has_removed_epochs = True

    def restore(self, producer_id: int, entry: ProducerEntry) -> None:
        self._entries[producer_id] = entry
        self.record_highest(producer_id)

    def record_highest(self, producer_id: int) -> None:
        if producer_id < FORGED_PRODUCER_IDS_FROM:
            self.highest_producer_id = max(self.highest_producer_id, producer_id)

    def copy(self) -> "ProducerStateEntries":
        """Return a copy for a snapshot; batches recorded later do not appear in it."""
        copied = ProducerStateEntries()
        for producer_id, entry in self._entries.items():
            copied._entries[producer_id] = ProducerEntry(
                entry.batches, has_removed_epochs=entry.has_removed_epochs
            )
        copied.highest_producer_id = self.highest_producer_id
        return copied

    def forget_all(self) -> None:
        """Remove all producers: the log starts again at another offset."""
        self._entries.clear()

    def tells_enough_at(self, log_end_offset: Offset) -> bool:
        """Return whether each window stays complete if the log is truncated at this offset.

        A window is complete too if it has all that was written.
        """
        for entry in self._entries.values():
            rest = sum(batch.last_offset < log_end_offset for batch in entry.batches)
            is_cut = rest < len(entry.batches)
            if is_cut and entry.has_removed_epochs and rest < WINDOW_BATCHES:
                return False
        return True

    def truncate_to(self, log_end_offset: Offset) -> bool:
        """Remove batches at or above the offset; return whether the rest is enough.

        If not, the states must be rebuilt from a snapshot and the log.
        """
        is_whole = self.tells_enough_at(log_end_offset)
        for producer_id, entry in list(self._entries.items()):
            batches = entry.batches
            while batches and batches[-1].last_offset >= log_end_offset:
                batches.pop()
            if not batches:
                del self._entries[producer_id]
        return is_whole

    # guard: idle-producer-expires-late (S24)
    def expire(self, now_ms: int, *, expiration_ms: int) -> int:
        """Drop producers without a batch for `expiration_ms`; return how many."""
        expired = []
        for producer_id, entry in self._entries.items():
            if entry.since_ms is None:
                entry.since_ms = now_ms
            elif now_ms - entry.since_ms >= expiration_ms:
                expired.append(producer_id)
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)
