"""What a sync may have lost is written once more (S8).

When the kernel fails to write a page back it tells one sync so, and keeps the page as if it were
on the disk: processes read it, later syncs succeed, and a power loss takes it. The broker that
hears of it ends without a stop proof. The next one reads the same pages, and would vouch with its
own syncs for what was never written. Only a stop proof says that no sync had failed: a boot stamp
may have stayed. So every start without one writes all past the recovery point again, before it
reads it, and the first sync of its life covers it (decision 0065).
"""

from itertools import pairwise
from pathlib import Path

from tidemark_protocol.ids import Offset

from tidemark_broker.storage.disk import Disk, DiskFile
from tidemark_broker.storage.epoch_checkpoint import NO_ROOM_ERRORS
from tidemark_broker.storage.errors import CorruptBatch, DiskFull
from tidemark_broker.storage.segment import (
    SCAN_BYTES,
    WALK_BYTES,
    base_offsets_of,
    log_path,
    scan_batches,
    write_all,
)
from tidemark_broker.storage.synced_part import SyncedPart

_END_OF_OFFSETS = Offset(2**63)


# guard: unsynced-log-is-rewritten (S8)
def write_again(
    disk: Disk, directory: Path, recovery_point: Offset, part: SyncedPart | None = None
) -> None:
    """All that is not certainly below the recovery point. `part`: of the log, as
    `synced_parts.synced_part_of` found it, below that point. Raises DiskFull, OSError."""
    bases = base_offsets_of(disk.list_names(directory))
    for base_offset, next_base in pairwise([*bases, _END_OF_OFFSETS]):
        if next_base <= recovery_point:
            continue
        path = log_path(directory, base_offset)
        file = disk.open(path)
        try:
            begun = part if part is not None and part.base_offset == base_offset else None
            _write_from(file, _end_of_what_is_synced(file, base_offset, recovery_point, begun))
        except OSError as error:
            if error.errno not in NO_ROOM_ERRORS:
                raise
            raise DiskFull(  # not where files are written in place: on ext4, XFS
                f"cannot write {path} once more, as a start without a clean stop must: {error}; "
                "free some space on the volume and start again"
            ) from error


def _end_of_what_is_synced(
    file: DiskFile, base_offset: Offset, recovery_point: Offset, part: SyncedPart | None
) -> int:
    """Position after the last batch below the recovery point. By headers from the segment's start,
    or from the end of its synced part, not by an index file, which may be of another kernel; where
    headers end, nothing after them is known."""
    if base_offset >= recovery_point:
        return 0
    position, next_offset = (part.size_bytes, part.next_offset) if part else (0, base_offset)
    try:
        for placed in scan_batches(
            file,
            start=position,
            end=file.size_bytes(),
            expected_offset=next_offset,
            verify_crc=False,
            chunk_bytes=WALK_BYTES,
        ):
            if placed.header.last_offset >= recovery_point:
                break
            position = placed.position + placed.header.size_bytes
    except CorruptBatch:
        pass
    return position


def _write_from(file: DiskFile, position: int) -> None:
    """In place and the same bytes, so that a kill in between changes nothing."""
    while data := file.read_at(position, SCAN_BYTES):
        write_all(file, position, data)
        position += len(data)
