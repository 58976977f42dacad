"""Keep the producer states of one log in step with its segments, and write their snapshots.

The log calls it when it appends, rolls, truncates, flushes and closes; retention and compaction
need to call only `drop_snapshots`. I8 rests on the order: a batch is recorded after its write, and
removed with its truncation.
"""

import errno
from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_protocol.ids import Offset

from tidemark_broker.kafka_wire.records.errors import CorruptBatch
from tidemark_broker.log.disk import Disk
from tidemark_broker.log.leader_epoch_cache import EpochCheckpoint
from tidemark_broker.log.producer_snapshots import ProducerSnapshots
from tidemark_broker.log.producer_state_entry import (
    NO_PRODUCER_ID,
    ProducerStateEntries,
    recorded_batch,
)
from tidemark_broker.log.segment import Segment
from tidemark_broker.log.synced_prefix import SyncedPrefix


@dataclass(slots=True, eq=False)
class SnapshotTaken:
    """A snapshot of this log; another one may replace it at the same offset."""

    offset: Offset
    is_synced: bool = False  # said by a worker, maybe when it is gone


NO_SNAPSHOT_TAKEN = SnapshotTaken(Offset(-1), is_synced=True)


class ProducerStateManager:
    """The producer states of a log.

    Methods raise OSError, except for a full disk, which only costs a snapshot.
    """

    def __init__(self, disk: Disk, checkpoint: EpochCheckpoint) -> None:
        """Create empty states; `checkpoint` has the log's leader epochs, in the log's directory."""
        self.states = ProducerStateEntries()
        self._checkpoint = checkpoint
        self._snapshots = ProducerSnapshots(disk, checkpoint.directory)
        self._reported = NO_SNAPSHOT_TAKEN  # by the newest snapshot of this log that is there
        self._there: dict[
            Offset, SnapshotTaken
        ] = {}  # those that may be counted on once they are synced

    def restore(
        self,
        segments: Sequence[Segment],
        log_start_offset: Offset,
        part: SyncedPrefix | None = None,
    ) -> None:
        """Load the states as of the end of the segments.

        They come from the newest usable snapshot, or from a synced prefix of a segment, and the log
        after it. A segment that turns out corrupt is read as far as it goes: it is not served, and
        the replica is soon replaced.
        """
        highest_producer_id = self.states.highest_producer_id
        self.states, offset = self._snapshots.load_newest(
            self._checkpoint.epochs,
            first_offset=segments[0].base_offset,
            log_start_offset=log_start_offset,
            log_end_offset=segments[-1].next_offset,
        )
        self._reported, self._there = NO_SNAPSHOT_TAKEN, {}
        if len(self.states):
            self._record_snapshot_taken(
                offset
            )  # it need not be synced: a flush syncs the newest of then alone
        if part is not None and part.next_offset >= offset:
            highest_producer_id = max(highest_producer_id, self.states.highest_producer_id)
            self.states, offset = part.producers, part.next_offset
        self.states.record_highest(highest_producer_id)
        for segment in segments:
            if segment.next_offset > offset:
                try:
                    self.states.note(
                        recorded_batch(header, header.base_offset)
                        for header in segment.headers_from(offset)
                        if header.producer_id > NO_PRODUCER_ID
                    )
                except CorruptBatch:
                    continue
        self.drop_snapshots(segments)

    # guard: producers-rebuilt-from-checked-headers (I10)
    def checked(self, end: tuple[Segment, int, Offset]) -> tuple[Segment, int, Offset]:
        """Verify what stays of the segment that is to be truncated, if `cut` will read it.

        `end` is where the log is to be truncated, as `SegmentList.end_before` returns it. A flipped
        number in a header would be believed, and a retry appended again (I8). Raises CorruptBatch,
        OSError.
        """
        segment, position, log_end_offset = end
        if not self.states.tells_enough_at(log_end_offset):
            valid, valid_end = segment.valid_prefix(log_end_offset)
            if valid != position:
                raise CorruptBatch(valid, f"sound batches to {log_end_offset}", f"to {valid_end}")
        return end

    def cut(self, segments: Sequence[Segment], log_start_offset: Offset) -> None:
        """Remove the batches of a truncated log: their sequences are free again."""
        log_end_offset = segments[-1].next_offset
        self._snapshots.remove_above(log_end_offset)
        self._there = {at: reported for at, reported in self._there.items() if at <= log_end_offset}
        if self._reported.offset > log_end_offset:
            self._reported = NO_SNAPSHOT_TAKEN
        if not self.states.truncate_to(log_end_offset):
            self.restore(segments, log_start_offset)

    def forget_all(self) -> None:
        """Remove all states and snapshots: the log starts again at another offset."""
        self._snapshots.remove_above(Offset(-1))
        self._reported, self._there = NO_SNAPSHOT_TAKEN, {}
        self.states.forget_all()

    def write_snapshot(self, segments: Sequence[Segment], disk: Disk | None = None) -> None:
        """Write a snapshot at the log's end, for a roll or a clean shutdown; `sync` syncs it.

        `disk` is another way to the same directory.
        """
        end_offset = segments[-1].next_offset
        if end_offset == 0:
            return
        epochs = self._checkpoint.epochs
        if self._snapshots.write_if_possible(self.states, end_offset, epochs, disk):
            self._record_snapshot_taken(end_offset)
        self.drop_snapshots(segments)

    def _record_snapshot_taken(self, offset: Offset) -> None:
        self._reported = self._there[offset] = SnapshotTaken(offset)

    # guard: retention-keeps-producer-batches (S24)
    def may_lose_below(
        self, offset: Offset, segments: Sequence[Segment], small_writes: Disk
    ) -> bool:
        """Return whether a start still knows all producers without the records below `offset`.

        They must be in a synced snapshot or in batches that stay: else a retry is taken for a first
        batch after the next start (S24, I8). If they are not, the snapshot is written, on the disk
        that accepts small writes when the volume is full. Raises OSError, ENOSPC if that has no
        room either.
        """
        if self._synced_at >= offset:
            return True
        if all(entry.window[0].first_offset >= offset for _, entry in self.states):
            return True
        if self._reported.offset < offset:
            self.write_snapshot(segments, small_writes)
            if self._reported.offset < offset:
                raise OSError(errno.ENOSPC, "no room for a snapshot of the producers")
        return False

    # guard: producer-snapshot-is-synced (S24)
    @property
    def _synced_at(self) -> Offset:
        synced = (at for at, reported in self._there.items() if reported.is_synced)
        return max(synced, default=NO_SNAPSHOT_TAKEN.offset)

    def drop_snapshots(self, segments: Sequence[Segment]) -> None:
        """Remove snapshots of segments that are gone; their producers expire, and not before (S24).

        The newest synced one stays, because a log that rolls faster than it is flushed has no newer
        one. So does the one that a start read, on which an earlier process may have relied, until a
        newer one is synced.
        """
        kept = {*(segment.base_offset for segment in segments), self._reported.offset}
        if self._there:
            kept.add(max(self._synced_at, min(self._there)))
        self._snapshots.prune(kept)
        self._there = {at: reported for at, reported in self._there.items() if at in kept}

    def sync(self) -> SnapshotTaken | None:
        """Sync the newest snapshot in a worker; return what `record_synced` needs, or None.

        `record_synced` is called once the directory is synced too.
        """
        reported = self._reported
        if reported.is_synced:
            return None
        self._snapshots.sync(reported.offset)
        return reported

    def record_synced(self, reported: SnapshotTaken | None) -> None:
        if reported is not None:
            reported.is_synced = True
