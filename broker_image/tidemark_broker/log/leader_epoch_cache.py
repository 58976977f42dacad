"""Keep the leader epochs of one log, in memory and in `leader-epoch-checkpoint`.

`LeaderEpochs` has the start offset of each leader epoch: Kafka's LeaderEpochFileCache without the
file. Epochs and start offsets both rise strictly. An entry may have no batches: a new leader
assigns its epoch at its log end before it appends (KAFKA-7415), and a follower's truncation asks by
it.

`EpochCheckpoint` writes the file by rename before the batches of a new epoch, without a sync: a
thousand partitions that change leader together would wait for a thousand syncs. A killed process
loses nothing by that; a lost kernel's epochs are derived from the batches; and `PartitionLog.flush`
syncs the file before the recovery point passes an epoch's batches. If a write failed, the next
append repeats it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path

from tidemark_protocol.ids import NO_EPOCH, LeaderEpoch, Offset

from tidemark_broker.log import checkpoint_formats
from tidemark_broker.log.disk import Disk
from tidemark_broker.log.errors import NO_ROOM_ERRORS


class LeaderEpochs:
    def __init__(self, entries: Iterable[tuple[LeaderEpoch, Offset]] = ()) -> None:
        self._epochs: list[LeaderEpoch] = []
        self._starts: list[Offset] = []
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> tuple[tuple[LeaderEpoch, Offset], ...]:
        return tuple(zip(self._epochs, self._starts, strict=True))

    @property
    def latest_epoch(self) -> LeaderEpoch:
        return self._epochs[-1] if self._epochs else LeaderEpoch(NO_EPOCH)

    @property
    def first_epoch(self) -> LeaderEpoch:
        """Return the first known epoch.

        Retention drops the epochs before the last record that it removed.
        """
        return self._epochs[0] if self._epochs else LeaderEpoch(NO_EPOCH)

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Add an epoch and drop entries that contradict it; return whether anything changed."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} at offset {start_offset}: expected both from 0 on")
        known = bisect_left(self._epochs, epoch)
        is_known = known < len(self._epochs) and self._epochs[known] == epoch
        if is_known and self._starts[known] <= start_offset:
            # Kafka would begin the epoch anew here; but batches before may carry it (I5).
            return self._truncate(known + 1)
        self._truncate(min(known, bisect_left(self._starts, start_offset)))
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def may_lead_in(self, epoch: LeaderEpoch, start_offset: Offset, log_end_offset: Offset) -> bool:
        """Return whether the epoch may begin at this offset without contradicting batches (I5)."""
        known_start = self.start_offset_of(epoch)
        if known_start is None:
            return epoch > self.latest_epoch and start_offset == log_end_offset
        return epoch == self.latest_epoch and start_offset >= known_start

    def end_offset_for(
        self, epoch: LeaderEpoch, log_end_offset: Offset
    ) -> tuple[LeaderEpoch, Offset] | None:
        """Return the largest known epoch <= `epoch` and its end offset, or None if it is unknown.

        For an epoch below the first known one it is where that begins. Kafka: endOffsetFor.
        """
        if epoch < 0 or not self._epochs or epoch > self._epochs[-1]:
            return None
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        next_higher = bisect_right(self._epochs, epoch)
        if next_higher == 0:
            return epoch, self._starts[0]
        return self._epochs[next_higher - 1], self._starts[next_higher]

    def start_offset_of(self, epoch: LeaderEpoch) -> Offset | None:
        index = bisect_left(self._epochs, epoch)
        if index < len(self._epochs) and self._epochs[index] == epoch:
            return self._starts[index]
        return None

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """Return the epoch that a batch at `offset` must carry, or -1 if no entry covers it."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else LeaderEpoch(NO_EPOCH)

    def truncate_from_end(self, end_offset: Offset) -> bool:
        """Drop the entries that start at or after `end_offset`; return whether there were any."""
        return self._truncate(bisect_left(self._starts, end_offset))

    # guard: retention-keeps-last-epoch (S32)
    def truncate_from_start(self, start_offset: Offset) -> bool:
        """Drop the entries below `start_offset`; return whether anything changed.

        The epoch of the last record before it stays, moved to that record: a log that ends there is
        asked for it. Kafka keeps only what covers `start_offset`.
        """
        last_before = Offset(start_offset - 1)
        first = bisect_right(self._starts, last_before) - 1
        if first < 0 or (first == 0 and self._starts[0] == last_before):
            return False
        del self._epochs[:first], self._starts[:first]
        self._starts[0] = last_before
        return True

    def _truncate(self, keep: int) -> bool:
        if keep >= len(self._epochs):
            return False
        del self._epochs[keep:], self._starts[keep:]
        return True


