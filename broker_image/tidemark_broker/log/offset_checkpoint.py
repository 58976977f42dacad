"""Store offsets of all logs in one file that must never be ahead of the logs as they are now.

Recovery points are how far each log is durable, as of the last checkpoint; starts trust what lies
below (`recovery`). High watermarks are what was committed; a start believes them as far as the log
goes. The others are log starts, and how far logs were compacted. None may lie above a truncation
that new batches follow: these would be taken for synced, committed, deleted or compacted (S31).
They rise with a checkpoint and fall before the truncation itself, because the sync after it may be
the one that fails (S8). All files are written under one lock of the caller's.

A lowered file is synced, because a power loss may keep it without the log, or the log without it.
That happens on the loop, and rarely: only an unclean election truncates below these offsets.
Recovery points are not synced: other truncations go below them too, and a checkpoint that syncs
follows immediately.
"""

import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from tidemark_protocol.ids import Offset

from tidemark_broker.log import checkpoint_formats
from tidemark_broker.log.checkpoint_formats import TopicPartition
from tidemark_broker.log.disk import Disk
from tidemark_broker.log.errors import NO_ROOM_ERRORS


class OffsetCheckpoint:
    """One checkpoint file. Methods raise OSError."""

    def __init__(self, disk: Disk, path: Path, lock: threading.RLock) -> None:
        self._disk = disk
        self._path = path
        self._lock = lock
        self._lowers_durably = path.name != checkpoint_formats.RECOVERY_POINTS
        self._stored: dict[TopicPartition, Offset] = {}
        self._is_durable = False  # the file, as it is stored
        self.truncations = 0  # of any log, since the file was read

    def read(self) -> Mapping[TopicPartition, Offset]:
        """Return the offsets; a log that is not named has none, and nothing of it is trusted."""
        try:
            self._stored = checkpoint_formats.decode_offsets(self._disk.read(self._path))
        except (FileNotFoundError, checkpoint_formats.MalformedFile):
            self._stored = {}
        return dict(self._stored)

    @property
    def stored(self) -> Mapping[TopicPartition, Offset]:
        """Return what the file says, as far as this process knows."""
        return self._stored

    def write(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Write the offsets, durable before it returns; do nothing if the file has them.

        Called in a worker.
        """
        with self._lock:
            if not self._is_durable or offsets != self._stored:
                self._write(offsets, durable=True)

    def drop(self, dropped: Collection[TopicPartition]) -> None:
        """Remove logs from the file, durable before it returns."""
        with self._lock:
            if any(at in self._stored for at in dropped):
                gone = set(dropped)
                rest = {at: offset for at, offset in self._stored.items() if at not in gone}
                self._write(rest, durable=True)

    def lower(self, ends: Mapping[TopicPartition, Offset]) -> None:
        """Lower offsets to `ends`, before those logs are truncated there or continue from there.

        If there is no space for the file it is removed: nothing of any log is trusted then.
        """
        with self._lock:
            self.truncations += 1
            lowered = {at: end for at, end in ends.items() if self._stored.get(at, 0) > end}
            if not lowered:
                return
            try:
                self._write({**self._stored, **lowered}, durable=self._lowers_durably)
            except OSError as error:
                if error.errno not in NO_ROOM_ERRORS:
                    raise
                self._remove()

    def _remove(self) -> None:
        self._disk.remove(self._path)
        if self._lowers_durably:
            self._disk.sync_directory(self._path.parent)
        self._stored, self._is_durable = {}, False

    def _write(self, offsets: Mapping[TopicPartition, Offset], *, durable: bool) -> None:
        data = checkpoint_formats.encode_offsets(offsets)
        self._is_durable = False
        self._disk.write_atomically(self._path, data, durable=durable)
        self._stored, self._is_durable = dict(offsets), durable
