"""Offsets of every log in one file, which may only tell of logs as they are now.

Recovery points: how far each log is on the disk for good, as of the last pass. Starts trust what
lies below (`recovery`, `rewriting`). High watermarks: what was committed; a start believes it as
far as the log goes. Log starts, and how far logs were compacted. None may lie above a cut that new
batches follow: these would pass for synced, committed, deleted or compacted (S31). They rise with a
checkpoint and fall before the cut itself, as the sync after it may be the one that fails (S8). All
files are written under one lock of the caller's.

A lowered file is synced, for what a power loss may keep of the log without keeping it. That is on
the loop, and rare: only an election without proof has cuts below these offsets. Recovery points are
not: other cuts go below them too, and a pass that syncs follows at once.
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
    """Raises OSError as it comes."""

    def __init__(self, disk: Disk, path: Path, lock: threading.RLock) -> None:
        self._disk = disk
        self._path = path
        self._lock = lock
        self._lowers_durably = path.name != checkpoint_formats.RECOVERY_POINTS
        self._stored: dict[TopicPartition, Offset] = {}
        self._is_durable = False  # the file, as it is stored
        self.cuts = 0  # of any log, since the file was read

    def read(self) -> Mapping[TopicPartition, Offset]:
        """A log that is not named has none: nothing of it is trusted."""
        try:
            self._stored = checkpoint_formats.decode_offsets(self._disk.read(self._path))
        except (FileNotFoundError, checkpoint_formats.MalformedFile):
            self._stored = {}
        return dict(self._stored)

    @property
    def stored(self) -> Mapping[TopicPartition, Offset]:
        """What the file says, as far as this process knows."""
        return self._stored

    def write(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Durable before it returns. In a worker. What the file says already stays."""
        with self._lock:
            if not self._is_durable or offsets != self._stored:
                self._write(offsets, durable=True)

    def drop(self, dropped: Collection[TopicPartition]) -> None:
        """Durable before it returns."""
        with self._lock:
            if any(at in self._stored for at in dropped):
                gone = set(dropped)
                rest = {at: offset for at, offset in self._stored.items() if at not in gone}
                self._write(rest, durable=True)

    def lower(self, ends: Mapping[TopicPartition, Offset]) -> None:
        """Before those logs are cut there, or go on from there. Where there is no space for the
        file it goes: nothing of any log is trusted then."""
        with self._lock:
            self.cuts += 1
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
