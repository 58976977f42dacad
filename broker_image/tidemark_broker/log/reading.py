"""Find batches in a log and return the bytes that may be served: whole, valid batches.

Each fetch passes here: one look at each header, one CRC (40 us a megabyte), no copy but the last
slice. The base offset and the leader epoch are outside the CRC, so they are checked against the
neighbours and the epoch cache. An invalid batch is never served (I10): followers would reject it,
but consumers of some clients do not check.
"""

from errno import EIO

from tidemark_protocol.ids import Offset
from tidemark_protocol.record_batch_writer import HEADER_BYTES

from tidemark_broker.kafka_wire.records.errors import CorruptBatch, UnreadableBatch
from tidemark_broker.kafka_wire.records.record_batch import BatchHeader, check_crc, read_header
from tidemark_broker.log.leader_epoch_cache import LeaderEpochs
from tidemark_broker.log.segment import Segment
from tidemark_broker.log.unreadable_sectors import read_ahead, unreadable_is_corrupt

_MAX_HINTS = 64
_CAREFUL_READS = 16
_REJECTIONS_BEFORE_A_TRY = 64  # of a batch that could not be read: it may have passed


class LogReader:
    """The reader of a log.

    It remembers where the last reads ended, because readers continue there, and where the disk
    failed: a drive may take seconds to report that, and this is the broker's loop.
    """

    def __init__(self) -> None:
        self._hints: dict[Offset, tuple[Segment, int]] = {}
        self._careful_reads = 0  # to come: of one batch, as more could not be read at once
        self._unreadable: dict[tuple[Segment, int], int] = {}  # how often it may be refused yet

    def read(
        self,
        segment: Segment,
        offset: Offset,
        *,
        max_bytes: int,
        end_offset: Offset,
        epochs: LeaderEpochs,
    ) -> bytes:
        """Read as `PartitionLog.read` does, from the segment that holds `offset`.

        Raises CorruptBatch, OSError.
        """
        # guard: unreadable-sector-is-damage (S9)
        with unreadable_is_corrupt():
            position, first_offset = self._locate(segment, offset)
            data = self._read_at_least_one_batch(segment, position, max_bytes)
        size_bytes, next_offset = servable_bytes(
            data,
            position=position,
            first_offset=first_offset,
            end_offset=end_offset,
            epochs=epochs,
        )
        if len(self._hints) >= _MAX_HINTS:
            self._hints.clear()
        self._hints[next_offset] = (segment, position + size_bytes)
        return data if size_bytes == len(data) else data[:size_bytes]

    def _locate(self, segment: Segment, offset: Offset) -> tuple[int, Offset]:
        """Return position and base offset of the batch with `offset`.

        Where an earlier read ended is remembered.
        """
        hint = self._hints.get(offset)
        if hint is not None and hint[0] is segment:
            return hint[1], offset
        position, header = segment.find(offset)
        self._hints[header.base_offset] = (segment, position)
        return position, header.base_offset

    def forget_places(self) -> None:
        """Forget positions: the log was truncated or a segment replaced."""
        self._hints.clear()
        self._careful_reads = 0
        self._unreadable.clear()

    def _read_at_least_one_batch(self, segment: Segment, position: int, max_bytes: int) -> bytes:
        if (segment, position) not in self._unreadable:
            return self._read_batches(segment, position, max_bytes)
        self._unreadable[segment, position] -= 1
        if self._unreadable[segment, position] > 0:
            raise UnreadableBatch(OSError(EIO, f"at byte {position}, and not asked for again yet"))
        del self._unreadable[segment, position]
        return self._read_batches(segment, position, max_bytes)

    def _read_batches(self, segment: Segment, position: int, max_bytes: int) -> bytes:
        available = segment.size_bytes - position
        wanted = min(max(0 if self._careful_reads else max_bytes, HEADER_BYTES), available)
        self._careful_reads = max(0, self._careful_reads - 1)
        try:
            data = read_ahead(segment.file, position, wanted)
            if len(data) < wanted:
                self._careful_reads = _CAREFUL_READS
            size_bytes = _size_of_first(data, position, available)
            if size_bytes > len(data):
                data = segment.file.read_at(position, size_bytes)
        except OSError:
            self._unreadable[segment, position] = _REJECTIONS_BEFORE_A_TRY
            raise
        return data


def _size_of_first(data: bytes, position: int, available: int) -> int:
    try:
        size_bytes = read_header(data).size_bytes
    except CorruptBatch as error:
        raise error.moved_to(position) from error
    if size_bytes > available:
        raise CorruptBatch(position, f"at most {available} bytes", f"{size_bytes} bytes")
    return size_bytes


def servable_bytes(
    data: bytes,
    *,
    position: int,
    first_offset: Offset,
    end_offset: Offset,
    epochs: LeaderEpochs,
) -> tuple[int, Offset]:
    """Return how many bytes of `data` may be served, and the offset after them.

    `data` begins with the batch based at `first_offset`. The result ends before a batch that is
    incomplete, reaches `end_offset`, or is corrupt. Raises CorruptBatch, with the position in the
    file, if that is the first batch.
    """
    end = 0
    expected = first_offset
    view = memoryview(data)
    while end + HEADER_BYTES <= len(data):
        try:
            header = read_header(data, end)
            _check_place(header, position + end, expected, epochs)
            next_end = end + header.size_bytes
            if next_end > len(data):
                break
            if header.last_offset >= end_offset:
                if end == 0:
                    # Nothing to serve, or a count that a flipped bit made too large: without an
                    # error a follower would ask for it again and again, at once.
                    # guard: unserved-batch-is-checked (I10)
                    check_crc(header, view[:next_end], position)
                break
            # guard: served-batches-are-checked (I10)
            check_crc(header, view[end:next_end], position + end)
        except CorruptBatch:
            if end == 0:
                raise
            break
        end = next_end
        expected = header.next_offset
    return end, expected


def _check_place(
    header: BatchHeader, position: int, expected: Offset, epochs: LeaderEpochs
) -> None:
    if header.base_offset != expected:
        raise CorruptBatch(position, f"base offset {expected}", f"{header.base_offset}")
    epoch = epochs.epoch_at(expected)
    if header.partition_leader_epoch != epoch:
        found = f"{header.partition_leader_epoch}"
        raise CorruptBatch(position, f"leader epoch {epoch}", found)
