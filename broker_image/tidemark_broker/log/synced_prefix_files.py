"""Decide when the synced prefix of a log is written, and which one a start may trust."""

import contextlib
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tidemark_protocol.ids import Offset
from tidemark_protocol.record_batch_writer import HEADER_BYTES

from tidemark_broker.kafka_wire.records.errors import CorruptBatch
from tidemark_broker.kafka_wire.records.record_batch import read_header
from tidemark_broker.log.checkpoint_formats import MalformedFile
from tidemark_broker.log.disk import Disk, DiskFile
from tidemark_broker.log.errors import NO_ROOM_ERRORS
from tidemark_broker.log.indexes import MAX_RELATIVE_OFFSET
from tidemark_broker.log.leader_epoch_cache import LeaderEpochs
from tidemark_broker.log.producer_state_entry import ProducerStateEntries
from tidemark_broker.log.segment import WALK_BYTES, Segment, log_path, scan_batches
from tidemark_broker.log.synced_prefix import SYNCED_SUFFIX, SyncedPrefix, decode_synced_prefix

_NAME = re.compile(r"^(\d{20})\.synced$")


@dataclass(frozen=True, slots=True)
class PendingPrefix:
    part: SyncedPrefix
    begun: int  # how often copies had been voided before


class _Written(NamedTuple):
    base_offset: Offset
    size_bytes: int  # of the segment
    file_bytes: int


class SyncedPrefixFiles:
    """The files of one log, between the worker that writes one and the loop.

    The loop may truncate the log at any time: a copy made before that does not count after it.
    """

    def __init__(self, disk: Disk, directory: Path, kept: SyncedPrefix | None) -> None:
        """Remove all files but `kept`, with which the log was opened.

        Raises OSError.
        """
        self._disk = disk
        self._directory = directory
        self._lock = threading.Lock()
        self._voided = 0
        self._written = None if kept is None else _Written(kept.base_offset, kept.size_bytes, 0)
        for base_offset in _bases(disk, directory):
            if kept is None or base_offset != kept.base_offset:
                disk.remove(synced_path(directory, base_offset))

    def copy_if_due(
        self,
        active: Segment,
        producers: ProducerStateEntries,
        epochs: LeaderEpochs,
        *,
        growth_bytes: int,
    ) -> PendingPrefix | None:
        """Return a copy of the active segment's state if it has grown enough, on the loop.

        It is due when it has grown by `growth_bytes` since it was written, and by as much as was
        written: many checkpoints of a large segment that hardly grows cost no more than its
        appends.
        """
        written = self._written
        if written is None or written.base_offset != active.base_offset:
            written = _Written(active.base_offset, 0, 0)
        if active.size_bytes - written.size_bytes < max(1, growth_bytes, written.file_bytes):
            return None
        epoch_before = epochs.epoch_at(Offset(active.next_offset - 1))
        return PendingPrefix(active.part(producers.copy(), epoch_before), self._voided)

    # guard: truncation-voids-synced-prefix (S29)
    def invalidate(self) -> None:
        """Remove the files before any file of the log changes other than by an append."""
        with self._lock:
            self._voided += 1
            self._written = None

    def write(self, due: PendingPrefix) -> None:
        """Write a copy whose batches the caller has synced since it was made. Called in a worker.

        Raises OSError other than a full disk, because the file only saves reading.
        """
        part, begun = due.part, due.begun
        path = synced_path(self._directory, part.base_offset)
        temporary = path.with_name(path.name + ".tmp")
        data = part.encode()
        try:
            self._disk.write_atomically(temporary, data, durable=False)
            with self._lock:
                if self._voided == begun:
                    self._disk.rename(temporary, path)
                    self._forget_previous(part.base_offset)
                    self._written = _Written(part.base_offset, part.size_bytes, len(data))
                    return
            self._disk.remove(temporary)
        except OSError as error:
            if error.errno not in NO_ROOM_ERRORS and self._voided == begun:
                raise  # else the log may be removed, and its directory gone

    def _forget_previous(self, base_offset: Offset) -> None:
        written = self._written
        if written is not None and written.base_offset != base_offset:
            self._disk.remove(synced_path(self._directory, written.base_offset))


def synced_prefix_of(disk: Disk, directory: Path) -> SyncedPrefix | None:
    """Return the newest synced prefix that can be trusted under the kernel that wrote it, or None.

    It can be decoded, and the last batches that it describes are there and valid. Raises OSError.
    """
    for base_offset in reversed(_bases(disk, directory)):
        with contextlib.suppress(FileNotFoundError, MalformedFile, CorruptBatch):
            part = decode_synced_prefix(disk.read(synced_path(directory, base_offset)))
            file = disk.open(log_path(directory, base_offset))
            if part.base_offset == base_offset and _end_of(file, part) == part.next_offset:
                return part
    return None


def synced_path(directory: Path, base_offset: Offset) -> Path:
    return directory / f"{base_offset:020d}{SYNCED_SUFFIX}"


def _bases(disk: Disk, directory: Path) -> list[Offset]:
    matches = map(_NAME.match, disk.list_names(directory))
    return sorted(Offset(int(match[1])) for match in matches if match)


def _end_of(file: DiskFile, part: SyncedPrefix) -> Offset | None:
    """Return where the batches end, read from the last index entry on.

    None if the file is of another segment.
    """
    relative_offset, start = part.offset_index.floor(MAX_RELATIVE_OFFSET) or (None, 0)
    found: Offset | None = None
    for position, header in scan_batches(
        file,
        start=start,
        end=part.size_bytes,
        expected_offset=read_header(file.read_at(start, HEADER_BYTES)).base_offset,
        verify_crc=True,
        chunk_bytes=WALK_BYTES,
    ):
        if position == 0 and header.base_offset != part.base_offset:
            return None
        indexed = position == start and relative_offset is not None
        if indexed and header.last_offset != part.base_offset + (relative_offset or 0):
            return None
        found = header.next_offset
    return found
