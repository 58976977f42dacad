"""Open a log's segments: trust them up to the recovery point, and verify each byte after it.

From the segment that holds the recovery point on, the CRC, offset and epoch of each batch are
checked and the indexes rebuilt; at the first invalid batch the segment is truncated and all later
ones are removed (I10). Before that point only the shape is checked, and the batches where epochs
begin; a segment that fails there is treated like one after it. Nothing is synced, and the recovery
point does not change. Kafka: LogLoader.

A segment with a known synced prefix (`synced_prefix`) is trusted up to its end, as the segments
before it are, and verified from there on.

The leader epoch checkpoint is renamed into place before the first batch of an epoch is written, and
filesystems with ordered metadata keep that order through a power loss. So if that file is valid, a
batch that names another epoch is corrupt: the field is outside the CRC and nothing else guards it.
If the file is missing, empty or unreadable, epochs are derived from the batches, from the segment
that holds the log start on.

Records that a failed sync may have lost are written again (S8). When the kernel fails to write a
page back it reports that to one sync, and keeps the page as if it were on disk: processes read it,
later syncs succeed, and a power loss removes it. The broker whose sync fails ends without a clean
shutdown file. The next broker process reads the same pages; its own syncs would succeed although
the pages were never written. Only a clean shutdown file shows that no sync had failed: a boot
record may have stayed. So every start without that file writes all records past the recovery point
again before it reads them, and its first sync covers them (decision 0065).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c
from tidemark_protocol.ids import Offset
from tidemark_protocol.record_batch_writer import CRC_START, HEADER_BYTES

from tidemark_broker.kafka_wire.records.errors import CorruptBatch, TruncatedBatch
from tidemark_broker.kafka_wire.records.record_batch import BatchHeader, read_header
from tidemark_broker.log.disk import Disk, DiskFile
from tidemark_broker.log.errors import NO_ROOM_ERRORS, DiskFull
from tidemark_broker.log.leader_epoch_cache import LeaderEpochs
from tidemark_broker.log.segment import (
    CLEANED_SUFFIX,
    INDEX_SUFFIXES,
    SCAN_BYTES,
    WALK_BYTES,
    Segment,
    base_offsets_of,
    log_path,
    scan_batches,
    write_all,
)
from tidemark_broker.log.segment_swap import finish_swaps, remove_segment_files
from tidemark_broker.log.synced_prefix import SyncedPrefix
from tidemark_broker.log.synced_prefix_files import synced_path
from tidemark_broker.log.unreadable_sectors import unreadable_is_corrupt

_LEFTOVER_SUFFIXES = (".deleted", ".tmp", CLEANED_SUFFIX)


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """The result of opening a log. A kill leaves at most one incomplete batch at the end (S8)."""

    verified_segments: int = 0
    truncated_bytes: int = 0
    removed_segments: int = 0
    reason: str = ""  # why something was cut; empty if nothing was
    only_a_torn_tail: bool = True


def _nobody_requests(only_a_torn_tail: bool) -> None:
    return None


class PreviousRun(NamedTuple):
    """The facts about a log that are known before it is opened."""

    recovery_point: Offset | None = None  # all below was synced; None: it was stopped cleanly
    log_start_offset: Offset = Offset(0)
    # Of the segment with the recovery point, which is not below its end: what need not be verified.
    synced_prefix: SyncedPrefix | None = None
    # Told whether it is only a torn tail, before anything is cut. Raises OSError.
    before_truncation: Callable[[bool], None] = _nobody_requests
    is_synced: bool = False  # all of it, and its directory: it was just made


CLEANLY_STOPPED = PreviousRun()


@dataclass(slots=True)
class LoadedSegments:
    segments: list[Segment] = field(default_factory=list)
    report: RecoveryReport = field(default_factory=RecoveryReport)
    part: SyncedPrefix | None = None  # as long as nothing speaks against it
    before_truncation: Callable[[bool], None] = _nobody_requests


def load_segments(
    disk: Disk,
    directory: Path,
    *,
    previous: PreviousRun,
    epochs: LeaderEpochs,
    epochs_known: bool,
    index_interval_bytes: int,
) -> LoadedSegments:
    """Open the segments of a log, in order, at least one.

    A log start is checkpointed before what lies below is deleted, so corruption there costs
    nothing, only what lies behind it does. `epochs` is completed (if not `epochs_known`) and
    truncated to the log's end in place. Raises OSError.
    """
    recovery_point, log_start_offset, part, before_truncation, _ = previous
    base_offsets = _sort_out_files(disk, directory)
    if not base_offsets:
        first = Segment.create(
            disk, directory, log_start_offset, index_interval_bytes=index_interval_bytes
        )
        return LoadedSegments([first])
    suspect_from = _first_suspect(base_offsets, recovery_point if epochs_known else Offset(0))
    is_there = part is not None and disk.exists(synced_path(directory, part.base_offset))
    # Compaction may just have replaced it.
    loaded = LoadedSegments(part=part if is_there else None, before_truncation=before_truncation)
    verified = 0
    expected = base_offsets[0]
    for index, base_offset in enumerate(base_offsets):
        if base_offset < expected:
            # Compaction put its records into the segment before; the old file's end was not stored.
            remove_segment_files(disk, directory, base_offset)
            continue
        if not epochs_known and _is_needless(base_offsets, index, log_start_offset):
            # Its epochs would be believed: a bit flipped in one would cost all that comes behind.
            remove_segment_files(disk, directory, base_offset)
            expected = base_offsets[index + 1]
            continue
        if base_offset > expected and base_offset <= log_start_offset:
            _drop_beginning(disk, directory, loaded)
        elif base_offset != expected:
            reason = f"expected a segment at offset {expected}, found one at {base_offset}"
            loaded.before_truncation(False)
            _remove_from(disk, directory, base_offsets, index, loaded, reason)
            break
        segment = Segment.open(
            disk, directory, base_offset, index_interval_bytes=index_interval_bytes
        )
        loaded.segments.append(segment)
        is_last = index + 1 == len(base_offsets)
        next_base_offset = None if is_last else base_offsets[index + 1]
        is_valid = index < suspect_from and _loads(segment, next_base_offset)
        if is_valid and (recovery_point is None or _epochs_agree(segment, epochs)):
            expected = segment.next_offset
            continue
        verified += 1
        behind = _resume(segment, loaded, epochs, index >= suspect_from and epochs_known)
        cut = _verify(segment, epochs, epochs_known, behind)
        if cut is not None and _is_needless(base_offsets, index, log_start_offset):
            _drop_beginning(disk, directory, loaded)
            expected = base_offsets[index + 1]
            continue
        if cut is not None:
            _truncate(disk, directory, base_offsets, index, loaded, cut)
            break
        expected = segment.next_offset
    end_offset = loaded.segments[-1].next_offset
    epochs.truncate_from_end(Offset(end_offset + 1))  # an epoch without batches may start there
    loaded.report = replace(loaded.report, verified_segments=verified)
    if not loaded.report.only_a_torn_tail:
        loaded.part = None  # its segment may be gone
    return loaded


# guard: unmarked-log-is-read (S9)
def is_all_valid(segments: Iterable[Segment], epochs: LeaderEpochs) -> bool:
    """Return whether each batch can be read and matches its CRC, offset and epoch.

    Reads everything. Raises OSError, except for an unreadable sector.
    """
    try:
        with unreadable_is_corrupt():
            for segment in segments:
                for position, header in scan_batches(
                    segment.file,
                    start=0,
                    end=segment.size_bytes,
                    expected_offset=segment.base_offset,
                    verify_crc=True,
                ):
                    _check_epoch(position, header, epochs, epochs_known=True)
    except CorruptBatch:
        return False
    return True


def _is_needless(base_offsets: list[Offset], index: int, log_start_offset: Offset) -> bool:
    """Return whether the segment lies below the log start: retention had not deleted it yet."""
    return index + 1 < len(base_offsets) and base_offsets[index + 1] <= log_start_offset


def _drop_beginning(disk: Disk, directory: Path, loaded: LoadedSegments) -> None:
    for segment in loaded.segments:
        remove_segment_files(disk, directory, segment.base_offset)
    loaded.segments.clear()


def _sort_out_files(disk: Disk, directory: Path) -> list[Offset]:
    """Remove leftovers, complete swaps, and return the segments' base offsets in order."""
    names = disk.list_names(directory)
    for name in names:
        if name.endswith(_LEFTOVER_SUFFIXES):
            disk.remove(directory / name)
    finish_swaps(disk, directory, names)
    names = disk.list_names(directory)
    base_offsets = base_offsets_of(names)
    stems = {f"{base_offset:020d}" for base_offset in base_offsets}
    for name in names:
        stem, _, suffix = name.partition(".")
        if f".{suffix}" in INDEX_SUFFIXES and stem not in stems:
            disk.remove(directory / name)
    return base_offsets


