"""Track how far one log is durable: everything below its recovery point.

The loop appends and truncates, workers sync. A sync counts for what was in the log when it began,
and not at all if a truncation came in between. A new segment's directory entry and the leader
epochs are synced before the recovery point passes them (S11). A truncation needs a sync as an
append does: until then a lost kernel brings back what was truncated (S29).
"""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from tidemark_protocol.ids import Offset

from tidemark_broker.log.disk import Disk
from tidemark_broker.log.segment import Segment

NONE_YET = -1


class RecoveryPoint:
    def __init__(
        self, disk: Disk, directory: Path, recovery_point: Offset, is_synced: bool = False
    ) -> None:
        """Create the state of a log.

        What an earlier process left unsynced is unknown, so all of it needs a sync, except for a
        log that was just created (`is_synced`).
        """
        self.recovery_point = recovery_point
        self._disk = disk
        self._directory = directory
        self._syncing = threading.Lock()  # one at a time: one must not skip what another still does
        self._state = threading.Lock()  # of the four below and the recovery point
        self._failure: OSError | None = None
        self._truncations = 0
        # None of a former life's truncations is known to be synced, nor which file it cut. And what
        # lay past the recovery point may be gone without a trace: only a sync of the very file
        # hears that its write-back failed (S8). So the first sync of a life syncs all of them.
        self._synced_truncations = 0 if is_synced else NONE_YET
        self._owes_directory = not is_synced
        self._owes_epochs = not is_synced

    # guard: truncation-owes-sync (S29)
    def owes_truncation(self) -> bool:
        """Return whether a truncation may be unsynced.

        True until the first sync too: an earlier process may have truncated.
        """
        return self._synced_truncations != self._truncations

    # guard: new-file-names-are-synced (S11)
    def record_files_created(self) -> None:
        with self._state:
            self._owes_directory = True

    def record_epochs_written(self) -> None:
        with self._state:
            self._owes_epochs = True

    # guard: sync-before-truncation-is-stale (S11)
    def record_truncating(self, end_offset: Offset) -> None:
        """Lower the recovery point before files are truncated.

        A sync that runs must not advance it, and a checkpoint that runs must not write the old one.
        """
        with self._state:
            self._truncations += 1
            self.recovery_point = min(self.recovery_point, end_offset)

    # guard: sync-during-truncation-is-stale (S11)
    def record_truncated(self, end_offset: Offset) -> None:
        """Record that files were truncated; a sync that began in between must not count either."""
        with self._state:
            self._truncations += 1
            self._owes_directory = True  # whole segments may have gone
            self.recovery_point = min(self.recovery_point, end_offset)

    def _least_unsynced(self) -> int:
        """Return the lowest offset that may be unsynced.

        Truncations of this process end at the recovery point or past it, also if another segment
        was begun after it.
        """
        if self._synced_truncations == NONE_YET:
            return 0
        return self.recovery_point + (0 if self.owes_truncation() else 1)

    def sync(
        self,
        what_is_there: Callable[[], tuple[Offset, Sequence[Segment], Path | None]],
    ) -> None:
        """Sync the log and advance the recovery point. Called in a worker.

        `what_is_there` returns the log's end, its segments and its file of leader epochs if any, in
        this order because the loop appends meanwhile. Raises OSError.
        """
        with self._syncing:
            if self._failure is not None:
                raise self._failure  # the kernel reports it once (S8), so tell all that wait
            try:
                self._sync(what_is_there)
            except OSError as error:
                self._failure = error
                raise

    def _sync(
        self, what_is_there: Callable[[], tuple[Offset, Sequence[Segment], Path | None]]
    ) -> None:
        with self._state:
            truncations = self._truncations
            covered, segments, epochs_path = what_is_there()
            unsynced = [s for s in segments if s.next_offset >= self._least_unsynced()]
            owes_directory, self._owes_directory = self._owes_directory, False
            owes_epochs, self._owes_epochs = self._owes_epochs, False
        for segment in unsynced:
            segment.file.sync()
        if owes_epochs and epochs_path is not None:
            self._sync_epochs(epochs_path, truncations)
        if owes_directory or owes_epochs:
            self._disk.sync_directory(self._directory)
        with self._state:
            if self._truncations == truncations:
                self.recovery_point = max(self.recovery_point, covered)
                self._synced_truncations = truncations

    def _sync_epochs(self, path: Path, truncations: int) -> None:
        """Sync the file of leader epochs; only a log that starts again meanwhile may lack it."""
        try:
            self._disk.sync_file(path)
        except FileNotFoundError:
            with self._state:
                if self._truncations == truncations:
                    raise
