"""The leader epochs of one log together with their file, `leader-epoch-checkpoint`.

Written by rename before the batches of a new epoch, and not synced then: a thousand partitions that
change leader at once would wait for a thousand syncs. A killed process loses nothing by that, a
lost kernel's epochs are derived from the batches, and `PartitionLog.flush` syncs the file before
the recovery point passes an epoch's batches. Where a write failed, the next append repeats it.
"""

import errno
from collections.abc import Sequence
from pathlib import Path

from tidemark_protocol.ids import LeaderEpoch, Offset

from tidemark_broker.storage import checkpoints
from tidemark_broker.storage.disk import Disk
from tidemark_broker.storage.leader_epochs import LeaderEpochs

DISK_FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT})
# Nothing was written, and later it may be: no disk failed. The last two: no descriptor is left.
NO_ROOM_ERRORS = DISK_FULL_ERRORS | {errno.EMFILE, errno.ENFILE}


class EpochCheckpoint:
    def __init__(self, disk: Disk, directory: Path) -> None:
        """Reads the file. `is_known` is False where it is missing, empty or unreadable."""
        self.path = directory / checkpoints.LEADER_EPOCHS
        self._disk = disk
        try:
            entries = checkpoints.decode_epochs(disk.read(self.path))
        except (FileNotFoundError, checkpoints.MalformedFile):
            entries = []
        self.is_known = bool(entries)
        self.epochs = LeaderEpochs(entries)
        self.exists = self.is_known
        self.is_written = self.is_known
        self._stored = self.epochs.entries

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """In memory only."""
        if self.epochs.assign(epoch, start_offset):
            self.is_written = False

    def take_up(
        self, new_epochs: Sequence[tuple[LeaderEpoch, Offset]], first_offset: Offset
    ) -> tuple[tuple[LeaderEpoch, Offset], ...] | None:
        """In memory only: of batches to be appended there, as a leader stored them. What was
        before, for `restore`; None if they bring nothing new."""
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
        """Of a log that is to begin anew elsewhere: its file goes first. A start would believe the
        last epoch in it of all up to there, and for an empty one there may be no space, or no
        life. Raises OSError."""
        self.epochs.truncate_from_end(Offset(0))
        self._disk.remove(self.path)
        self._stored = ()
        self.exists, self.is_written = False, True

    def restore(self, entries: tuple[tuple[LeaderEpoch, Offset], ...]) -> None:
        """S10: back to what was; the file follows with the next write."""
        if self.epochs.entries != entries:
            self.epochs = LeaderEpochs(entries)
            self.is_written = False

    def write(self) -> bool:
        """True if the file was written: it needs a sync then. Raises OSError."""
        if self.is_written:
            return False
        entries = self.epochs.entries
        self.is_written = entries == self._stored
        if self.is_written:
            return False
        data = checkpoints.encode_epochs(entries)
        self._disk.write_atomically(self.path, data, durable=False)
        self._stored = entries
        self.is_written = self.exists = True
        return True

    def write_if_possible(self) -> bool:
        """A full disk must stop neither a start nor a truncation; appends come after `write`."""
        try:
            return self.write()
        except OSError as error:
            if error.errno not in NO_ROOM_ERRORS:
                raise
            return False