def _first_suspect(base_offsets: list[Offset], recovery_point: Offset | None) -> int:
    if recovery_point is None:
        return len(base_offsets)
    at_or_below = [i for i, base in enumerate(base_offsets) if base <= recovery_point]
    return at_or_below[-1] if at_or_below else 0


def _loads(segment: Segment, next_base_offset: Offset | None) -> bool:
    try:
        segment.load()
        _check_end(segment, next_base_offset)
    except CorruptBatch:
        return False
    return True


# guard: segment-end-is-checked (I10)
def _check_end(segment: Segment, next_base_offset: Offset | None) -> None:
    """Check the last batch of a segment if no other segment confirms where it ends.

    The end is what the last header says, and no CRC was checked for it. A bit flipped in its count
    of offsets would drop the segments that it seems to cover, or move the log's end. Raises
    CorruptBatch.
    """
    if segment.next_offset not in (segment.base_offset, next_base_offset):
        segment.check(segment.find(Offset(segment.next_offset - 1)))


def _epochs_agree(segment: Segment, epochs: LeaderEpochs) -> bool:
    """Return whether the first batch of each epoch and the last batch have their epochs (S29).

    A lost kernel may have brought back truncated records, or the epochs from before the truncation.
    """
    looked_at = [start for _, start in epochs.entries if start < segment.next_offset]
    looked_at.append(Offset(segment.next_offset - 1))
    try:
        found = [segment.find(at).header for at in looked_at if at >= segment.base_offset]
    except CorruptBatch:
        return False
    return all(
        batch.partition_leader_epoch == epochs.epoch_at(batch.base_offset) for batch in found
    )