class EpochCheckpoint:
    def __init__(self, disk: Disk, directory: Path) -> None:
        """Read the file; `is_known` is False if it is missing, empty or unreadable."""
        self.directory = directory
        self._disk = disk
        try:
            entries = checkpoint_formats.decode_epochs(disk.read(self.path))
        except (FileNotFoundError, checkpoint_formats.MalformedFile):
            entries = []
        self.is_known = bool(entries)
        self.epochs = LeaderEpochs(entries)
        self.exists = self.is_known
        self.is_written = self.is_known
        self._stored = self.epochs.entries

    @property
    def path(self) -> Path:
        """Made when it is asked for: a path that is kept takes 300 bytes in each replica."""
        return self.directory / checkpoint_formats.LEADER_EPOCHS

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Assign an epoch in memory only."""
        if self.epochs.assign(epoch, start_offset):
            self.is_written = False

    def take_up(
        self, new_epochs: Sequence[tuple[LeaderEpoch, Offset]], first_offset: Offset
    ) -> tuple[tuple[LeaderEpoch, Offset], ...] | None:
        """Add, in memory only, the epochs of batches that are about to be appended.

        Returns the earlier entries for `restore`, or None if the batches bring no new epoch.
        """
        epochs = self.epochs
        known_epoch = epochs.epoch_at(first_offset)
        if known_epoch == epochs.latest_epoch and all(e == known_epoch for e, _ in new_epochs):
            return None
        before = epochs.entries
        for epoch, start_offset in new_epochs:
            self.assign(epoch, start_offset)
        return before

    def truncate_from_end(self, end_offset: Offset) -> None:
        if self.epochs.truncate_from_end(end_offset):
            self.is_written = False

    # guard: restarted-log-drops-epoch-file (I5)
    def forget_all(self) -> None:
        """Remove all epochs and the file, for a log that is about to start again at another offset.

        A start would apply the last epoch in the file to all offsets up to there, and to write an
        empty file there may be no space or no time. Raises OSError.
        """
        self.epochs.truncate_from_end(Offset(0))
        self._disk.remove(self.path)
        self._stored = ()
        self.exists, self.is_written = False, True

    def restore(self, entries: tuple[tuple[LeaderEpoch, Offset], ...]) -> None:
        """Restore earlier entries (S10); the next write updates the file."""
        if self.epochs.entries != entries:
            self.epochs = LeaderEpochs(entries)
            self.is_written = False

    def write(self) -> bool:
        """Write the file if it is out of date; return whether it needs a sync.

        Raises OSError.
        """
        if self.is_written:
            return False
        entries = self.epochs.entries
        self.is_written = entries == self._stored
        if self.is_written:
            return False
        data = checkpoint_formats.encode_epochs(entries)
        self._disk.write_atomically(self.path, data, durable=False)
        self._stored = entries
        self.is_written = self.exists = True
        return True

    def write_if_possible(self) -> bool:
        """Write the file as `write` does; a full disk is no error.

        It must stop neither a start nor a truncation; appends come after `write`.
        """
        try:
            return self.write()
        except OSError as error:
            if error.errno not in NO_ROOM_ERRORS:
                raise
            return False
