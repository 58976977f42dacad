"""The checkpoint of recovery points: how far each log is on the disk for good, as of the last pass.

Starts trust what lies below (`recovery`, `rewriting`), so no point in the file may lie above a cut
that new batches follow. Points rise with a checkpoint, after a sync; they fall before the cut
itself, as the sync after it may be the one that fails (S8). A lowered file is not synced: this runs
on the loop, under a kernel that lost a write the unsynced file is there as the batches are, and
after each cut a checkpoint follows at once. Whoever writes here holds one lock, as the caller says.
"""

import threading
from collections.abc import Mapping
from pathlib import Path

from tidemark_protocol.ids import Offset

from tidemark_broker.storage import checkpoints
from tidemark_broker.storage.checkpoints import TopicPartition
from tidemark_broker.storage.disk import Disk
from tidemark_broker.storage.epoch_checkpoint import DISK_FULL_ERRORS


class RecoveryPoints:
    """Raises OSError as it comes."""

    def __init__(self, disk: Disk, directory: Path, lock: threading.RLock) -> None:
        self._disk = disk
        self._path = directory / checkpoints.RECOVERY_POINTS
        self._lock = lock
        self._stored: dict[TopicPartition, Offset] = {}

    def read(self) -> Mapping[TopicPartition, Offset]:
        """A log that is not named has none: nothing of it is trusted."""
        try:
            self._stored = checkpoints.decode_offsets(self._disk.read(self._path))
        except (FileNotFoundError, checkpoints.MalformedFile):
            self._stored = {}
        return dict(self._stored)

    def write(self, points: Mapping[TopicPartition, Offset]) -> None:
        """Durable before it returns. In a worker."""
        with self._lock:
            self._write(points, durable=True)

    def drop(self, at: TopicPartition) -> None:
        """Durable before it returns."""
        with self._lock:
            if at in self._stored:
                rest = {key: point for key, point in self._stored.items() if key != at}
                self._write(rest, durable=True)

    def lower(self, at: TopicPartition, offset: Offset) -> None:
        """Before that log is cut there. Where there is no space for the file it goes: all logs are
        verified then."""
        with self._lock:
            if self._stored.get(at, Offset(0)) <= offset:
                return
            try:
                self._write({**self._stored, at: offset}, durable=False)
            except OSError as error:
                if error.errno not in DISK_FULL_ERRORS:
                    raise
                self._disk.remove(self._path)
                self._stored = {}

    def _write(self, points: Mapping[TopicPartition, Offset], *, durable: bool) -> None:
        self._disk.write_atomically(self._path, checkpoints.encode_offsets(points), durable=durable)
        self._stored = dict(points)