def _resume(
    segment: Segment, loaded: LoadedSegments, epochs: LeaderEpochs, is_trusted: bool
) -> SyncedPrefix | None:
    """Restore a segment's synced prefix; return it, or None if all must be verified."""
    part = loaded.part
    if part is None or part.base_offset != segment.base_offset:
        return None
    if is_trusted and epochs.epoch_at(Offset(part.next_offset - 1)) == part.epoch_before:
        segment.resume(part)
        if _epochs_agree(segment, epochs):
            return part
    loaded.part = None
    return None


def _verify(
    segment: Segment, epochs: LeaderEpochs, epochs_known: bool, behind: SyncedPrefix | None
) -> CorruptBatch | None:
    """Return the first invalid batch, or None."""
    try:
        for position, header in segment.rebuild(verify_crc=True, behind=behind):
            _check_epoch(position, header, epochs, epochs_known)
    except CorruptBatch as error:
        return error
    return None


def _check_epoch(
    position: int, header: BatchHeader, epochs: LeaderEpochs, epochs_known: bool
) -> None:
    epoch = header.partition_leader_epoch
    if epochs_known:
        expected = epochs.epoch_at(header.base_offset)
        if epoch != expected:
            raise CorruptBatch(position, f"leader epoch {expected}", f"leader epoch {epoch}")
    elif epoch < max(0, epochs.latest_epoch):  # I5
        raise CorruptBatch(
            position, f"a leader epoch from {max(0, epochs.latest_epoch)} on", f"{epoch}"
        )
    elif epoch > epochs.latest_epoch:
        epochs.assign(epoch, header.base_offset)


def _truncate(
    disk: Disk,
    directory: Path,
    base_offsets: list[Offset],
    index: int,
    loaded: LoadedSegments,
    cut: CorruptBatch,
) -> None:
    segment = loaded.segments[-1]
    size_bytes = segment.size_bytes
    # Torn: the write stopped before the batch's own end. All else is damage, not a kill.
    torn = (
        index == len(base_offsets) - 1
        and isinstance(cut, TruncatedBatch)
        and not _is_whole(segment.file, cut.position, size_bytes)
    )
    loaded.before_truncation(torn)
    _remove_from(disk, directory, base_offsets, index + 1, loaded, f"{segment.path.name}: {cut}")
    part = loaded.part if torn else None
    is_before = part is not None and part.base_offset == segment.base_offset
    segment.truncate(cut.position, segment.next_offset, behind=part if is_before else None)
    loaded.report = replace(
        loaded.report,
        truncated_bytes=loaded.report.truncated_bytes + size_bytes - cut.position,
        only_a_torn_tail=torn,
    )


# guard: damaged-length-is-no-torn-tail (S8)
def _is_whole(file: DiskFile, position: int, end: int) -> bool:
    """Return whether a batch whose length points past `end` is complete, by its checksum.

    It is compared with the bytes up to the next batch or to `end`. If it matches, no write was
    interrupted: the length itself is corrupt, and no checksum covers it. Reads up to the end, so it
    is not for the loop.
    """
    head = file.read_at(position, min(HEADER_BYTES, end - position))
    if len(head) < HEADER_BYTES:
        return False
    header = read_header(head)
    successor = header.next_offset.to_bytes(8, "big")
    at = position + CRC_START
    checksum = 0
    while at < end:
        data = file.read_at(at, min(SCAN_BYTES + len(successor) - 1, end - at))
        if not data:
            return False
        is_last = at + len(data) == end
        size_bytes = len(data) if is_last else SCAN_BYTES
        hashed, view = 0, memoryview(data)
        for boundary in _boundaries(data, successor, is_last=is_last):
            checksum = crc32c(view[hashed:boundary], checksum)
            if checksum == header.crc:
                return True
            hashed = boundary
        checksum = crc32c(view[hashed:size_bytes], checksum)
        at += size_bytes
    return False


def _boundaries(data: bytes, successor: bytes, *, is_last: bool) -> Iterator[int]:
    """Yield where the next batch may begin, in order.

    That is at its base offset, or where the data ends within the bytes of that offset.
    """
    found = data.find(successor)
    while found >= 0:
        yield found
        found = data.find(successor, found + 1)
    if is_last:
        for size in range(min(len(successor) - 1, len(data)), -1, -1):
            if data.endswith(successor[:size]):
                yield len(data) - size


def _remove_from(
    disk: Disk,
    directory: Path,
    base_offsets: list[Offset],
    index: int,
    loaded: LoadedSegments,
    reason: str,
) -> None:
    """Remove segments from `index` on, the last one first.

    A crash in between leaves a log that still ends at the same batch.
    """
    truncated_bytes = 0
    for base_offset in reversed(base_offsets[index:]):
        truncated_bytes += disk.open(log_path(directory, base_offset)).size_bytes()
        remove_segment_files(disk, directory, base_offset)
    if index < len(base_offsets):
        disk.sync_directory(directory)
    loaded.report = RecoveryReport(
        truncated_bytes=truncated_bytes,
        removed_segments=len(base_offsets) - index,
        reason=reason,
        only_a_torn_tail=False,
    )


_END_OF_OFFSETS = Offset(2**63)


# guard: unsynced-log-is-rewritten (S8)
def write_again(
    disk: Disk, directory: Path, recovery_point: Offset, part: SyncedPrefix | None = None
) -> None:
    """Write all records again that are not certainly below the recovery point.

    `part` is the log's synced prefix below that point, as `synced_prefix_of` found it. Raises
    DiskFull, OSError.
    """
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
                f"cannot write {path} again, which is needed after an unclean shutdown:"
                f" {error}; free space on the volume and start again"
            ) from error


def _end_of_what_is_synced(
    file: DiskFile, base_offset: Offset, recovery_point: Offset, part: SyncedPrefix | None
) -> int:
    """Return the position after the last batch below the recovery point.

    It is found by headers, from the segment's start or from the end of its synced prefix, not by an
    index file, which may be of another kernel. Where headers end, nothing after them is known.
    """
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
    """Write the same bytes in place, so that a kill in between changes nothing."""
    while data := file.read_at(position, SCAN_BYTES):
        write_all(file, position, data)
        position += len(data)
